"""Views: what is shown of a run on a terminal, in a log, and to those who want quiet."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from primitives.graph import InstanceId
from seep.cli.display import view as module
from seep.cli.display.view import ConsoleView, LiveTable, LogLines, event_line, status_line, view_for
from seep.protocol.events import StateRestored
from seep.record.events import InstanceRecovered, NodeKilled, RunFailed
from seep.record.status import InstanceStatus, Status

KILLED = NodeKilled(node="n2", hosted=(InstanceId("counter", 0),), at=5.021)
RECOVERED = InstanceRecovered(
    subject=InstanceId("counter", 0), seconds=0.41, detected=0.061, restored=0.1, replayed=0.249, at=5.43
)
RESTORED = StateRestored(subject=InstanceId("counter", 0), epoch=40, at=5.3)
FAILED = RunFailed(why="boom", at=6.0)
COUNTER = InstanceStatus("counter[0]#1", "counter", "n2", "running", 40, 1_200_000, 0, 1.5, 0.34, 0, 3 << 20, 0, {})
STATUS = Status(
    12.3, 42, 40, 240_000, 20_013.4, {"p50": 0.031, "p95": 0.0525, "p99": 0.06, "max": 0.41}, (COUNTER,), 5, 1
)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=terminal, width=120, color_system=None), written


def test_a_status_is_one_line_of_figures() -> None:
    assert status_line(STATUS) == (
        "  12.30 s  20,013 rows/s; latency p50 31.0 ms, p95 52.5 ms, p99 60.0 ms, max 410 ms; "
        "2 epochs in flight; 1 instance on 4 nodes (1 idle)"
    )


def test_a_status_tells_the_imbalance_of_operators_that_are_balanced() -> None:
    status = replace(STATUS, imbalance={"counter": 2.4, "map": 1.3}, balanced=("counter",))
    assert status_line(status) == status_line(STATUS) + "; fullest counter 2.40 times the mean"


def test_a_status_tells_how_many_instances_are_still_being_restored() -> None:
    restoring = replace(COUNTER, phase="restoring")
    status = replace(STATUS, instances=(COUNTER, restoring, restoring))
    assert status_line(status).endswith("3 instances on 4 nodes (1 idle); 2 instances without state yet")


def test_an_event_is_one_line_with_its_time() -> None:
    assert event_line(KILLED).plain == "   5.02 s  killed n2 with counter[0]"
    assert (
        event_line(RECOVERED).plain
        == "   5.43 s  recovered counter[0] in 0.410 s (detected 0.061, restored 0.100, replayed 0.249)"
    )


def test_a_log_has_each_event_once_and_no_more_than_a_status_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.0, 0.5, 1.1, 1.1]).__next__
    monkeypatch.setattr(module.time, "monotonic", now)
    out, written = console(terminal=False)
    with LogLines(out) as view:
        view.step("starting Spark")
        view._next = -1.0
        view.happen(KILLED)
        view.show(STATUS)
        view.show(STATUS)
        view.happen(RECOVERED)
        view.show(STATUS)
    told = [line.split()[2] for line in written.getvalue().splitlines()[1:]]
    assert told == ["killed", "20,013", "recovered", "20,013"]


@pytest.mark.parametrize(("verbose", "shown"), [(False, ["killed"]), (True, ["killed", "restored"])])
def test_details_are_for_those_who_ask(verbose: bool, shown: list[str]) -> None:
    out, written = console(terminal=False)
    view = LogLines(out, verbose)
    for event in (KILLED, RESTORED, FAILED):
        view.happen(event)
    view.flush()
    assert [line.split()[2] for line in written.getvalue().splitlines()] == shown


def test_a_board_shows_every_instance_and_leaves_only_events_and_words() -> None:
    out, written = console(terminal=True)
    with LiveTable(out) as view:
        view.step("starting Spark")
        view.happen(KILLED)
        view.show(STATUS)
        view._live.refresh()
        drawn = written.getvalue()
    assert "counter[0]#1" in drawn
    assert "3.0 MiB" in drawn
    assert "34%" in drawn
    assert written.getvalue().count("killed n2 with counter[0]") == 1


def test_names_with_brackets_are_no_markup() -> None:
    out, written = console(terminal=False)
    ConsoleView(out).say("checked counter[bold][0] [/]")
    assert written.getvalue() == "checked counter[bold][0] [/]\n"


def test_quiet_shows_what_is_said_and_nothing_else() -> None:
    out, written = console(terminal=True)
    with view_for(out, quiet=True, verbose=True) as view:
        view.step("starting Spark")
        view.happen(KILLED)
        view.show(STATUS)
        view.flush()
        view.say("the end")
    assert written.getvalue() == "the end\n"


@pytest.mark.parametrize(("terminal", "kind"), [(True, LiveTable), (False, LogLines)])
def test_the_view_suits_where_the_output_goes(terminal: bool, kind: type[ConsoleView]) -> None:
    assert type(view_for(console(terminal)[0], quiet=False, verbose=False)) is kind
