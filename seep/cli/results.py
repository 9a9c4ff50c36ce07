"""Results: prints the rows that sinks have collected in the driver."""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console

from seep.cli.tables import TextTable, show
from seep.reports import figures
from seep.running.run import Run
from seep.sinks.in_driver import Collect

#: The most rows that are shown of each sink, and the most characters of each value.
_ROWS, _LETTERS = 20, 60


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
    """Returns a value in one line.

    >>> _text(None), _text("a\\nb"), len(_text("x" * 100))
    ('null', 'a b', 60)
    """
    text = "null" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
