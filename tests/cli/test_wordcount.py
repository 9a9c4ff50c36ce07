"""`seep wordcount` on real processes: right counts whatever happens to its nodes, and nothing left behind."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.command import seep


@pytest.mark.acceptance
def test_counts_are_right_though_two_nodes_are_killed(tmp_path: Path) -> None:
    chaos = "kill:counter@2s,kill:splitter@5s"
    arguments = ("--seconds", "8", "--rate", "5000", "--chaos", chaos, "--report", str(tmp_path / "r.json"))
    with seep("wordcount", *arguments) as command:
        code, output = command.end()
        assert command.processes() == []
    assert code == 0, output
    assert "counts: equal" in output
    report = json.loads((tmp_path / "r.json").read_text())
    assert {each["instance"] for each in report["summary"]["recoveries"]} >= {"counter[0]", "splitter[0]"}
    assert [each["kind"] for each in report["events"]].count("killed") == 2
    assert report["summary"]["rows"] > 10_000
    assert len(report["series"]) > 10


def test_ctrl_c_ends_the_input_and_the_counts_of_what_was_read_are_right() -> None:
    with seep("wordcount", "--seconds", "600", "--rate", "5000") as command:
        command.lines_until("rows/s")
        command.press_ctrl_c()
        code, output = command.end()
        assert command.processes() == []
    assert code == 0, output
    assert "Ctrl-C again stops at once" in output
    assert "counts: equal" in output


def test_no_node_is_given_up_because_the_driver_stood_still() -> None:
    with seep("wordcount", "--seconds", "4", "--rate", "5000") as command:
        command.lines_until("rows/s")
        command.process.send_signal(signal.SIGSTOP)
        time.sleep(4.0)  # longer than a node may be silent
        command.process.send_signal(signal.SIGCONT)
        code, output = command.end()
    assert code == 0, output
    assert "node lost" not in output
    assert "counts: equal" in output


@pytest.mark.acceptance
def test_being_terminated_stops_at_once_and_leaves_no_process() -> None:
    with seep("wordcount", "--seconds", "600", "--rate", "5000") as command:
        command.lines_until("rows/s")
        command.process.send_signal(signal.SIGTERM)
        code, output = command.end()
        assert command.processes() == []
    assert code == 130, output
    assert output.endswith("stopped\n")
