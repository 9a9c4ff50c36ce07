"""What sinks have collected, as `seep run` shows it at the end."""

from __future__ import annotations

import io

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from seep.cli.commands import _ROWS, show_collected


def shown(table: pa.Table) -> list[str]:
    written = io.StringIO()
    show_collected("out", table, Console(file=written, width=80))
    return written.getvalue().splitlines()


def test_rows_are_shown_as_a_table_below_how_many_there_are() -> None:
    assert shown(pa.table({"word": ["[be]", None], "n": [1200, 7]})) == [
        "out: 2 rows",
        "word  n",
        "[be]  1200",
        "null  7",
    ]


def test_of_a_sink_that_got_nothing_only_that_is_said() -> None:
    assert shown(pa.table({"n": pa.array([], pa.int64())})) == ["out: 0 rows"]


@given(st.lists(st.text(max_size=200), min_size=1, max_size=60))
@example(["\x1b\U00010d28" * 30])  # escapes are longer than what they stand for
def test_however_much_was_collected_a_screen_is_enough(texts: list[str]) -> None:
    lines = shown(pa.table({"text": pa.array(texts, pa.string()), "n": range(len(texts))}))
    assert len(lines) == 2 + min(len(texts), _ROWS)
    assert max(map(len, lines)) < 80
    assert ("first" in lines[0]) == (len(texts) > _ROWS)
