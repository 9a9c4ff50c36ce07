"""Every check before a run, for better and for worse: what is wrong is named, and what to do about it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkConf

from primitives.errors import EnvironmentFault, UserError
from seep.spark import namesakes
from seep.spark.address import is_loopback, node_host
from seep.spark.capacity import Capacity, await_capacity
from seep.spark.java import check_java
from seep.spark.preflight import (
    PreflightCheck,
    PreflightFinding,
    PreflightVerdict,
    PreflightWarning,
    before_start,
    check_disk,
    check_memory,
    check_packages,
    check_port,
    check_pyspark,
    check_python,
    check_settings,
    check_slots,
    raise_first,
)
from seep.spark.session import _context_of, open_session


def fake_java(directory: Path, says: str) -> Path:
    """A `java` that says this of its version."""
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


def test_this_machine_has_what_a_local_run_needs() -> None:
    verdicts = {check.name: check.verdict for check in before_start(nodes=1)}
    assert verdicts["Java"] is verdicts["pyspark"] is PreflightVerdict.OK
    assert PreflightVerdict.FAIL not in verdicts.values()


def test_a_java_that_is_too_old_is_named_with_what_is_needed(tmp_path: Path) -> None:
    program = fake_java(tmp_path, 'openjdk version "11.0.22" 2024-01-16')
    with pytest.raises(EnvironmentFault, match=r"is Java 11, and Spark needs 17 or newer"):
        check_java({"PATH": str(program.parent)})


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "21.0.2"')
    assert check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}).startswith("Java 21 ")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PATH": "/nowhere"}, "no Java on the PATH, and JAVA_HOME is not set; install Java 17"),
        ({"JAVA_HOME": "/nowhere", "PATH": os.environ["PATH"]}, "JAVA_HOME is '/nowhere'.*mend it or unset it"),
    ],
)
def test_a_java_that_is_not_there_is_told_with_where_it_was_looked_for(
    environment: dict[str, str], message: str
) -> None:
    with pytest.raises(EnvironmentFault, match=message):
        check_java(environment)


def test_a_java_that_says_nothing_of_its_version_will_not_do(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "hello")
    with pytest.raises(EnvironmentFault, match="says nothing of a version"):
        check_java({"PATH": str(program.parent)})


@pytest.mark.parametrize(("settled", "counted"), [(0.0, 1), (1.0, 3)])
def test_executors_are_counted_as_they_come_until_no_more_do(settled: float, counted: int) -> None:
    """One has room enough, and two more come at the next looks."""
    coming = iter([1, 2, 3])
    last = [0]

    def look(_: object) -> Capacity:
        last[0] = next(coming, last[0])
        return Capacity(executors=last[0], slots=4 * last[0], busy=0)

    assert await_capacity(None, 4, 60.0, settled, look).executors == counted  # type: ignore[arg-type]


def test_executors_that_do_not_come_are_waited_for_no_longer_than_said() -> None:
    assert await_capacity(None, 4, 0.3, 60.0, lambda _: Capacity(1, 2, 0)).free == 2  # type: ignore[arg-type]


FULL = Capacity(executors=2, slots=4, busy=3)


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (lambda: check_pyspark("3.5.1"), EnvironmentFault, "pip install"),
        (lambda: check_memory(8, 1 << 30), PreflightWarning, "1.0 GiB free, and 8 nodes take 2.0 GiB"),
        (lambda: check_memory(8, None), PreflightWarning, "not known"),
        (lambda: check_port("192.0.2.77"), EnvironmentFault, "SPARK_LOCAL_IP"),
        (lambda: check_disk("/nowhere"), EnvironmentFault, "TMPDIR"),
        (lambda: check_slots(FULL, 2, False), EnvironmentFault, r"3 busy, 1 free; 2 nodes need one each.*--nodes"),
        (lambda: check_slots(FULL, 2, True), PreflightWarning, "wait until Spark has allocated more"),
        (lambda: check_python(PreflightFinding("w1", "3.11.2", ("numba",))), EnvironmentFault, "on w1 lacks numba"),
    ],
)
def test_a_check_that_does_not_pass_says_what_to_do(
    check: Callable[[], str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"spark.task.cpus": "2"}, PreflightWarning),
        ({"spark.python.worker.killOnIdleTimeout": "true"}, EnvironmentFault),
        ({"spark.speculation": "true", "spark.speculation.task.duration.threshold": "1min"}, PreflightWarning),
        ({"spark.task.resource.gpu.amount": "1"}, PreflightWarning),
        ({"spark.executor.pyspark.memory": "1g"}, PreflightWarning),
    ],
)
def test_a_setting_that_harms_nodes_is_named(settings: dict[str, str], error: type[Exception]) -> None:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with pytest.raises(error, match=next(reversed(settings)).removesuffix(".amount").split(".gpu")[0]):
        check_settings(conf)


def test_plain_settings_pass() -> None:
    assert "nothing" in check_settings(SparkConf(loadDefaults=False))


def test_the_first_failure_is_raised_and_warnings_are_not() -> None:
    warning, failure = (
        PreflightCheck("disk", PreflightVerdict.WARN, "little"),
        PreflightCheck("Java", PreflightVerdict.FAIL, "none"),
    )
    raise_first([warning])
    with pytest.raises(EnvironmentFault, match="Java: none"):
        raise_first([warning, failure])


def test_a_connect_session_is_refused_with_what_to_make_instead() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(UserError, match=r"nodes need the classic driver.*without remote"):
        _context_of(connect, None)


def test_a_master_that_does_not_answer_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so nobody else listens there
        with pytest.raises(EnvironmentFault, match=r"no Spark master answers at spark://127\.0\.0\.1"):
            open_session(master=f"spark://127.0.0.1:{taken.getsockname()[1]}")


def test_a_master_of_no_known_kind_is_told_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    with pytest.raises(UserError, match=r"no master 'mesos://x'.*local\[n\]"):
        open_session(master="mesos://x")


def test_a_node_listens_where_the_route_to_the_driver_begins() -> None:
    assert node_host("127.0.0.5", {}) == "127.0.0.1"
    assert node_host("127.0.0.5", {"SPARK_LOCAL_IP": "127.0.0.9"}) == "127.0.0.9"


def test_a_driver_whose_name_means_nothing_here_is_told() -> None:
    with pytest.raises(EnvironmentFault, match=r"no-such-host\.invalid"):
        node_host("no-such-host.invalid", {})
    assert not is_loopback("no-such-host.invalid")


def test_packages_of_others_are_a_fault_where_they_hide_ours_and_else_a_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namesakes, "sharing", lambda: ["policies 0.4.2 (policies)"])
    with pytest.raises(PreflightWarning, match=r"ours, but policies 0\.4\.2"):
        check_packages()
    monkeypatch.setattr(namesakes, "foreign", lambda: ["`import policies` gives another one"])
    with pytest.raises(EnvironmentFault, match="gives another one"):
        check_packages()
