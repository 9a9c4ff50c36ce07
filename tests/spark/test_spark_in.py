"""DataFrames as sources on a real local Spark: what tasks push is read exactly once, whatever is lost or restarted."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import seep
from seep.driver.piece_keeper import COPIES
from seep.inspection.listing import checkpoints
from seep.rows.spark_types import arrow_schema
from seep.running.run import Run
from seep.spark.inlet.arrow_batches import map_in_arrow, unweighed
from seep.spark.inlet.pieces import PushedBatch
from seep.spark.session import Host
from seep.storage.layout import PieceKey, PushedBatchKey, key_of
from seep.storage.location import open_store
from seep.storage.settings import StorageSettings
from tests.runtime.counting import counting, recovered, told, wait_until
from tests.spark.processors import Totals

FILES, ROWS = 10, 500
#: Spark reads files by their age: they are a second apart.
EARLIER = 1_700_000_000
#: Characters: Spark's search of what a callback raised overflows its stack at some thousands.
LITTLE = 3_000
#: All that there is is taken, a file at a time.
BY_FILE = {"availableNow": True}
OPTIONS: dict[str, Any] = {"epoch": 0.05, "checkpoint": 0.5, "nodes": 2, "spare": 0}


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
    with seep.launch(query, host.context, **(OPTIONS | options)) as run:
        yield run
    assert not [node for node in run.manager_process.nodes.values() if node.process.alive()]
    wait_until(lambda: not left_of(threads), 20.0, lambda: f"threads left behind: {left_of(threads)}")


def left_of(threads: set[threading.Thread]) -> set[str]:
    """Names of seep's threads that came since, and of timers."""
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    return {name for name in left if name.startswith(("seep ", "Timer"))}


def write_file(directory: Path, file: int) -> None:
    numbers = range(file * ROWS, (file + 1) * ROWS)
    path = directory / f"{file:03}.parquet"
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)
    os.utime(path, (EARLIER + file, EARLIER + file))


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
    news = run.manager_process.on_call("a node", "pushed", {"directory": "numbers"})
    pieces = [piece for plain in news["batches"] for piece in PushedBatch.from_plain(plain).pieces if piece.rows]
    return all(len(set(piece.holders) & run.nodes.keys()) >= COPIES for piece in pieces)


# -- finite ------------------------------------------------------------------------------------------------------------

ALL_TYPES = (
    "n int, yes boolean, text string, bytes binary, price decimal(10,2), at timestamp, list array<int>, "
    "map map<string, int>, struct struct<a: int, b: string>"
)
OF_ALL_TYPES = [
    (1, True, "ä", b"\0", Decimal("1.50"), datetime(2026, 7, 1, 12, tzinfo=UTC), [1, None], {"a": 1}, (2, "x")),
    (None, None, None, None, None, None, None, None, None),
]


def several(spark: SparkSession) -> seep.Query:
    """Four DataFrames, each to a sink of its own."""
    shuffled = spark.range(0, 20_000, 1, 3).where("id % 3 = 0").selectExpr("id as n").repartition(4)
    timed = spark.range(0, 4_000, 1, 1).selectExpr("id as at", "id % 2 as key")
    query = seep.Query("several")
    query.source("shuffled", seep.from_spark(shuffled, ahead=30_000)).sink("numbers", seep.sinks.collect())
    types = query.source("types", seep.from_spark(spark.createDataFrame(OF_ALL_TYPES, ALL_TYPES).coalesce(2)))
    types.sink("rows", seep.sinks.collect())
    query.source("none", seep.from_spark(spark.range(0, 0, 1, 1))).sink("nothing", seep.sinks.collect())
    windows = query.source("timed", seep.from_spark(timed, time="at", ahead=1)).key_by("key")
    counts = windows.window(seep.tumbling(1_000)).aggregate("counter", n=seep.count())
    counts.sink("windows", seep.sinks.collect())
    return query


@pytest.fixture(scope="module")
def finished(spark: SparkSession) -> Iterator[Run]:
    """A run that has read them all."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with seep.launch(several(spark), spark, **OPTIONS) as run:
            assert run.wait(120), told(run)
            yield run
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_a_finite_dataframe_is_read_exactly_with_sql_before_and_a_shuffle(finished: Run) -> None:
    assert sorted(finished.result("numbers")["n"].to_pylist()) == list(range(0, 20_000, 3))


def test_values_of_all_types_come_through_as_they_were(finished: Run) -> None:
    found = finished.result("rows")
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    [whole, nothing] = sorted(found.to_pylist(), key=lambda row: row["n"] is None)
    assert set(nothing.values()) == {None}
    assert list(whole.values()) == [*OF_ALL_TYPES[0][:7], [("a", 1)], {"a": 2, "b": "x"}]


def sizes(df: DataFrame) -> list[int]:
    """Of the Arrow batches in which Spark hands a DataFrame of one partition to seep."""
    counted = map_in_arrow(unweighed(df, arrow_schema(df.schema)), each_counted, "rows bigint")
    return [row.rows for row in counted.collect()]


def each_counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"rows": [batch.num_rows]})


def test_spark_need_not_weigh_its_batches_unless_it_is_told_to_and_the_session_stays_as_it_was(
    spark: SparkSession,
) -> None:
    bound = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(bound)
    numbers = spark.range(0, 5_000, 1, 1).selectExpr(
        "id", "true as yes", "struct(1.5BD as price, current_timestamp()) as pair"
    )
    texts = numbers.selectExpr("id", "array(cast(id as string)) as texts")
    assert sizes(numbers) == [5_000]
    assert sizes(texts) == [2_000, 2_000, 1_000]
    blobs = numbers.selectExpr("struct(cast('' as binary) as blob)")
    assert unweighed(blobs, arrow_schema(blobs.schema)) is blobs
    assert spark.conf.get(bound) == before
    spark.conf.set(bound, "8000")
    try:
        assert max(sizes(numbers)) < 2_000
    finally:
        spark.conf.unset(bound)


def test_no_rows_at_all_are_an_end_too(finished: Run) -> None:
    assert finished.result("nothing").num_rows == 0


def test_event_time_closes_windows_though_some_partitions_bring_no_rows(finished: Run) -> None:
    assert finished.result("windows")["n"].to_pylist() == [500] * 8


def test_a_query_without_such_a_sink_says_which_one_it_needs(finished: Run) -> None:
    with pytest.raises(seep.UserError, match=r"seep\.sinks\.spark\(…\): say which sink; this query has none"):
        finished.to_spark()
    with pytest.raises(seep.UserError, match="'out' is no such sink"):
        finished.to_batch_df(sink="out")


def test_rows_of_a_dataframe_say_which_slot_goes_where(host: Host, spark: SparkSession) -> None:
    moves = spark.createDataFrame([(0.1, 9, 1)], "time double, slot int, instance int")
    with start(host, counting(), rate=seep.Rate(1000)) as run:
        assert run.migrate_stream("counter", moves).wait(120)
        parts = run.manager_process.latest_assignment("counter").parts
        assert parts[1].array.tolist() == [9]


def test_what_fails_in_spark_fails_the_run_with_its_reason(host: Host, spark: SparkSession) -> None:
    df = spark.range(0, 100, 1, 2).selectExpr("if(id = 77, raise_error('no such number'), id) as n")
    with start(host, passing(seep.from_spark(df))) as run, pytest.raises(seep.UserError, match="no such number"):
        run.wait(60)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_ingress_nodes_can_be_killed_one_after_the_other_while_spark_pushes(
    host: Host, spark: SparkSession, files: Path
) -> None:
    """The rate has most of what was pushed wait on the nodes; what the first loss left in one place is copied."""
    source = seep.from_spark(stream_of(spark, files).where("n % 2 = 0"), trigger=BY_FILE, ahead=3 * ROWS * 8)
    with start(host, passing(source, rate=600), nodes=3, spare=1) as run:
        for times in (1, 2):
            read = run.rows_read
            wait_until(lambda: run.rows_read > read + ROWS // 2)  # noqa: B023
            run.kill("numbers")
            recovered(run, times)
            wait_until(lambda: is_kept_twice(run))
        assert run.rows_read < FILES * ROWS // 2, "the end must not be near"
        assert run.wait(60), told(run)
        assert numbers_in(run) == list(range(0, FILES * ROWS, 2))


def test_spark_waits_for_room_and_finish_has_all_read_that_it_was_told_is_done(
    host: Host, spark: SparkSession, files: Path
) -> None:
    source = seep.from_spark(stream_of(spark, files), ahead=1)
    with start(host, passing(source, rate=500)) as run:
        wait_until(lambda: run.rows_read > 2 * ROWS)
        [query] = spark.streams.active
        done = [progress.batchId for progress in query.recentProgress]
        assert max(done, default=0) <= run.rows_read // ROWS + 1
        run.finish()
        assert run.wait(60), told(run)
        found = numbers_in(run)
        assert found == list(range(len(found)))
        assert len(found) % ROWS == 0
        assert not spark.streams.active


def held(directory: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says that a batch has begun, and passes it on when there is leave to."""
    (directory / "begun").touch()
    wait_until((directory / "leave").exists)
    yield from batches


def busy(spark: SparkSession, files: Path) -> seep.Query:
    """A stream of batches each of which is held."""
    task = partial(held, files.parent)
    return passing(seep.from_spark(map_in_arrow(stream_of(spark, files), task, "n bigint")))


def test_finish_admits_the_batch_that_is_being_pushed_and_begins_no_other(
    host: Host, spark: SparkSession, files: Path, tmp_path: Path
) -> None:
    with start(host, busy(spark, files)) as run:
        wait_until((tmp_path / "begun").exists)
        [query] = spark.streams.active
        run.finish()
        (tmp_path / "leave").touch()
        assert run.wait(60), told(run)
        assert numbers_in(run) == list(range(ROWS))
    assert not query.isActive
    assert query.exception() is None


def test_a_batch_that_is_cut_off_is_an_end_that_spark_understands_and_says_little_to_it(
    host: Host, spark: SparkSession, files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(host, busy(spark, files)) as run:
        wait_until((tmp_path / "begun").exists)
        [query] = spark.streams.active
        run.stop()
    wait_until(lambda: not query.isActive)
    said = said_to_spark(caplog)
    assert "was stopped" in said
    assert len(said) < LITTLE
    assert query.exception() is None


def test_spark_is_told_one_line_of_a_failure_and_the_run_knows_all_of_it(
    host: Host, spark: SparkSession, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    df = map_in_arrow(stream_of(spark, files), refused, "n bigint")
    with start(host, passing(seep.from_spark(df))) as run, pytest.raises(seep.UserError, match="no such") as failed:
        run.wait(60)
    assert "Traceback" in str(failed.value.__cause__)
    said = said_to_spark(caplog)
    assert "no such number" in said
    assert len(said) < LITTLE


def refused(batches: Iterator[pa.RecordBatch], depth: int = 100) -> Iterator[pa.RecordBatch]:
    """Fails far down, with a traceback of many lines and a long text."""
    if depth:
        yield from refused(batches, depth - 1)
    raise ValueError("no such number" + ", nor another one" * 1_000)


def said_to_spark(caplog: pytest.LogCaptureFixture) -> str:
    """What Spark got of the one exception of a callback: py4j logs it, and sends the same."""
    [failed] = [record for record in caplog.records if record.name.startswith("py4j") and record.exc_info]
    return logging.Formatter().formatException(failed.exc_info)  # type: ignore[arg-type]


def test_in_one_line_a_stream_becomes_a_stream_also_with_a_processor_written_for_spark(
    spark: SparkSession, tmp_path: Path, files: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("run: {epoch: 50ms, nodes: 2}\npool: {size: 0}")
    visits = seep.stateful(
        stream_of(spark, files).selectExpr("n % 7 as user", "n as at"),
        key="user",
        operator=seep.from_processor(Totals(), "user bigint, kind string, count bigint", time_mode="EventTime"),
        time="at",
        trigger=BY_FILE,
        policy=policy,
        spool=tmp_path / "spool",
    )
    assert visits.isStreaming
    found: list[tuple[int, int]] = []

    def write(batch: DataFrame, _id: int) -> None:
        found.extend((row["user"], row["count"]) for row in batch.where("kind = 'in all'").collect())

    query = visits.writeStream.foreachBatch(write).start()
    try:
        wait_until(lambda: len(found) >= 7, 120.0)
    finally:
        query.stop()
    assert sorted(found) == [(user, len(range(user, FILES * ROWS, 7))) for user in range(7)]


# -- where people work -------------------------------------------------------------------------------------------------


def test_it_runs_in_a_notebook_and_leaves_the_session_as_it_was(host: Host, spark: SparkSession) -> None:
    """A notebook has an event loop running, and may run a cell on another thread; Ctrl-C stays its own."""
    before, signals = dict(spark.sparkContext.getConf().getAll()), signal.getsignal(signal.SIGINT)

    def cell() -> list[int]:
        df = spark.range(0, 300, 1, 2).selectExpr("id as n")
        with start(host, passing(seep.from_spark(df))) as run:
            run.wait(60)
            return numbers_in(run)

    async def notebook() -> tuple[list[int], list[int]]:
        return cell(), await asyncio.to_thread(cell)

    assert asyncio.run(notebook()) == (list(range(300)), list(range(300)))
    assert signal.getsignal(signal.SIGINT) == signals
    assert dict(spark.sparkContext.getConf().getAll()) == before
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.range(0, 100).selectExpr("id % 10 as k").groupBy("k").count().count() == 10


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


def test_a_stream_that_spark_would_read_from_its_beginning_again_does_not_go_on(
    host: Host, spark: SparkSession, files: Path, tmp_path: Path
) -> None:
    storage = StorageSettings(location=str(tmp_path / "storage"))
    source = seep.from_spark(stream_of(spark, files), trigger=BY_FILE)
    with start(host, passing(source), storage=storage) as run:
        assert run.wait(120)
    with (
        start(host, passing(source), storage=storage) as run,
        pytest.raises(seep.UserError, match=r"'numbers': the run goes on .* restore='none'"),
    ):
        run.wait(120)
    with start(host, passing(source), storage=storage, restore="none") as run:
        assert run.wait(120)
        assert numbers_in(run) == list(range(FILES * ROWS))


def test_a_source_that_a_query_gets_later_is_gone_on_with_though_no_checkpoint_came_before_the_end(
    host: Host, spark: SparkSession, files: Path, tmp_path: Path
) -> None:
    def query(*names: str) -> seep.Query:
        made = passing(seep.from_spark(stream_of(spark, files), checkpoint=tmp_path / "numbers"))
        for name in names:
            source = seep.from_spark(stream_of(spark, files), checkpoint=tmp_path / name)
            made.source(name, source).sink(f"{name}_out", seep.sinks.collect())
        return made

    def is_read(run: Run, source: str) -> bool:
        return sum(position[1] for position in run.positions(source).values()) == FILES * ROWS

    storage = StorageSettings(location=str(tmp_path / "storage"))
    with start(host, query(), storage=storage, checkpoint=None) as run:
        wait_until(lambda: is_read(run, "numbers"))
    with start(host, query("more"), storage=storage, checkpoint=None) as run:
        assert checkpoints(storage, "passing")[0].pushed.keys() == {"numbers", "more"}
        wait_until(lambda: is_read(run, "more"))
        kinds = {type(key_of(text)) for text in open_store(str(tmp_path / "storage")).list()}
        assert kinds >= {PushedBatchKey, PieceKey}
        assert type(None) not in kinds, "all keys are of known kinds"
        run.manager_process.fail(seep.EnvironmentFault("as if it had died: then nothing is stored"))
    with start(host, query("more"), storage=storage, checkpoint=None) as run:
        wait_until(lambda: is_read(run, "more"))
        run.finish()
        assert run.wait(120)
        assert sorted(run.result("more_out")["n"].to_pylist()) == list(range(FILES * ROWS))
