"""`seep doctor`: one line for each check, and an exit code; on checks that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from primitives.errors import EnvironmentFault
from seep.cli import doctor
from seep.cli.app import app
from seep.spark import session
from seep.spark.preflight import PreflightCheck, PreflightVerdict

WELL = PreflightCheck("Java", PreflightVerdict.OK, "Java 17")
DOUBTFUL = PreflightCheck("memory", PreflightVerdict.WARN, "0.5 GiB free; ask for fewer nodes")
BAD = PreflightCheck("task slots", PreflightVerdict.FAIL, "2 task slots; ask for fewer nodes")


class Machine:
    """What the checks find, and what they were asked."""

    def __init__(
        self, before: list[PreflightCheck], after: list[PreflightCheck], fault: EnvironmentFault | None = None
    ) -> None:
        self.before, self.after, self.fault = before, after, fault
        self.asked: list[Any] = []

    def before_start(self, nodes: int) -> list[PreflightCheck]:
        self.asked.append(nodes)
        return self.before

    @contextmanager
    def open_session(self, **given: Any) -> Iterator[Any]:
        self.asked.append(given["master"])
        if self.fault:
            raise self.fault
        yield SimpleNamespace(context=SimpleNamespace(master="local[64]"))

    def of_session(self, _: Any, nodes: int, settled: float) -> list[PreflightCheck]:
        assert settled > 0
        self.asked.append(nodes)
        return self.after

    def examined(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
        monkeypatch.setattr(doctor, "before_start", self.before_start)
        monkeypatch.setattr(doctor, "of_session", self.of_session)
        monkeypatch.setattr(session, "open_session", self.open_session)
        return CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)


def test_every_check_is_a_line_and_doubts_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Machine([WELL, DOUBTFUL], [WELL]).examined(monkeypatch)
    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        "ok   Java       Java 17",
        "warn memory     0.5 GiB free; ask for fewer nodes",
        "ok   Spark      starts at local[64]",
        "ok   Java       Java 17",
    ]


def test_a_failed_check_of_the_session_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Machine([WELL], [WELL, BAD]).examined(monkeypatch)
    assert answer.exit_code == 1
    assert answer.output.splitlines()[-1] == "fail task slots 2 task slots; ask for fewer nodes"


def test_spark_is_not_started_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([BAD, WELL], [WELL])
    answer = machine.examined(monkeypatch, "--nodes", "7")
    assert answer.exit_code == 1
    assert len(answer.output.splitlines()) == 2
    assert machine.asked == [7]


def test_a_session_that_does_not_start_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Machine([WELL], [], EnvironmentFault("no master answers at spark://x:1")).examined(monkeypatch)
    assert answer.exit_code == 1
    assert answer.output.splitlines()[-1] == "fail Spark      no master answers at spark://x:1"


def test_nodes_on_a_cluster_take_no_memory_here(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([WELL], [WELL])
    machine.examined(monkeypatch, "--master", "spark://x:1", "--nodes", "7")
    assert machine.asked == [0, "spark://x:1", 7]
