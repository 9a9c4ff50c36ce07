"""Runs the query on a file or on live traffic, and writes its four outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import typer
from rich.console import Console

from lrb.data.reading import DeadLetters
from lrb.data.writing import OUTPUTS, write_outputs
from lrb.generator import Recording
from lrb.generator import TrafficSettings as Traffic
from lrb.query.answers import outputs
from lrb.query.linear_road import linear_road
from lrb.responses import Responses
from lrb.schema import INPUT, TupleKind
from lrb.sources.feeder import feeder, prepare
from lrb.sources.live import paced, record, recorded
from lrb.validation.live_check import wrong_answers
from primitives.errors import UserError
from seep import sinks, sources, testing
from seep.cli import failures
from seep.cli.display.view import ConsoleView, view_for
from seep.cli.flags import Flags
from seep.cli.session import session
from seep.cli.settings import settings_of
from seep.query.query import Query
from seep.reports import figures
from seep.reports.summary import summary_lines

#: Names in a run's folder, beside its outputs: the sink's files, and the malformed tuples.
_ANSWERS, _DEAD_LETTERS = "answers", "dead-letters.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTraffic:
    """Settings of traffic that is played during the run."""

    xways: int
    speed: float  #: seconds of traffic per second of the clock
    minutes: int  #: length of the traffic
    seed: int
    check: bool = False  #: whether all answers are compared with the reference


def run_file(input: Path, out: Path, history: Path | None, lateness: int, flags: Flags) -> None:
    """Runs the query on all tuples of a file; `--restore` continues in the folder of an earlier run."""
    view = _view(flags)
    _make(out)
    with tempfile.TemporaryDirectory(dir=out, prefix=".input-") as folder:
        prepared = Path(folder) / "tuples.arrow"
        with DeadLetters(out / _DEAD_LETTERS) as dead_letters:
            prepare(input, prepared, dead_letters, lateness)
        if dead_letters.total:
            view.say(f"{dead_letters.summary()}; see {dead_letters.path}")
        ended = _run(query_of_file(prepared, out, history, lateness), flags, view)
    if not ended.halted:
        _write(out, answers_of(out), view)
    else:
        view.say("stopped before the end of its input: the outputs are not complete, and not written")


def query_of_file(prepared: Path, out: Path, history: Path | None = None, lateness: int = 0) -> Query:
    """Returns the query on a file that `prepare` has made; its sink writes below `out`."""
    sink = sinks.parquet(out / _ANSWERS, overwrite=True)
    return linear_road(feeder(prepared, lateness), sink, _absolute(history))


def answers_of(out: Path) -> pa.Table:
    """Returns the answers that the sink has written below `out`."""
    return sinks.read(out / _ANSWERS)


def run_live(live: LiveTraffic, out: Path | None, history: Path | None, flags: Flags) -> None:
    """Runs the query on live traffic and prints the response times; writes the answers if an output folder is given."""
    if flags.rate is not None:
        raise UserError("--rate: live traffic has its own pace, which is that of its seconds; give --speed instead")
    view = _view(flags)
    responses = Responses(keep=out is not None or live.check)
    with _recorded(live, view) as path:
        source, rate = paced(path, live.xways, live.speed)
        ended = _run(linear_road(source, sinks.callback(responses), _absolute(history), rate), flags, view)
        for line in response_lines(responses):
            view.say(line)
        rows = responses.rows()
        if out is not None and rows is not None:
            _make(out)
            _write(out, rows, view)
        if live.check and rows is not None:
            is_whole = ended.rows == rate.totals[-1]
            _check(rows, recorded(path), live, history, view, is_whole=is_whole)


def _check(
    rows: pa.Table, recording: Recording, live: LiveTraffic, history: Path | None, view: ConsoleView, *, is_whole: bool
) -> None:
    """Prints whether all answers are right; exits with 1 if they are not."""
    if not is_whole:
        view.say("stopped before the end of its input: the answers are not complete, and not checked")
        return
    wrong = wrong_answers(rows, recording, live.xways, history)
    for line in wrong:
        view.say(line)
    view.say(f"checked {figures.of(len(rows), 'answer')} against the reference: {'WRONG' if wrong else 'all right'}")
    if wrong:
        raise typer.Exit(failures.USER)


def response_lines(responses: Responses) -> Iterator[str]:
    """Returns a printed table of all response times."""
    found = responses.figures()
    times = (found.p50, found.p95, found.p99, found.max)
    named = zip(("p50", "p95", "p99", "max"), map(figures.time, times), strict=True)
    yield f"responses: {figures.of(found.answers, 'answer')}, {', '.join(map(' '.join, named))}"
    yield f"violations: {figures.of(found.violations, 'answer')} later than the benchmark allows"


@contextmanager
def _recorded(live: LiveTraffic, view: ConsoleView) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="seep-lrb-") as folder:
        path = Path(folder) / "traffic.arrow"
        view.say(f"recording {figures.of(live.minutes, 'minute')} of traffic")
        record(Traffic(seconds=60 * live.minutes, seed=live.seed), path)
        yield path


class _Ended(NamedTuple):
    """The end of a run."""

    halted: bool  #: whether it was stopped before the end of its input
    rows: int  #: number of rows that it has read


def _run(query: Query, flags: Flags, view: ConsoleView) -> _Ended:
    settings = settings_of(flags)
    compile_kernels()
    with session(query, settings, view) as run:
        report, ended = run.report(), _Ended(run.halted, run.rows_read)
    for line in summary_lines(report):
        view.say(line)
    return ended


def _view(flags: Flags) -> ConsoleView:
    return view_for(Console(), quiet=flags.quiet, verbose=flags.verbose)


def _absolute(path: Path | None) -> Path | None:
    """Returns the absolute path, which is valid in the working directory of any node."""
    return None if path is None else path.absolute()


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise UserError(f"--out {out}: it cannot be made a directory: {reason.strerror}") from None


def _write(out: Path, rows: pa.Table, view: ConsoleView) -> None:
    tables = outputs(rows)
    write_outputs(out, *tables)
    for output, table in zip(OUTPUTS, tables, strict=True):
        view.say(f"{out / output.file}: {figures.of(len(table), 'line')}")


def compile_kernels() -> None:
    """Precompiles the kernels of the operators, so that no node compiles while rows wait."""
    some = [dict.fromkeys(INPUT.names, 1) | {"type": int(kind)} for kind in TupleKind]
    tuples = pa.Table.from_pylist(some, INPUT)
    testing.run(linear_road(sources.memory(tuples, time="time"), sinks.collect()))
