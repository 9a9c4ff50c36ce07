"""Runs a query on a log or on events generated live, and writes its results."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from nexmark.generator import EventSettings as Model
from nexmark.queries import QUERIES, Nexmark
from nexmark.source import EventSource, GeneratedEvents, LoggedEvents, WantedColumns
from primitives.errors import EnvironmentFault, UserError
from seep import sinks, testing
from seep.cli.flags import Flags
from seep.cli.session import session
from seep.cli.settings import CommandSettings, settings_of
from seep.cli.view import ConsoleView, view_for
from seep.reports import figures
from seep.reports.summary import summary_lines
from seep.sinks.definition import SinkDefinition

#: Events a second, where nothing is said.
RATE = 10_000
_SECONDS = 30.0
#: Events on which a query is tried, so that what it needs is compiled.
_TRIED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvents:
    """How events come that are made as the run goes on."""

    model: Model
    rate: int | None = None  #: of the events' own time, if that is not to be the rate of the run
    partitions: int = 1


def query_named(name: str) -> Nexmark:
    """The query of this name, in capitals or not; UserError if there is none."""
    try:
        return QUERIES[name.upper()]
    except KeyError:
        raise UserError(f"there is no query {name!r}; there are {', '.join(QUERIES)}") from None


def run_log(query: Nexmark, input: Path, out: Path, sizes: Mapping[str, Any], flags: Flags) -> None:
    """Runs a query on all events of a log; `--restore` goes on where an earlier run with the same `out` stood."""
    view = _view(flags)
    parts = _parts(out)
    built = _Built(query, lambda wanted: LoggedEvents(wanted, input), sinks.parquet(parts, overwrite=True), sizes)
    if built.run(settings_of(flags), view):
        _settle(parts, out, view)
    else:
        view.say(f"stopped before the end of its input: what is in {parts} is not complete")


def run_live(query: Nexmark, live: LiveEvents, out: Path | None, sizes: Mapping[str, Any], flags: Flags) -> None:
    """Runs a query on events that come by the clock; keeps what it puts out only if there is a file to write it to."""
    view = _view(flags)
    parts = None if out is None else _parts(out)
    settings = settings_of(flags, seconds=_SECONDS, rate=float(RATE))
    if "emit" in inspect.signature(query.build).parameters:
        sizes = {"emit": "changes", **sizes}  # a run without an end has running values
    model = live.model if live.rate is not None else _paced(live.model, settings)
    sink = sinks.discard() if parts is None else sinks.parquet(parts, overwrite=True)
    _Built(query, lambda wanted: GeneratedEvents(wanted, model, partitions=live.partitions), sink, sizes).run(
        settings, view
    )
    if out is not None and parts is not None:
        _settle(parts, out, view)


def _paced(model: Model, settings: CommandSettings) -> Model:
    """With the rate of the run as that of the events' own time; without one, they keep theirs."""
    rate = settings.rate
    if rate is None:
        return model
    return replace(model, rate=max(int(rate.rows_per_second), 1), profile=rate.profile, period=rate.period)


def _parts(out: Path) -> Path:
    """Where rows are as long as the run goes on."""
    if out.suffix != ".parquet":
        raise UserError(f"--out {out}: the result is Parquet; let the name end with .parquet")
    return out.with_name(f"{out.name}.parts")


def _settle(parts: Path, out: Path, view: ConsoleView) -> None:
    rows = sinks.read(parts)
    write_result(rows, out)
    view.say(f"{out}: {figures.of(len(rows), 'row')}")
    shutil.rmtree(parts, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Built:
    """A query between its source and its sink."""

    query: Nexmark
    source: Callable[[WantedColumns], EventSource]
    sink: SinkDefinition
    sizes: Mapping[str, Any]

    def run(self, settings: CommandSettings, view: ConsoleView) -> bool:
        """Whether it came to the end of its input."""
        built = self.query.between(self.source, self.sink, **self.sizes)
        built.compile()  # so that what is wrong is told before anything takes time
        settings = in_rows(settings, self.source(self.query.wanted))
        compile_kernels(self.query, self.sizes)
        with session(built, settings, view) as run:
            report, halted = run.report(), run.halted
        for line in summary_lines(report):
            view.say(line)
        return not halted


def in_rows(settings: CommandSettings, source: EventSource) -> CommandSettings:
    """A rate is one of events, of which the source reads some kinds only."""
    if settings.rate is None:
        return settings
    return replace(
        settings, rate=replace(settings.rate, rows_per_second=settings.rate.rows_per_second * source.share())
    )


def compile_kernels(query: Nexmark, sizes: Mapping[str, Any]) -> None:
    """Compiles what the query needs, if that was never done here, so that no node has to while rows wait."""
    model = Model(text=False, filler=False)
    testing.run(query.between(lambda wanted: GeneratedEvents(wanted, model, count=_TRIED), sinks.collect(), **sizes))


def _view(flags: Flags) -> ConsoleView:
    return view_for(Console(), quiet=flags.quiet, verbose=flags.verbose)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows by all columns from the left, so that equal results are equal tables.

    >>> in_order(pa.table({"n": [2, 1]}))["n"].to_pylist()
    [1, 2]
    """
    return rows.sort_by([(name, "ascending") for name in rows.schema.names]) if len(rows) else rows


def write_result(rows: pa.Table, path: Path) -> None:
    """The file is there, whole, when all rows are in it."""
    part = path.with_name(path.name + ".part")
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(in_order(rows), part)
        part.replace(path)
    except OSError as reason:
        raise EnvironmentFault(f"{path} cannot be written: {reason}") from reason
    finally:
        part.unlink(missing_ok=True)
