"""`seep wordcount` on real processes: right counts whatever happens to its nodes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PATIENCE = 240


class Command:
    """A running `seep`, whose processes all carry a mark in their environment."""

    def __init__(self, *arguments: str) -> None:
        self._mark = f"SEEP_TEST_MARK={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from seep.cli import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {name: value},
            start_new_session=True,
        )

    def press_ctrl_c(self) -> None:
        """As a terminal does it: all processes in the foreground hear of it, those of Spark too."""
        os.killpg(self.process.pid, signal.SIGINT)

    def lines_until(self, word: str) -> list[str]:
        """What it says up to a line with a word."""
        lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line)
            if word in line:
                return lines
        raise AssertionError(f"{word!r} was never said:\n{''.join(lines)}")

    def end(self) -> tuple[int, str]:
        """Its exit code and the rest of what it says."""
        output, _ = self.process.communicate(timeout=_PATIENCE)
        return self.process.returncode, output

    def processes(self) -> list[int]:
        """Its processes that are alive, itself and those of Spark."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and self._marked(entry)]

    def _marked(self, entry: Path) -> bool:
        try:
            return self._mark.encode() in (entry / "environ").read_bytes()
        except OSError:  # it has ended, or is not ours
            return False


@contextmanager
def seep(*arguments: str) -> Iterator[Command]:
    command = Command(*arguments)
    try:
        yield command
    finally:
        for number in command.processes():
            os.kill(number, signal.SIGKILL)
        command.process.wait()


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
