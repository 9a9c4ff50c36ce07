"""Every query gives what Spark SQL works out from the same log: in and out of order, and whatever happens to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import seep
from nexmark.driver import in_order
from nexmark.generator import EventSettings
from nexmark.log import log
from nexmark.queries import QUERIES
from nexmark.schema import LOG
from nexmark.source import LoggedEvents
from nexmark.spark_source import EventOptions, register
from primitives.errors import UserError
from seep import sinks, testing
from seep.running.run import Run
from seep.spark.session import Host, open_session
from seep.storage.settings import StorageSettings
from tests.nexmark.kit import EVENTS, SHORT, SIZES, Logs, calmly, query_on, roughly, stateful, write_logs
from tests.nexmark.oracle import Oracle

Expected = Callable[[str], pa.Table]

#: Seconds that anything may take on a busy machine.
PATIENCE = 120.0


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with open_session(SparkContext._active_spark_context, name="tests", slots_needed=32) as host:
        yield host


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    return write_logs(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def expected(host: Host, logs: Logs) -> Expected:
    """The result of a query, as the oracle has it; both logs have the same events."""
    oracle = Oracle(SparkSession(host.context), logs.ordered, SHORT)
    return cache(lambda name: in_order(oracle.result(name)))


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.names == expected.schema.names
    assert len(found) == len(expected) > 0
    assert found.equals(expected.cast(found.schema))


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_spark_gives(name: str, logs: Logs, expected: Expected) -> None:
    assert_same(calmly(name, logs.ordered), expected(name))


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "Q12"])
def test_disorder_losses_and_moves_change_nothing(name: str, logs: Logs, expected: Expected) -> None:
    assert_same(roughly(name, logs.disordered, seed=len(name)), expected(name))


def test_it_is_the_same_on_disk(logs: Logs, expected: Expected) -> None:
    query = QUERIES["NBQ8"].between(
        lambda wanted: LoggedEvents(wanted, logs.disordered), sinks.collect(), **SIZES["NBQ8"], on_disk=True
    )
    assert_same(in_order(testing.run(query, parallelism={"new-sellers": 2})["out"]), expected("NBQ8"))


def test_windows_of_arrival_go_by_the_order_of_the_log(host: Host, logs: Logs) -> None:
    oracle = Oracle(SparkSession(host.context), logs.disordered)
    assert_same(roughly("Q12", logs.disordered, seed=1), in_order(oracle.result("Q12")))


# --- the events as a source of Spark ----------------------------------------------------------------------------------


def test_spark_reads_the_events_as_a_table_and_as_a_stream(host: Host, tmp_path: Path) -> None:
    spark = SparkSession(host.context)
    register(spark)
    options = {"events": 3_000, "rate": 500, "partitions": 2, "outOfOrder": 100, "eventsPerBatch": 1_700, "seed": 9}
    expected = pa.Table.from_batches(log(EventSettings(rate=500, group=100, seed=9), 3_000), LOG)
    assert in_order(spark.read.format("nexmark").options(**options).load().toArrow()).equals(in_order(expected))
    stream = spark.readStream.format("nexmark").options(**options).load()
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    for _ in range(2):  # a batch each
        writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer.trigger(once=True).start(out).awaitTermination()
    assert in_order(spark.read.parquet(out).toArrow()).equals(in_order(expected))


@pytest.mark.parametrize("wrong", [{"events": "many"}, {"partitions": "0"}, {"rate": "-1"}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UserError):
        EventOptions.of(wrong)


# --- on real processes ------------------------------------------------------------------------------------------------

#: What befalls the operators with state, one after the other.
HAPPENINGS = ("kill", "scale", "migrate", "restore")
#: What is tried in every test run; the rest are acceptance tests.
SOME = {("Q4", "kill"), ("Q5", "scale"), ("Q11", "restore")}


def marked(name: str, what: str) -> Any:
    return pytest.param(name, what, marks=[] if (name, what) in SOME else pytest.mark.acceptance)


@pytest.mark.parametrize(("name", "what"), [marked(name, what) for name in QUERIES for what in HAPPENINGS])
def test_nothing_that_befalls_real_processes_changes_anything(
    name: str, what: str, host: Host, logs: Logs, expected: Expected, tmp_path: Path
) -> None:
    log = logs.ordered if name == "Q12" else logs.disordered
    if what == "restore":
        found = restored(name, host, log, tmp_path)
    else:
        found = befallen(name, what, host, log, tmp_path / "gate")
    assert_same(in_order(found), expected(name))


def options(name: str, log: Path) -> dict[str, Any]:
    """Of runs that read most of the log in some three seconds."""
    share = LoggedEvents(QUERIES[name].wanted, log).share()
    return {"rate": seep.Rate(share * EVENTS / 4), "nodes": 3, "spare": 1, "checkpoint": 0.5}


def befallen(name: str, what: str, host: Host, log: Path, gate: Path) -> pa.Table:
    query = query_on(name, log, gate=gate)
    with seep.launch(query, host.context, **options(name, log)) as run:
        until(run, lambda: run.status().committed > 10)
        for operator in stateful(query) or ["out"] * (what == "kill"):
            befall(run, what, operator)
        gate.touch()
        assert run.wait(PATIENCE)
        return run.result("out")


def befall(run: Run, what: str, operator: str) -> None:
    """Something happens to an operator, and is over."""
    if what == "kill":
        before = len(run.events.of("recovered"))
        run.kill(operator)
        until(run, lambda: len(run.events.of("recovered")) > before)
    elif what == "scale":
        before = len(run.events.of("scaled out"))
        run.scale(operator, 2)
        until(run, lambda: len(run.events.of("scaled out")) > before)
    else:
        migration = run.migrate(operator, 2, "batched", batch=32)
        until(run, lambda: migration.wait(0.1))


def restored(name: str, host: Host, log: Path, folder: Path) -> pa.Table:
    """A run is stopped after a savepoint, and another one, of other parallelism, goes on from it."""
    gate, out = folder / "gate", folder / "out"
    storage = StorageSettings(location=str(folder / "storage"))
    query = query_on(name, log, sinks.parquet(out), gate)
    with seep.launch(query, host.context, storage=storage, **options(name, log)) as run:
        until(run, lambda: run.status().committed > 10)
        run.savepoint()
    gate.touch()
    query = query_on(name, log, sinks.parquet(out), gate)
    again = {**options(name, log), "parallelism": dict.fromkeys(stateful(query_on(name, log)), 2)}
    with seep.launch(query, host.context, storage=storage, restore="latest", **again) as run:
        assert run.wait(PATIENCE)
    return sinks.read(out)


def until(run: Run, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert not run.finished, "the run is over before its time"
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
