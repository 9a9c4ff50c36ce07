"""Rings of log lines stay within their bounds, and say what they have dropped."""

from __future__ import annotations

import threading
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from seep.logs.line import LogLine
from seep.logs.rings import _BYTES, _LINES, COLLECTED, WAITING, CollectedLines, OutgoingLines, at_least, dropped_line
from tests.waiting import eventually


def line(number: int, size: int = 0, level: int = 20, node: str = "n1") -> LogLine:
    return LogLine(at=float(number), level=level, logger="seep", message="x" * size, fields={"node": node})


def numbers(lines: tuple[LogLine, ...]) -> list[int]:
    return [int(each.at) for each in lines]


def test_lines_that_wait_to_be_sent_take_bounded_memory_and_those_dropped_are_counted() -> None:
    waiting = OutgoingLines()
    for number in range(5_000):
        waiting.keep(line(number, 1_000))
    found: list[int] = []
    lines, dropped = waiting.take()
    while lines:
        found += numbers(lines)
        lines, more = waiting.take()
        assert more == 0, "what is dropped is told once"
    assert dropped + len(found) == 5_000
    assert found == list(range(dropped, 5_000))
    assert len(found) * 1_000 <= WAITING


def test_what_is_sent_at_once_is_bounded_in_lines_and_bytes() -> None:
    few, many = OutgoingLines(), OutgoingLines()
    for number in range(500):
        many.keep(line(number))
        few.keep(line(number, 4_000))
    assert len(many.take()[0]) == _LINES
    assert 1 < len(few.take()[0]) <= _BYTES // 4_000


def test_one_line_that_is_larger_than_a_message_is_sent_all_the_same() -> None:
    waiting = OutgoingLines(most=100)
    waiting.keep(line(1, 10 * _BYTES))
    assert numbers(waiting.take()[0]) == [1]


def test_the_driver_keeps_the_newest_lines_of_a_long_run_in_bounded_memory() -> None:
    lines = CollectedLines()
    tracemalloc.start()
    try:
        for number in range(100_000):
            lines.keep(line(number, 500))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 3 * COLLECTED
    page = lines.after(0)
    assert page.missed > 80_000
    assert numbers(page.lines)[0] == page.missed


@given(st.lists(st.tuples(st.sampled_from([10, 20, 30]), st.sampled_from(["n1", "n2"]), st.integers(0, 30_000))))
def test_page_by_page_a_reader_gets_each_wanted_line_once_and_in_order(told: list[tuple[int, str, int]]) -> None:
    lines = CollectedLines(most=1 << 30)
    for number, (level, node, size) in enumerate(told):
        lines.keep(line(number, size, level, node))
    found: list[int] = []
    page = lines.after(0, at_least(20, "n2"))
    found += numbers(page.lines)
    while not page.is_last:
        page = lines.after(page.cursor, at_least(20, "n2"))
        found += numbers(page.lines)
    assert found == [i for i, (level, node, _) in enumerate(told) if level >= 20 and node == "n2"]
    assert page.cursor == len(told)


def test_a_reader_waits_for_a_line_that_is_wanted_and_not_for_others() -> None:
    lines, found = CollectedLines(), list[list[int]]()
    reader = threading.Thread(target=lambda: found.append(numbers(lines.after(0, at_least(30), wait=60.0).lines)))
    reader.start()
    lines.keep(line(1, level=20))
    lines.keep(line(2, level=30))
    assert eventually(lambda: bool(found))
    reader.join()
    assert found == [[2]]


def test_a_reader_does_not_wait_for_a_run_that_is_over() -> None:
    lines = CollectedLines()
    reader = threading.Thread(target=lambda: lines.after(0, wait=600.0))
    reader.start()
    lines.close()
    reader.join(60.0)
    assert not reader.is_alive()
    assert lines.is_closed


def test_the_line_about_dropped_lines_says_how_many() -> None:
    said = dropped_line(1.0, 1234, {"node": "n2"})
    assert said.message.startswith("1,234 log lines were dropped here")
    assert said.fields == {"node": "n2"}
