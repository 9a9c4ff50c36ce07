"""DataFrames as sources on a real local Spark: what tasks push is read exactly once, whatever is lost or restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import seep
from seep.operators.definition import Input
from seep.runtime.run import Run
from seep.spark.inlet.keeper import COPIES
from seep.spark.inlet.pieces import PushedBatch
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import recovered, wait_until

FILES, ROWS = 12, 500
#: All that there is is taken, a file at a time.
BY_FILE = {"availableNow": True}


@pytest.fixture
def spark(host: Host) -> SparkSession:
    session = SparkSession(host.context)
    session.conf.set("spark.sql.shuffle.partitions", "3")
    return session


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory of small Parquet files with the numbers from 0 on."""
    directory = tmp_path / "files"
    directory.mkdir()
    for file in range(FILES):
        write_file(directory, file)
    return directory


@contextmanager
def start(host: Host, query: seep.Query, **options: Any) -> Iterator[Run]:
    """A run that leaves no node and no thread of its own behind; py4j keeps those on which Spark calls back."""
    threads = set(threading.enumerate())
    with seep.launch(query, host.context, **({"epoch": 0.02, "checkpoint": 0.3} | options)) as run:
        yield run
    assert not [node for node in run.manager_process.nodes.values() if node.process.alive()]
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not {name for name in left if name.startswith(("seep", "link", "Timer"))}


def write_file(directory: Path, file: int) -> None:
    numbers = range(file * ROWS, (file + 1) * ROWS)
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), directory / f"{file:03}.parquet")


def stream_of(spark: SparkSession, files: Path) -> DataFrame:
    return spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).parquet(str(files))


def passing(source: Any, **options: Any) -> seep.Query:
    """DataFrame -> collect"""
    query = seep.Query("passing")
    query.source("numbers", source, **options).sink("out", seep.sinks.collect())
    return query


def numbers_in(run: Run) -> list[int]:
    found: list[int] = run.result("out")["n"].to_pylist()
    return sorted(found)


def is_kept_twice(run: Run) -> bool:
    """Whether every piece that may be read again is on two live nodes."""
    news = run.manager_process.on_pushed({"directory": "numbers"})
    pieces = [piece for plain in news["batches"] for piece in PushedBatch.from_plain(plain).pieces if piece.rows]
    return all(len(set(piece.holders) & run.nodes.keys()) >= COPIES for piece in pieces)


def events_of(run: Run) -> str:
    return "\n".join(map(str, run.events))


# -- finite ------------------------------------------------------------------------------------------------------------


def test_a_finite_dataframe_is_read_exactly_with_sql_before_and_a_shuffle(host: Host, spark: SparkSession) -> None:
    df = spark.range(0, 20_000, 1, 3).where("id % 3 = 0").selectExpr("id as n").repartition(4)
    query = passing(seep.from_spark(df, ahead=30_000))
    with start(host, query) as run:
        assert run.wait(60), events_of(run)
        assert numbers_in(run) == list(range(0, 20_000, 3))
        assert run.rows_read == len(range(0, 20_000, 3))


def test_values_of_all_types_come_through_as_they_were(host: Host, spark: SparkSession) -> None:
    rows = [
        (1, True, "ä", b"\0", Decimal("1.50"), datetime(2026, 7, 1, 12, tzinfo=UTC), [1, None], {"a": 1}, (2, "x")),
        (None, None, None, None, None, None, None, None, None),
    ]
    schema = (
        "n int, yes boolean, text string, bytes binary, price decimal(10,2), at timestamp, list array<int>, "
        "map map<string, int>, struct struct<a: int, b: string>"
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with start(host, passing(seep.from_spark(spark.createDataFrame(rows, schema).coalesce(2)))) as run:
            assert run.wait(60), events_of(run)
            found = run.result("out")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    [whole, nothing] = sorted(found.to_pylist(), key=lambda row: row["n"] is None)
    assert set(nothing.values()) == {None}
    assert list(whole.values()) == [*rows[0][:7], [("a", 1)], {"a": 2, "b": "x"}]


def test_no_rows_at_all_are_an_end_too(host: Host, spark: SparkSession) -> None:
    with start(host, passing(seep.from_spark(spark.range(0, 0, 1, 1).selectExpr("id as n")))) as run:
        assert run.wait(60), events_of(run)
        assert numbers_in(run) == []


def test_event_time_closes_windows_though_some_partitions_bring_no_rows(host: Host, spark: SparkSession) -> None:
    df = spark.range(0, 4_000, 1, 1).selectExpr("id as at", "id % 2 as key")
    query = seep.Query("windows")
    rows = query.source("numbers", seep.from_spark(df, time="at", ahead=1))
    rows.key_by("key").window(seep.tumbling(1_000)).aggregate("counter", n=seep.count()).sink(
        "out", seep.sinks.collect()
    )
    with start(host, query) as run:
        assert run.wait(60), events_of(run)
        assert run.result("out")["n"].to_pylist() == [500] * 8


def test_what_fails_in_spark_fails_the_run_with_its_reason(host: Host, spark: SparkSession) -> None:
    df = spark.range(0, 100, 1, 2).selectExpr("if(id = 77, raise_error('no such number'), id) as n")
    with start(host, passing(seep.from_spark(df))) as run, pytest.raises(seep.UserError, match="no such number"):
        run.wait(60)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_of_files_is_read_exactly_and_ends_when_spark_says_so(
    host: Host, spark: SparkSession, files: Path
) -> None:
    source = seep.from_spark(stream_of(spark, files).where("n % 2 = 0"), trigger=BY_FILE)
    with start(host, passing(source)) as run:
        assert run.wait(60), events_of(run)
        assert numbers_in(run) == list(range(0, FILES * ROWS, 2))


def test_ingress_nodes_can_be_killed_one_after_the_other_while_spark_pushes(
    host: Host, spark: SparkSession, files: Path
) -> None:
    """The rate has most of what was pushed wait on the nodes; what the first loss left in one place is copied."""
    source = seep.from_spark(stream_of(spark, files), trigger=BY_FILE, ahead=5 * ROWS * 8)
    with start(host, passing(source, rate=1_500), nodes=3, spare=1) as run:
        for times in (1, 2):
            read = run.rows_read
            wait_until(lambda: run.rows_read > read + ROWS)  # noqa: B023
            run.kill("numbers")
            recovered(run, times)
            wait_until(lambda: is_kept_twice(run))
        assert run.rows_read < FILES * ROWS, "the end must not be near"
        assert run.wait(60), events_of(run)
        assert numbers_in(run) == list(range(FILES * ROWS))


def test_spark_is_not_told_that_a_batch_is_done_while_too_much_waits(
    host: Host, spark: SparkSession, files: Path
) -> None:
    source = seep.from_spark(stream_of(spark, files), trigger=BY_FILE, ahead=1)
    with start(host, passing(source, rate=500)) as run:
        wait_until(lambda: run.rows_read > 2 * ROWS)
        [query] = spark.streams.active
        done = [progress.batchId for progress in query.recentProgress]
        assert max(done, default=0) <= run.rows_read // ROWS + 1


def test_finish_has_all_read_that_spark_was_told_is_done(host: Host, spark: SparkSession, files: Path) -> None:
    with start(host, passing(seep.from_spark(stream_of(spark, files)), rate=3_000)) as run:
        wait_until(lambda: run.rows_read > ROWS)
        run.finish()
        assert run.wait(60), events_of(run)
        found = numbers_in(run)
        assert found == list(range(len(found)))
        assert len(found) % ROWS == 0
        assert not spark.streams.active


# -- there and back ----------------------------------------------------------------------------------------------------


class Counting(seep.Operator):
    """How many rows each key has had so far, whenever that changes."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
        return pa.schema([("key", pa.int64()), ("n", pa.int64())])

    def open(self, context: seep.Context) -> None:
        self.totals = context.frame("totals", {"n": pa.int64()})

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        return self.totals.take(np.unique(self.totals.add(inputs[0], n=1)))


def highest(rows: list[Row]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for row in rows:
        counts[row["key"]] = max(row["n"], counts.get(row["key"], 0))
    return counts


def test_in_one_line_a_finite_dataframe_becomes_a_finite_one(spark: SparkSession, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("run: {epoch: 20ms, nodes: 2}")
    df = spark.range(0, 1_000, 1, 2).selectExpr("id % 7 as key")
    counts = seep.stateful(df, key="key", operator=Counting(), policy=policy, spool=tmp_path / "spool")
    assert not counts.isStreaming
    assert highest(counts.collect()) == {key: len(range(key, 1_000, 7)) for key in range(7)}


def test_in_one_line_a_stream_becomes_a_stream(spark: SparkSession, tmp_path: Path, files: Path) -> None:
    df = stream_of(spark, files).selectExpr("n % 7 as key")
    counts = seep.stateful(df, key="key", operator=Counting(), trigger=BY_FILE, spool=tmp_path / "spool", epoch=0.02)
    assert counts.isStreaming
    expected = {key: len(range(key, FILES * ROWS, 7)) for key in range(7)}
    query = counts.writeStream.format("memory").queryName("counts").start()
    try:
        wait_until(lambda: highest(spark.table("counts").collect()) == expected, 60.0)
    finally:
        query.stop()


# -- restarts ----------------------------------------------------------------------------------------------------------


def durable(spark: SparkSession, directory: Path, files: Path) -> seep.Query:
    """stream of files -> running count by key -> Parquet, every change of which is written"""
    source = seep.from_spark(stream_of(spark, files), trigger=BY_FILE, checkpoint=directory / "spark")
    query = seep.Query("durable")
    totals = query.source("numbers", source, rate=2_000).map("keys", with_key).key_by("key")
    totals.aggregate("counter", n=seep.count(), emit="end").sink("out", seep.sinks.parquet(directory / "out", roll=3))
    return query


def with_key(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"key": batch["n"].to_numpy() % 10, "n": batch["n"]}


def stored(directory: Path) -> dict[str, Any]:
    return {"storage": StorageSettings(location=str(directory / "storage"), every=1), "checkpoint": 0.3}


def counts(directory: Path) -> dict[int, int]:
    table = pq.read_table(directory / "out")
    return dict(zip(table["key"].to_pylist(), table["n"].to_pylist(), strict=True))


def test_a_run_and_its_stream_go_on_from_their_checkpoints_exactly(
    host: Host, spark: SparkSession, tmp_path: Path, files: Path
) -> None:
    """Spark is ahead of the last checkpoint when the run stops: what it has been told is done is in the storage."""
    with start(host, durable(spark, tmp_path, files), **stored(tmp_path)) as run:
        wait_until(lambda: run.rows_read > 2 * ROWS)
        wait_until(lambda: bool(run.events.of("persisted")))
        read = run.rows_read
        wait_until(lambda: run.rows_read > read + ROWS // 2)
    for file in range(FILES, FILES + 3):
        write_file(files, file)
    with start(host, durable(spark, tmp_path, files), **stored(tmp_path), restore="latest") as run:
        assert run.wait(60), events_of(run)
        assert counts(tmp_path) == dict.fromkeys(range(10), (FILES + 3) * ROWS // 10)


def test_a_stream_that_goes_on_and_a_run_that_begins_anew_do_not_fit(
    host: Host, spark: SparkSession, tmp_path: Path, files: Path
) -> None:
    with start(host, durable(spark, tmp_path, files), **stored(tmp_path)) as run:
        wait_until(lambda: run.rows_read > 2 * ROWS)
    query = passing(seep.from_spark(stream_of(spark, files), trigger=BY_FILE, checkpoint=tmp_path / "spark"))
    options = {"storage": StorageSettings(location=str(tmp_path / "other"))}
    with start(host, query, **options) as run, pytest.raises(seep.UserError, match="restore='latest'"):
        run.wait(60)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_sparks_without_storage_is_refused(
    host: Host, spark: SparkSession, tmp_path: Path, files: Path
) -> None:
    query = passing(seep.from_spark(stream_of(spark, files), checkpoint=tmp_path / "spark"))
    with pytest.raises(seep.UserError, match="has no storage"):
        seep.launch(query, host.context)


def test_a_single_node_without_storage_is_refused(host: Host, spark: SparkSession) -> None:
    with pytest.raises(seep.UserError, match="kept on 2 nodes"):
        seep.launch(passing(seep.from_spark(spark.range(5).selectExpr("id as n"))), host.context, nodes=1)


def test_what_is_for_streams_is_refused_for_a_finite_dataframe(spark: SparkSession) -> None:
    with pytest.raises(seep.UserError, match="trigger= is for streaming"):
        seep.from_spark(spark.range(5), trigger=BY_FILE)


def test_the_time_column_must_be_there_and_a_time(spark: SparkSession) -> None:
    source = seep.from_spark(spark.range(5), time="at")
    with pytest.raises(seep.UserError, match="no column 'at'"):
        source.check("numbers")


def test_it_runs_only_on_nodes(spark: SparkSession) -> None:
    with pytest.raises(seep.UserError, match=r"seep\.launch"):
        seep.testing.run(passing(seep.from_spark(spark.range(5).selectExpr("id as n"))))


# -- in other sessions -------------------------------------------------------------------------------------------------


def said_by(driver: str, directory: Path) -> dict[str, Any]:
    """What a driver in a process of its own says at last."""
    done = subprocess.run(
        [sys.executable, "-m", driver],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_tasks_that_fail_while_or_after_they_push_are_tried_again_and_count_once(tmp_path: Path) -> None:
    expected = {"numbers": list(range(3_000)), "failed": ["broke off", "pushed"]}
    assert said_by("tests.spark.failing_tasks", tmp_path) == expected


def test_tasks_on_the_executors_of_a_cluster_push_to_nodes_on_others(tmp_path: Path) -> None:
    assert said_by("tests.spark.in_on_standalone", tmp_path) == {"exact": True, "hosts": ["127.0.0.2", "127.0.0.3"]}
