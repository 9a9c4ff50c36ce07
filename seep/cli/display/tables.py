"""Tables: with borders on a terminal, aligned with spaces elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seep.logs.line import visible


class TextTable(NamedTuple):
    """Cells of text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def show(sheet: TextTable, console: Console) -> None:
    """Prints a table; its text is not interpreted as markup, and its control characters are shown as escapes."""
    sheet = TextTable([*map(visible, sheet.columns)], [[*map(visible, row)] for row in sheet.rows])
    if not console.is_terminal:
        console.print("\n".join(aligned(sheet)), markup=False, highlight=False, soft_wrap=True)
        return
    table = Table()
    for column in sheet.columns:
        table.add_column(Text(column))
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    console.print(table)


def aligned(sheet: TextTable) -> list[str]:
    """Returns a line for the names of the columns, and a line for each row.

    >>> aligned(TextTable(["word", "n"], [["be", "12"], ["question", "1"]]))
    ['word      n', 'be        12', 'question  1']
    """
    lines = [sheet.columns, *sheet.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
