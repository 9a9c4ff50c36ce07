"""Ctrl-C at real runs: the first one ends them in an orderly way, the second one at once; with the right exit codes."""

from __future__ import annotations

import re
import signal
import sys

from tests.cli.command import seep, started

QUERIES = "tests/cli/interrupted.py"
SCRIPT = (sys.executable, "-m", "tests.cli.interrupted")


def numbers_of(pattern: str, text: str) -> list[int]:
    found = re.search(pattern, text)
    assert found, text
    return [int(number.replace(",", "")) for number in found.groups()]


def test_the_first_ctrl_c_at_seep_run_finishes_what_was_read_and_shows_what_was_collected() -> None:
    with seep("run", f"{QUERIES}:quick") as command:
        command.lines_until("rows/s")
        command.press_ctrl_c()
        code, output = command.end()
        assert command.processes() == []
    assert code == 0, output
    assert "ending the input and finishing what was read; Ctrl-C again stops at once" in output
    read, *_ = numbers_of(r"([\d,]+) rows in ", output)
    assert numbers_of(r"out: 1 row\nkey +n\n0 +(\d+)\n", output) == [read]


def test_the_second_ctrl_c_at_seep_run_stops_at_once() -> None:
    with seep("run", f"{QUERIES}:endless") as command:
        command.lines_until("rows/s")
        command.press_ctrl_c()
        command.lines_until("Ctrl-C again stops at once")
        command.press_ctrl_c()
        code, output = command.end()
        assert command.processes() == []
    assert (code, output.splitlines()[-1]) == (130, "stopped")


def test_the_first_ctrl_c_at_a_script_that_waits_lets_it_go_on_when_the_run_has_finished() -> None:
    with started(*SCRIPT, "quick") as command:
        command.lines_until("waiting")
        command.press_ctrl_c()
        code, output = command.end()
        assert command.processes() == []
    assert code == 0, output
    assert "Ctrl-C again stops at once" in output
    read, counted = numbers_of(r"rows read: (\d+), counted: (\d+), finished", output)
    assert read == counted > 0


def test_the_second_ctrl_c_at_a_script_that_waits_stops_the_run_and_the_script() -> None:
    with started(*SCRIPT, "endless") as command:
        command.lines_until("waiting")
        command.press_ctrl_c()
        command.lines_until("Ctrl-C again stops at once")
        command.press_ctrl_c()
        code, output = command.end()
        assert command.processes() == []
    assert code == -signal.SIGINT, output
    assert output.splitlines()[-1] == "KeyboardInterrupt"
    assert numbers_of(r"counted: (\d+), stopped", output) == [0]
