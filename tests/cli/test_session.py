"""Sessions: a run from launch to report, and what interrupts do to it; on a run that is made up."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import seep
from primitives.errors import EnvironmentFault, UserError
from seep.cli import session as module
from seep.cli.display.view import ConsoleView, LogLines
from seep.cli.session import session
from seep.cli.settings import CommandSettings
from seep.record.events import NodeKilled
from seep.record.log import EventLog
from seep.record.report import make_report
from seep.record.status import Status
from seep.reports.summary import summary_lines
from seep.running.chaos import parse_chaos

Act = Callable[["FakeRun"], None]


class FakeRun:
    """A run that goes through a script: at each look at it, the next act."""

    def __init__(self, *acts: Act) -> None:
        self.events = EventLog(time.monotonic)
        self.placement: dict[str, str] = {}
        self.told: list[str] = []
        self.metrics_url: str | None = None
        self.dashboard_url: str | None = None
        self.dashboard_warning: str | None = None
        self._acts = iter(acts)

    def __enter__(self) -> FakeRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.told.append("stop")

    def wait(self, timeout: float) -> bool:  # noqa: ARG002
        act = next(self._acts, None)
        if act is not None:
            act(self)
        return act is None

    def status(self) -> Status:
        return Status(1.0, 2, 1, 100, 100.0, {}, (), 3, 1)

    def finish(self) -> None:
        self.told.append("finish")

    def kill(self, target: str) -> None:
        self.told.append(f"kill {target}")

    def signal(self, node: str, number: int) -> None:
        self.told.append(f"{signal.Signals(number).name} {node}")

    def report(self) -> dict[str, Any]:
        return make_report("q", self.events, (), rows=100, latency={}, largest_gap=0.0)


class FakeQuery:
    """Compiles to what a session looks at."""

    name = "q"

    def compile(self, **given: Any) -> Any:
        self.given = given
        return SimpleNamespace(parallelism={"counter": 2}, graph=SimpleNamespace(order=("lines", "counter")))


@pytest.fixture(autouse=True)
def _handlers_are_restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def start(monkeypatch: pytest.MonkeyPatch, run: FakeRun, **settings: Any) -> tuple[Any, io.StringIO]:
    launched: dict[str, Any] = {}

    def launch(_: object, **given: Any) -> FakeRun:
        launched.update(given)
        given["progress"]("starting Spark")
        return run

    monkeypatch.setitem(vars(seep), "launch", launch)
    written = io.StringIO()
    return session(FakeQuery(), CommandSettings(**settings), LogLines(Console(file=written, width=200))), written  # type: ignore[arg-type]


def press_ctrl_c(_: FakeRun) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def terminate(_: FakeRun) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def nothing(_: FakeRun) -> None:
    pass


def test_a_run_is_followed_to_its_end_and_stopped_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, written = start(monkeypatch, FakeRun(nothing, lambda run: run.events.add(NodeKilled(node="n1")), nothing))
    with opened as run:
        assert run.told == []
    assert run.told == ["stop"]
    assert "starting Spark" in written.getvalue()
    assert "killed n1" in written.getvalue()


def test_events_of_the_last_moment_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends(FakeRun):
        def wait(self, timeout: float) -> bool:  # noqa: ARG002
            self.events.add(NodeKilled(node="n2"))
            return True

    opened, written = start(monkeypatch, Ends())
    with opened:
        assert "killed n2" in written.getvalue()


def test_the_first_ctrl_c_lets_the_run_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, written = start(monkeypatch, FakeRun(press_ctrl_c, nothing, nothing))
    with opened as run:
        assert run.told == ["finish"]
    assert "Ctrl-C again stops at once" in written.getvalue()


def test_the_second_ctrl_c_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(press_ctrl_c, press_ctrl_c, nothing)
    opened, _ = start(monkeypatch, run)
    with pytest.raises(KeyboardInterrupt), opened:
        pytest.fail("the run did not come to its end")
    assert run.told == ["finish", "stop"]


def test_being_terminated_stops_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(terminate, nothing)
    opened, _ = start(monkeypatch, run)
    with pytest.raises(KeyboardInterrupt), opened:
        pytest.fail("the run did not come to its end")
    assert run.told == ["stop"]


def test_nothing_interrupts_the_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(FakeRun):
        def __exit__(self, *_: object) -> None:
            press_ctrl_c(self)
            terminate(self)
            super().__exit__()

    opened, _ = start(monkeypatch, Stubborn())
    with opened as run:
        pass
    assert run.told == ["stop"]


def test_the_report_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened, _ = start(monkeypatch, FakeRun(), report=tmp_path / "r.json")
    with opened as run:
        pass
    assert json.loads((tmp_path / "r.json").read_text()) == run.report()


def test_the_report_is_written_of_a_run_that_fails_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_: FakeRun) -> None:
        raise UserError("no")

    run = FakeRun(fail)
    opened, _ = start(monkeypatch, run, report=tmp_path / "r.json")
    with pytest.raises(UserError, match="no"), opened:
        pytest.fail("the run did not come to its end")
    assert (tmp_path / "r.json").exists()
    assert run.told == ["stop"]


def test_a_report_that_cannot_be_written_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened, _ = start(monkeypatch, FakeRun(), report=tmp_path)
    with pytest.raises(EnvironmentFault, match="cannot be written: Is a directory"), opened:
        pass


def test_chaos_is_dealt_and_what_comes_too_late_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Struck(FakeRun):
        def wait(self, timeout: float) -> bool:  # noqa: ARG002
            return "kill counter[1]" in self.told

    opened, written = start(monkeypatch, Struck(), strikes=parse_chaos("kill:counter[1]@1ms,kill:lines@1h"))
    with opened:
        pass
    assert "never dealt, as the run was over before: kill:lines@3600s" in written.getvalue()


def test_chaos_against_what_the_query_does_not_have_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, written = start(monkeypatch, FakeRun(), strikes=parse_chaos("kill:counter[2]@1s"))
    with pytest.raises(UserError, match="counter has 2 instances"), opened:
        pytest.fail("the run began")
    assert written.getvalue() == ""


def test_where_metrics_are_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(nothing, nothing)
    run.metrics_url = "http://127.0.0.1:9400/metrics"
    running, written = start(monkeypatch, run)
    with running:
        pass
    assert written.getvalue().count("metrics at http://127.0.0.1:9400/metrics\n") == 1


def test_where_the_dashboard_is_and_who_can_listen_in_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(nothing, nothing)
    run.dashboard_url, run.dashboard_warning = "http://0.0.0.0:8042/login?code=x", "others can listen in"
    running, written = start(monkeypatch, run)
    with running:
        pass
    assert written.getvalue().count("dashboard at http://0.0.0.0:8042/login?code=x\n") == 1
    assert written.getvalue().count("warning: others can listen in\n") == 1


def test_where_metrics_are_pushed_to_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from seep.driver.options import RunOptions
    from seep.metrics.settings import metrics_settings

    options = RunOptions(metrics=metrics_settings({"otlp": {"url": "http://127.0.0.1:4318"}}))
    running, written = start(monkeypatch, FakeRun(nothing, nothing), options=options)
    with running:
        pass
    assert written.getvalue().count("metrics and traces are pushed to http://127.0.0.1:4318\n") == 1


def test_what_the_settings_say_reaches_compiler_and_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    from seep.driver.options import RunOptions
    from seep.rows.rate import Rate

    launched: dict[str, Any] = {}

    def launch(_: object, **given: Any) -> FakeRun:
        launched.update(given)
        return FakeRun()

    monkeypatch.setitem(vars(seep), "launch", launch)
    settings = CommandSettings(
        "local[9]", RunOptions(epoch=0.02, spare=3, tls=(Path("c"), Path("k"))), {"counter": 4}, Rate(5.0)
    )
    query = FakeQuery()
    with session(query, settings, ConsoleView(Console(file=io.StringIO()))):  # type: ignore[arg-type]
        pass
    given = {"parallelism": {"counter": 4}, "epoch_seconds": 0.02, "rate": Rate(5.0), "resume": None}
    assert query.given == given
    assert (launched["master"], launched["spare"], launched["tls"]) == ("local[9]", 3, (Path("c"), Path("k")))


def test_a_summary_is_told_in_lines() -> None:
    recovery = {
        "instance": "counter[0]",
        "seconds": 0.41,
        "detected": 0.06,
        "restored": 0.24,
        "replayed": 0.11,
        "at": 5.0,
    }
    scaling = {"operator": "counter", "before": 1, "after": 2, "at": 16.1, "seconds": 1.6, "latency_peak": 0.525}
    summary = {
        "rows": 600_000,
        "seconds": 30.0,
        "rows_per_second": 20_000.0,
        "epochs": 601,
        "latency": {"p50": 0.031, "p99": 0.06},
        "largest_gap": 0.5,
        "recoveries": [recovery],
        "scalings": [scaling],
        "vms": {"vm-1": 30.0, "vm-2": 12.0},
        "vm_seconds": 42.0,
        "counters": {"late": 3, "dead_letters": 0},
    }
    assert list(summary_lines({"summary": summary})) == [
        "600,000 rows in 30.0 s: 20,000 rows/s on average, 601 epochs",
        "latency: p50 31.0 ms, p99 60.0 ms",
        "longest time between two commits: 500 ms",
        "recovered counter[0] in 410 ms (detected 60.0 ms, restored 240 ms, replayed 110 ms)",
        "scaled counter from 1 to 2 instances at 16.1 s in 1.60 s, latency up to 525 ms",
        "2 VMs for 42 s together",
        "late: 3",
    ]


def test_counters_that_are_no_more_than_lower_bounds_are_told_as_such() -> None:
    run = {"rows": 1, "seconds": 1.0, "rows_per_second": 1.0, "epochs": 1, "latency": {}, "largest_gap": 0.0}
    came = {"recoveries": [], "scalings": [], "vms": {}, "vm_seconds": 0.0, "counters": {"late": 1200}}
    told = {
        is_exact: list(summary_lines({"summary": run | came | {"counters_exact": is_exact}})) for is_exact in (0, 1)
    }
    assert (told[False][-1], told[True][-1]) == ("late: at least 1,200", "late: 1,200")


def test_a_look_at_a_run_is_taken_several_times_a_second() -> None:
    assert module._LOOK <= 0.5
