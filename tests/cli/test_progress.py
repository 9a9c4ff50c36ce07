"""Progress of long work: a bar on a terminal, elsewhere a line for each tenth, and nothing of what is quick."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

from seep.cli.display.progress import ProgressBar, WaitingLine, with_bar


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=terminal, width=120, color_system=None), written


def test_without_a_terminal_there_is_a_line_for_each_tenth_of_work_that_takes_time() -> None:
    (out, written), clock = console(terminal=False), Clock()
    with ProgressBar("counter[0] slots", console=out, clock=clock) as bar:
        bar.reach(1_100, 10_000)
        clock.now = 3.0
        for done in range(1_100, 10_001, 100):
            bar.reach(done, 10_000)
    lines = written.getvalue().splitlines()
    assert lines[0] == "counter[0] slots: 10 %, 1,100 of 10,000"
    assert lines[1] == "counter[0] slots: 20 %, 2,000 of 10,000"
    assert lines[-1] == "counter[0] slots: 100 %, 10,000 of 10,000"
    assert len(lines) == 10


def test_of_quick_work_there_is_no_line() -> None:
    out, written = console(terminal=False)
    with ProgressBar("slots", console=out, clock=Clock()) as bar:
        bar.reach(0, 0)
        bar.reach(5, 10)
        bar.reach(10, 10)
    assert written.getvalue() == ""


def test_on_a_terminal_there_is_a_bar_and_it_is_removed_at_the_end() -> None:
    (out, written), clock = console(terminal=True), Clock()
    with ProgressBar("slots", console=out, clock=clock) as bar:
        clock.now = 3.0
        bar.reach(64, 256)
        bar._bar.refresh()
        drawn = written.getvalue()
    assert "slots" in drawn
    assert "64/256" in drawn
    assert "%, 64 of 256" not in drawn
    assert written.getvalue().endswith("\x1b[2K"), "the line of the bar is erased"


@pytest.mark.parametrize("terminal", [True, False])
def test_who_wants_quiet_gets_neither(terminal: bool) -> None:
    (out, written), clock = console(terminal), Clock()
    with ProgressBar("slots", quiet=True, console=out, clock=clock) as bar:
        clock.now = 3.0
        bar.reach(64, 256)
    assert written.getvalue() == ""


def test_batches_pass_a_bar_as_they_are() -> None:
    batches = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})]
    assert list(with_bar(batches, "rows", 3, quiet=True)) == batches


def test_without_a_terminal_a_wait_is_a_line_from_time_to_time_with_what_it_is_for() -> None:
    (out, written), clock = console(terminal=False), Clock()
    with WaitingLine("savepoint", console=out, clock=clock) as line:
        for second in range(13):
            clock.now = float(second)
            line.show("[3 epochs] in flight" if second else "")
    assert written.getvalue().splitlines() == [
        "savepoint: 2.00 s so far; [3 epochs] in flight",
        "savepoint: 7.00 s so far; [3 epochs] in flight",
        "savepoint: 12.0 s so far; [3 epochs] in flight",
    ]


def test_of_a_short_wait_there_is_no_line() -> None:
    (out, written), clock = console(terminal=False), Clock()
    with WaitingLine("savepoint", console=out, clock=clock) as line:
        clock.now = 1.9
        line.show("3 epochs in flight")
    assert written.getvalue() == ""


def test_on_a_terminal_a_wait_is_one_line_that_is_removed_at_the_end() -> None:
    (out, written), clock = console(terminal=True), Clock()
    with WaitingLine("savepoint", console=out, clock=clock) as line:
        clock.now = 3.0
        line.show("[3 epochs] in flight")
        line._line.refresh()
        drawn = written.getvalue()
    assert "savepoint: [3 epochs] in flight" in drawn
    assert "so far" not in drawn
    assert written.getvalue().endswith("\x1b[2K"), "the line is erased"
