"""`seep top` attaches to a run of another process, sees it heal, and ends with it; who leaves does not affect it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seep.rows.rate import Rate
from seep.running.remote_control import listed
from seep.spark.session import Host
from tests.cli.command import seep
from tests.cli.terminal import on_terminal
from tests.runtime.counting import committed, counting, expected, found, recovered, start, wait_until

TOP = [sys.executable, "-c", "from seep.cli import main; main()", "top"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of this test's runs is its own."""
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))


def test_a_run_is_watched_from_other_processes_through_a_loss_until_it_ends(host: Host) -> None:
    steps: list[str] = []
    with (
        start(host, counting(), spare=1, rate=Rate(2000), progress=steps.append) as run,
        seep("top", run.id, "--json", "--interval", "0.2") as lines,
        on_terminal(*TOP, "counting", "--interval", "0.2") as screen,
        on_terminal(*TOP, run.id) as left,
        on_terminal(*TOP, run.id) as interrupted,
    ):
        committed(run, 20)
        screen.shows(f"run {run.id} of counting: running")
        screen.shows("healthy: nothing is wrong")
        screen.shows("counter[0]#0")
        left.shows("newest events")
        left.press(b"x")
        left.press(b"q")
        assert left.end() == 0, left.text
        assert f"run {run.id} of counting goes on" in left.text
        interrupted.shows("newest events")
        interrupted.process.send_signal(signal.SIGINT)
        assert interrupted.end() == 0, interrupted.text
        assert f"run {run.id} of counting goes on" in interrupted.text
        lost = run.placement["counter[0]"]
        run.kill("counter[0]")
        recovered(run)
        screen.shows(f"! node {lost} was lost")
        screen.shows("counter[0]#1")
        once = subprocess.run([*TOP, run.id, "--once"], capture_output=True, text=True, timeout=120, check=False)
        piped = subprocess.run([*TOP, run.id], capture_output=True, text=True, timeout=120, check=False)
        run.finish()
        run.wait(120.0)
        code, output = lines.end()
        assert screen.end() == 0, screen.text
        assert found(run) == expected(run), "who watches does not change the result"
    assert [step for step in steps if " of " in step][-1] == "4 of 4 nodes joined"
    assert steps[-1] == "starting the query"
    assert (once.returncode, once.stderr) == (0, "")
    assert f"node {lost} was lost" in once.stdout
    assert "! node" in once.stdout
    assert (piped.returncode, piped.stdout.count("open decisions")) == (0, 1)
    assert "this is one moment, because the output is not a terminal" in piped.stderr
    assert f"run {run.id} of counting is finished: all input is processed and committed" in screen.text
    assert code == 0, output
    moments = [json.loads(line) for line in output.splitlines()]
    assert [each["phase"] for each in moments][-1] == "finished"
    assert {each["phase"] for each in moments[:-1]} == {"running"}
    assert any(each["healthy"] for each in moments)
    assert any(f"node {lost} was lost" in sentence for each in moments for sentence in each["wrong"])
    times = [each["status"]["at"] for each in moments]
    assert times == sorted(times)
    assert max(each["status"]["rows_per_second"] for each in moments) > 0
    assert {each["state"] for each in moments[0]["status"]["hosts"]} <= {"used", "idle"}


def test_the_view_of_a_run_whose_driver_is_killed_ends_and_says_so() -> None:
    with seep("wordcount", "--quiet", "--seconds", "200", "--rate", "1000") as driver:
        wait_until(lambda: bool(listed()), 200.0)
        (run,) = listed()
        with on_terminal(*TOP, "wordcount", "--interval", "0.2") as screen:
            screen.shows(f"run {run.id} of wordcount: running")
            os.kill(driver.process.pid, signal.SIGKILL)
            driver.process.wait()
            assert screen.end() == 0, screen.text
    assert f"run {run.id} of wordcount has ended; how is not known, because its driver is gone" in screen.text
