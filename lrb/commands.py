"""Implements the commands of `seep lrb` apart from `run` and `rate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import pyarrow.compute as pc
import typer
from rich.console import Console

from lrb.data.history import write_history
from lrb.data.reading import DeadLetters
from lrb.data.tables import written
from lrb.generator import TrafficSettings, gathered, traffic
from lrb.schema import INPUT
from lrb.validation.validator import OutputComparison, validate
from seep.cli import failures
from seep.cli.display.progress import ProgressBar, with_bar
from seep.reports import figures

#: Wrong lines of each kind that are shown.
_SHOWN = 5
_ROWS = 1 << 17


def generate_traffic(settings: TrafficSettings, out: Path, history: Path | None, *, quiet: bool) -> None:
    """Writes traffic, and a history of earlier tolls of its vehicles if one is wanted."""
    begin, tuples, vehicles = perf_counter(), 0, 0
    total = settings.xways * int(settings.tuples_per_second().sum())
    with written(out, INPUT) as write:
        for batch in gathered(with_bar(traffic(settings), "traffic", total, quiet=quiet), _ROWS):
            write(batch)
            tuples += len(batch)
            vehicles = max(vehicles, pc.max(batch["vid"]).as_py() or 0)
    with ProgressBar("tolls of vehicles", quiet=quiet) as bar:
        rows = write_history(history, vehicles, settings.xways, settings.seed, bar.reach) if history else 0
    if quiet:
        return
    typer.echo(f"{out}: {tuples:,} tuples of {vehicles:,} vehicles, in {figures.time(perf_counter() - begin)}")
    if history is not None:
        typer.echo(f"{history}: {rows:,} tolls")


def validate_outputs(input: Path, out: Path, history: Path | None, *, lateness: int, live: bool) -> None:
    """Prints which outputs are right and which are wrong; exits with 1 if any is wrong."""
    dead_letters = DeadLetters()
    with _told("working out what is right"):
        findings = validate(input, out, history, lateness=lateness, live=live, dead_letters=dead_letters)
    if dead_letters.total:
        typer.echo(dead_letters.summary())
    for line in (line for finding in findings for line in lines_of(finding)):
        typer.echo(line)
    if not all(finding.is_right for finding in findings):
        raise typer.Exit(failures.USER)


@contextmanager
def _told(what: str) -> Iterator[None]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def lines_of(finding: OutputComparison) -> Iterator[str]:
    """Returns the printed lines of a finding: one line if all is right, else also some examples."""
    counts = f"{finding.output.name}: {finding.found:,} found, {finding.expected:,} expected"
    yield f"{counts}, longest response {finding.longest} s: {'right' if finding.is_right else 'WRONG'}"
    if finding.malformed:
        yield f"  {finding.malformed:,} lines are malformed"
    if finding.late:
        yield f"  {finding.late:,} answers came before their question or took longer than {finding.output.limit} s"
    names = ", ".join(name for name in finding.output.printed if name != "emit")
    for what, lines in (("missing", finding.missing), ("not expected", finding.unexpected)):
        for line, times in sorted(lines.items())[:_SHOWN]:
            yield f"  {what}{f' {times} times' if times > 1 else ''}: {', '.join(map(str, line))} ({names})"
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN:,} more {what}"
