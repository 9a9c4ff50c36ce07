"""The commands `seep run`, `seep wordcount` and `seep doctor`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import typer
from rich.console import Console

from primitives.errors import UserError
from seep.cli import failures
from seep.cli.display.tables import TextTable, show
from seep.cli.display.view import ConsoleView, view_for
from seep.cli.flags import Flags
from seep.cli.session import session
from seep.cli.settings import settings_of
from seep.logs.line import visible
from seep.query.query import Query
from seep.reports import figures
from seep.reports.summary import summary_lines
from seep.rows.position import Position
from seep.running.run import Run
from seep.sinks.in_driver import Collect
from seep.workloads.wordcount import ROWS_PER_SECOND, differences, recount, wordcount

#: The number of wrong counts that are shown.
_SHOWN = 10
#: The most rows that are shown of each sink, and the most characters of each value.
_ROWS, _LETTERS = 20, 60


def run_query(target: str, flags: Flags) -> None:
    """Runs a user's query."""
    settings = settings_of(flags)
    query = load_query(target)
    view = _view(flags)
    with session(query, settings, view) as run:
        report, found = run.report(), collected(run)
    _summarise(view, report)
    for sink, table in found.items():
        show_collected(sink, table, view.console)


def run_wordcount(window: str, flags: Flags) -> None:
    """Runs the word count, and checks its counts."""
    settings = settings_of(flags, seconds=30.0, rate=ROWS_PER_SECOND)
    rate = settings.rate.rows_per_second if settings.rate else ROWS_PER_SECOND
    view = _view(flags)
    with session(wordcount(rate, window), settings, view) as run:
        report = run.report()
        found = run.result("out")
        rows = {partition: Position(*position).rows for partition, position in run.positions("lines").items()}
    _summarise(view, report)
    if run.halted:
        view.say("stopped before the end of its input: the counts are not complete, and not checked")
        return
    if run.goes_on:
        view.say("not checked, as an earlier run has counted a part of it; --restore none begins from nothing")
        return
    expected = recount(rows, rate, window)
    wrong = differences(found, expected)
    if wrong:
        view.say(f"checked {len(expected):,} counts: {len(wrong):,} are wrong")
        for line in wrong[:_SHOWN]:
            view.say(f"  {line}")
        raise typer.Exit(failures.USER)
    view.say(f"checked {len(expected):,} counts: equal")


def _view(flags: Flags) -> ConsoleView:
    return view_for(Console(), quiet=flags.quiet, verbose=flags.verbose)


def _summarise(view: ConsoleView, report: dict[str, object]) -> None:
    for line in summary_lines(report):
        view.say(line)


def examine(master: str | None, nodes: int) -> None:
    """Prints the result of each check; exits with 1 if a run is not possible."""
    from seep.cli import doctor

    if not doctor.examine(master, nodes, ConsoleView(Console()).say):
        raise typer.Exit(failures.USER)


def collected(run: Run) -> dict[str, pa.Table]:
    """Returns the rows of each `collect` sink of a run."""
    sinks = run.program.sinks
    return {name: run.result(name) for name, (definition, _) in sinks.items() if isinstance(definition, Collect)}


def show_collected(sink: str, table: pa.Table, console: Console) -> None:
    """Prints the first rows of a sink, in the order of their epochs, and the number of all rows."""
    line = f"{sink}: {figures.of(len(table), 'row')}"
    more = f", the first {_ROWS} of them" if len(table) > _ROWS else ""
    console.print(line + more, markup=False, highlight=False, soft_wrap=True)
    if len(table):
        rows = zip(*(column.to_pylist() for column in table.slice(0, _ROWS).columns), strict=True)
        show(TextTable(table.column_names, [[_text(value) for value in row] for row in rows]), console)


def _text(value: object) -> str:
    """Returns a value in one line, with escapes for control characters, which count as what they look like.

    >>> _text(None), _text("a\\nb"), len(_text("x" * 100)), len(_text("\\x1b" * 100))
    ('null', 'a b', 60, 60)
    """
    text = "null" if value is None else visible(" ".join(str(value).split()))
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def load_query(target: str) -> Query:
    """Returns the query called `name` in a module or a Python file; `name` may also be a function without parameters.

    Modules in the working directory are found too. The module is sent to the nodes with the query; modules of yours
    that it imports must be there already, unless the nodes are on this machine.
    """
    place, colon, name = target.rpartition(":")
    if not (place and colon and name.isidentifier()):
        raise UserError(f"{target!r} names no query; write module:query, such as examples.wordcount:query")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    _send_by_value(module)
    found = getattr(module, name, None)
    query = found() if callable(found) and not isinstance(found, Query) else found
    if not isinstance(query, Query):
        known = [each for each, value in vars(module).items() if isinstance(value, Query)]
        hint = f"its queries are {', '.join(known)}" if known else "it has no queries"
        raise UserError(f"{name!r} in {place} is not a query, or a function that returns one; {hint}")
    return query


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as reason:
        if reason.name is None or not (name == reason.name or name.startswith(f"{reason.name}.")):
            raise UserError(f"module {name} needs {reason.name}, which is not installed") from reason
        raise UserError(f"there is no module {name}, neither installed nor in {Path.cwd()}") from reason


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    sys.path.insert(0, str(path.absolute().parent))
    return _import_module(path.stem)


def _send_by_value(module: ModuleType) -> None:
    """Makes the module's definitions be sent to the nodes by value, as they may not have the module."""
    from pyspark import cloudpickle

    if module.__name__.partition(".")[0] not in ("seep", "lrb", "nexmark"):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
