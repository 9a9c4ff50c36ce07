"""Rows of running queries in Spark: batch and streaming, exact through kills and restarts. Real nodes, real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from runpy import run_path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import seep
from primitives.errors import UserError
from seep.driver.spark_publisher import SparkPublisher
from seep.running.run import Run
from seep.sinks.definition import SinkDefinition
from tests.runtime.counting import RATE, SCHEMA, doubled, idle, numbers, recovered, wait_until

OPTIONS: dict[str, Any] = {"epoch": 0.05, "checkpoint": 0.5, "nodes": 3, "rate": seep.Rate(RATE)}


def changes(sink: SinkDefinition, rows: int | None = None) -> seep.Query:
    """source -> map -> count and sum by key -> sink, every change of which comes out."""
    query = seep.Query("changes")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=rows))
    totals = source.map("map", doubled).key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"))
    totals.sink("out", sink, parallelism=2)
    return query


def copies(rows: int, **sinks: SinkDefinition) -> seep.Query:
    """source -> all of these sinks"""
    query = seep.Query("copies")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=rows))
    for name, sink in sinks.items():
        source.sink(name, sink, parallelism=2)
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


def several() -> seep.Query:
    """Changes to a sink for Spark and to one in the driver, and values of all types."""
    query = seep.Query("several")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=20_000))
    totals = source.map("map", doubled).key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"))
    totals.sink("spooled", seep.sinks.spark())
    totals.sink("collected", seep.sinks.collect())
    columns = {name: pa.array(values, kind) for name, (kind, values) in ALL_TYPES.items()}
    query.source("rows", seep.sources.memory([pa.record_batch(columns)])).sink("types", seep.sinks.spark())
    return query


def test_a_finite_query_gives_frames_with_all_its_rows_and_values_as_they_are(spark: SparkSession) -> None:
    with seep.launch(several(), spark, epoch=0.05, nodes=3, spare=0) as run:
        for sink in ("spooled", "collected"):
            check_changes([tuple(row) for row in run.to_batch_df(spark, sink).collect()], 20_000)
        found = run.to_batch_df(spark, "types").toArrow()
        with pytest.raises(UserError, match="say which sink; those of this query: spooled, types"):
            run.to_spark()
        with pytest.raises(UserError, match="sink 'spooled' has no directory that all machines see"):
            SparkPublisher(run.manager_process, is_local=False)
    for name, (_, values) in ALL_TYPES.items():
        assert sorted(found[name].to_pylist(), key=str) == sorted(values, key=str), name


# -- streaming --------------------------------------------------------------------------------------------------------


def test_a_streaming_frame_is_exact_while_nodes_are_killed_and_its_query_fails_and_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
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
        batches.fail_after = 0
        with pytest.raises(StreamingQueryException, match="on purpose"):
            query.awaitTermination(60)
        query = batches.start(run.to_spark(), tmp_path / "checkpoint")
        taken(batches, 1)
        assert len(batches.again) == 1, "the batch that Spark did not hear of came again"
        end(run, query)
        check_changes(batches.all(), run.rows_read)


# -- writers ----------------------------------------------------------------------------------------------------------


@pytest.mark.acceptance
def test_rows_go_to_a_table_and_to_parquet_after_they_had_to_wait_for_it(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    """Without a reader the first sink takes no more than its backlog, and holds up all."""
    rows = 150_000
    sink, other = seep.sinks.spark(tmp_path / "out", backlog=1 << 18), seep.sinks.spark(tmp_path / "other")
    with seep.launch(
        copies(rows, out=sink, other=other), spark, epoch=0.05, nodes=2, spare=0, rate=seep.Rate(rows)
    ) as run:
        parquet = run.to_parquet(tmp_path / "parquet", sink="other")
        wait_until(lambda: other.spool.taken > 0, 60)
        parquet.stop()
        assert not run.wait(1.0), "its 1.2 MB come within a second, and do not fit"
        writing = run.to_table(table, sink="out")
        drain(run, writing)
        drain(run, run.to_parquet(tmp_path / "parquet", sink="other"))
    for frame in (spark.table(table), spark.read.parquet(str(tmp_path / "parquet"))):
        assert sorted(n for (n,) in frame.collect()) == list(range(rows))


def test_the_example_writes_what_a_loop_over_its_readings_finds_once_though_it_runs_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    example = run_path(str(Path(__file__).parents[2] / "examples" / "spark_pipeline.py"))
    example["make_readings"](str(tmp_path / "readings"))
    for _ in range(2):
        example["stream"](spark, str(tmp_path / "readings"), str(tmp_path / "streaks"), tmp_path / "home")
    now, longest, expected = Counter[str](), Counter[str](), []
    for row in pq.read_table(tmp_path / "readings").sort_by("at").to_pylist():
        if abs(row["celsius"]) >= example["LEAST"]:
            sensor = row["sensor"]
            now[sensor] = now[sensor] + 1 if row["celsius"] > 0 else 0
            if now[sensor] > longest[sensor]:
                longest[sensor] = now[sensor]
                expected.append((sensor, row["at"], now[sensor]))
    found = spark.read.parquet(str(tmp_path / "streaks")).toArrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(expected)


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
    with seep.launch(query, spark, epoch=0.05, nodes=2, spare=0) as run:
        reading = Batches().start(run.to_spark(), tmp_path / "checkpoint")
        with pytest.raises(StreamingQueryException, match="too many"):
            reading.awaitTermination(60)
