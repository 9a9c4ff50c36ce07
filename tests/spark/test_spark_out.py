"""Rows of running queries in Spark: batch and streaming, exact through kills and restarts. Real nodes, real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import seep
from primitives.errors import UserError
from seep.runtime.run import Run
from seep.runtime.showing import Showing
from seep.sinks.definition import SinkDefinition
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import RATE, SCHEMA, committed, doubled, idle, numbers, recovered, wait_until

OPTIONS: dict[str, Any] = {"epoch": 0.02, "checkpoint": 0.3, "nodes": 3, "rate": seep.Rate(RATE)}


@pytest.fixture
def spark(host: Host) -> SparkSession:
    return SparkSession(host.context)


def changes(sink: SinkDefinition, rows: int | None = None) -> seep.Query:
    """source -> map -> count and sum by key -> sink, every change of which comes out."""
    query = seep.Query("changes")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=rows))
    totals = source.map("map", doubled).key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"))
    totals.sink("out", sink, parallelism=2)
    return query


def copies(sink: SinkDefinition, rows: int | None = None) -> seep.Query:
    """source -> sink"""
    query = seep.Query("copies")
    query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=rows)).sink("out", sink, parallelism=2)
    return query


def check_changes(rows: list[tuple[int, int, int]], read: int) -> None:
    """No change came twice, and the last one of each key is what all rows make."""
    assert max(Counter((key, n) for key, n, _ in rows).values()) == 1
    counts, totals = Counter[int](), Counter[int]()
    for n in range(read):
        counts[n * 7919 % 997] += 1
        totals[n * 7919 % 997] += n
    last = {key: (n, total) for key, n, total in sorted(rows, key=lambda row: row[1])}
    assert last == {key: (counts[key], totals[key]) for key in counts}


class Batches:
    """Writes batches as a sink that knows the ids of those it has: a batch that comes again replaces itself."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.again: list[int] = []
        #: raises after this batch is written, and before Spark hears of it
        self.fail_after: int | None = None

    def __call__(self, batch: DataFrame, id: int) -> None:
        rows = sorted(tuple(row.values()) for row in batch.toArrow().to_pylist())
        if id in self.rows:
            assert self.rows[id] == rows, "a batch that comes again has the same rows"
            self.again.append(id)
        self.rows[id] = rows
        if self.fail_after is not None and id >= self.fail_after:
            self.fail_after = None
            raise RuntimeError("on purpose")

    def all(self) -> list[Any]:
        return [row for id in sorted(self.rows) for row in self.rows[id]]

    def start(self, frame: DataFrame, checkpoint: Path) -> StreamingQuery:
        return frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(self).start()


def taken(batches: Batches, more: int) -> None:
    goal = len(batches.rows) + more
    wait_until(lambda: len(batches.rows) >= goal, 60)


def end(run: Run, query: StreamingQuery) -> None:
    """The input ends here, and Spark takes what there is."""
    run.finish()
    drain(run, query)


def drain(run: Run, query: StreamingQuery) -> None:
    """The input ends by itself, and Spark takes what there is."""
    assert run.wait(60)
    query.processAllAvailable()
    query.stop()


# -- batch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [seep.sinks.spark, seep.sinks.collect])
def test_a_finite_query_gives_a_frame_with_all_its_rows(
    spark: SparkSession, sink: Callable[[], SinkDefinition]
) -> None:
    frame = changes(sink(), rows=20_000).to_batch_df(spark, epoch=0.02)
    check_changes([tuple(row) for row in frame.collect()], 20_000)


ALL_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, None]),
    "byte": (pa.int8(), [-128, None]),
    "short": (pa.int16(), [-(2**15), None]),
    "int": (pa.int32(), [2**31 - 1, None]),
    "long": (pa.int64(), [-(2**63), None]),
    "float": (pa.float32(), [0.5, None]),
    "double": (pa.float64(), [0.1, None]),
    "text": (pa.string(), ["ä\0", None]),
    "long_text": (pa.large_string(), ["", None]),
    "bytes": (pa.binary(), [b"\xff\x00", None]),
    "date": (pa.date32(), [date(1583, 1, 1), None]),
    "instant": (pa.timestamp("us", "Asia/Kolkata"), [datetime(2026, 1, 31, 23, 59, 59, 1, UTC), None]),
    "wall_clock": (pa.timestamp("us"), [datetime(2026, 3, 29, 2, 30), None]),
    "duration": (pa.duration("us"), [timedelta(days=-1, microseconds=1), None]),
    "time": (pa.time64("us"), [time(23, 59, 59, 999_999), None]),
    "money": (pa.decimal128(38, 18), [Decimal("-12345678901234567890.123456789012345678"), None]),
    "list": (pa.list_(pa.string()), [["a", None], None]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]), [{"a": None, "b": [1.5]}, None]),
    "map": (pa.map_(pa.string(), pa.timestamp("us", "UTC")), [[("k", datetime(2026, 1, 1, tzinfo=UTC))], None]),
}


def test_values_of_all_types_arrive_as_they_are(spark: SparkSession) -> None:
    columns = {name: pa.array(values, kind) for name, (kind, values) in ALL_TYPES.items()}
    query = seep.Query("types")
    query.source("rows", seep.sources.memory([pa.record_batch(columns)])).sink("out", seep.sinks.spark())
    found = query.to_batch_df(spark, epoch=0.02).toArrow()
    for name, (_, values) in ALL_TYPES.items():
        assert sorted(found[name].to_pylist(), key=str) == sorted(values, key=str), name


# -- streaming --------------------------------------------------------------------------------------------------------


def test_a_streaming_frame_is_exact_while_nodes_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    apart = OPTIONS | {"nodes": None, "spare": 2}  # an instance on each
    with seep.launch(changes(seep.sinks.spark(tmp_path / "out")), spark, **apart) as run:
        batches = Batches()
        query = batches.start(run.to_spark(), tmp_path / "checkpoint")
        taken(batches, 1)
        for times, victim in enumerate(("out[0]", "counter[0]"), 1):
            idle(run)
            run.kill(victim)
            recovered(run, times)
            taken(batches, 1)
        end(run, query)
        check_changes(batches.all(), run.rows_read)
        assert run.events.of("killed")


def test_a_spark_query_that_fails_and_restarts_from_its_checkpoint_is_exact(
    spark: SparkSession, tmp_path: Path
) -> None:
    with seep.launch(changes(seep.sinks.spark(tmp_path / "out")), spark, **OPTIONS) as run:
        batches = Batches()
        query = batches.start(run.to_spark(), tmp_path / "checkpoint")
        taken(batches, 2)
        batches.fail_after = 0
        with pytest.raises(StreamingQueryException, match="on purpose"):
            query.awaitTermination(60)
        query = batches.start(run.to_spark(), tmp_path / "checkpoint")
        taken(batches, 1)
        assert len(batches.again) == 1, "the batch that Spark did not hear of came again"
        query.stop()
        committed(run, 10)
        query = batches.start(run.to_spark(), tmp_path / "checkpoint")
        end(run, query)
        check_changes(batches.all(), run.rows_read)


def test_a_run_restored_from_storage_goes_on_where_spark_is(spark: SparkSession, tmp_path: Path) -> None:
    sink = seep.sinks.spark(tmp_path / "out")
    storage = StorageSettings(location=str(tmp_path / "storage"), every=1)
    batches = Batches()
    with seep.launch(changes(sink), spark, storage=storage, **OPTIONS) as run:
        query = batches.start(run.to_spark(), tmp_path / "checkpoint")
        taken(batches, 1)
        committed(run, 5)  # which Spark is not shown: they come again
    with seep.launch(changes(sink), spark, storage=storage, restore="latest", **OPTIONS) as run:
        taken(batches, 1)
        end(run, query)
        check_changes(batches.all(), run.rows_read)


def test_spark_holds_the_query_back(spark: SparkSession, tmp_path: Path) -> None:
    backlog, rows = 1 << 18, 250_000
    sink = seep.sinks.spark(tmp_path / "out", backlog=backlog)
    with seep.launch(copies(sink, rows), spark, epoch=0.02, nodes=2, rate=seep.Rate(rows)) as run:
        frame = run.to_spark(maxBytesPerTrigger=backlog)
        wait_until(lambda: len(sink.spool.layout.parts()) >= 8)  # small ones count for 64 KiB
        assert not run.wait(1.5), "its 2 MB come within a second, and do not fit"
        batches = Batches()
        drain(run, batches.start(frame, tmp_path / "checkpoint"))
        assert sorted(batches.all()) == [(n,) for n in range(rows)]


# -- writers ----------------------------------------------------------------------------------------------------------


def test_rows_go_to_parquet_and_on_after_a_stop(spark: SparkSession, tmp_path: Path) -> None:
    sink = seep.sinks.spark(tmp_path / "out")
    with seep.launch(changes(sink), spark, **OPTIONS) as run:
        query = run.to_parquet(tmp_path / "parquet")
        wait_until(lambda: sink.spool.taken > 0, 60)
        query.stop()
        end(run, run.to_parquet(tmp_path / "parquet"))
        rows = [tuple(row) for row in spark.read.parquet(str(tmp_path / "parquet")).collect()]
        check_changes(rows, run.rows_read)


def test_rows_go_to_a_table(spark: SparkSession, tmp_path: Path, table: str) -> None:
    with seep.launch(copies(seep.sinks.spark(tmp_path / "out"), 5_000), spark, epoch=0.02) as run:
        drain(run, run.to_table(table))
    assert sorted(n for (n,) in spark.table(table).collect()) == list(range(5_000))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE TABLE copied (n BIGINT) USING parquet LOCATION '{tmp_path / 'table'}'")
    yield "copied"
    spark.sql("DROP TABLE copied")


# -- what goes wrong --------------------------------------------------------------------------------------------------


def failing(batch: pa.RecordBatch) -> dict[str, Any]:
    if len(batch) and batch["n"][-1].as_py() > 2_000:
        raise ValueError("too many")
    return {"n": batch["n"]}


def test_a_query_that_fails_fails_in_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    query = seep.Query("failing")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA), rate=RATE)
    source.map("map", failing).sink("out", seep.sinks.spark(tmp_path / "out"))
    with seep.launch(query, spark, epoch=0.02) as run:
        reading = Batches().start(run.to_spark(), tmp_path / "checkpoint")
        with pytest.raises(StreamingQueryException, match="too many"):
            reading.awaitTermination(60)


def test_a_query_without_such_a_sink_says_which_one_it_needs(spark: SparkSession) -> None:
    with seep.launch(copies(seep.sinks.discard(), 10), spark, epoch=0.02) as run:
        with pytest.raises(UserError, match=r"seep\.sinks\.spark\(…\): say which sink; this query has none"):
            run.to_spark()
        with pytest.raises(UserError, match="'out' is no such sink"):
            run.to_batch_df(sink="out")


def test_a_directory_of_this_machine_will_not_do_on_a_cluster(spark: SparkSession) -> None:
    refused = pytest.raises(UserError, match="sink 'out' has no directory that all machines see")
    with seep.launch(copies(seep.sinks.spark(), 10), spark, epoch=0.02) as run, refused:
        Showing(run.manager_process, is_local=False)
