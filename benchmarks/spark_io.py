"""Spark in, Spark out, and both next to Spark's own: `python benchmarks/spark_io.py [--json] [--only PART]`.

`in_…`: five integer columns that Spark computes, pushed to two nodes each, read by two source instances, and thrown
away. `out_…`: five integer columns that a sink has spooled, read and thrown away by Spark. Per core means per second of
CPU of all processes that take part, Spark's JVM, its Python workers, the driver and the nodes: so it says the same on a
machine that has something else to do. `spark_alone` is what of it Spark takes to hand the same rows to a Python worker
that throws them away, and `pushed` what the rest takes without Spark: the task's push, and its rows kept by two nodes.
All are for a Spark that is warm, as in a stream that runs for days: the clock starts after a third of the rows, for the
JVM takes seconds of both cores to compile what the first millions go through, and workers to import.

`count_…`: a stream of Parquet files, a count for each of a million keys, and every change of it a row of a stream: by
seep (in, count, out), by Spark's own `groupBy().count()`, and by the two interfaces that call Python for each key,
which get fewer rows, as they are slow; these need pandas. Rates are by the clock, in one run, without the first quarter
of the batches, in which Spark gets going, for all of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

# As a script, its own directory would be searched first, and `primitives` there is a benchmark too.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import seep
from benchmarks.script import parser_of, tell_json
from benchmarks.spark_push import Speed, pushed
from seep.channels.process import children
from seep.running.run import Run
from seep.sources.definition import SourceDefinition
from seep.spark.inlet.arrow_batches import map_in_arrow

COLUMNS = ("id as a", "id % 1000 as b", "cast(id as int) as c", "id * 7 as d", "id + 1 as e")
ROWS, PARTITIONS = 24_000_000, 48
WARM = ROWS // 3  #: rows before the clock starts
FILES_AT_ONCE, BATCHES = 4, 12  #: of one micro-batch, and how many of these
SLOTS = 12  #: for nodes, and for a few tasks
SPOOLED = 8_000_000
WANTED = 2e6  #: rows per second and core


#: Where Spark has its state for this interface: it takes no other.
ROCKSDB = (
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)
#: Rows to count, the million keys that they have, and the rows that the slow ones get.
COUNTED, KEYS, FEW = 12_000_000, 1_000_000, 24_000
SKIPPED = BATCHES // 4  #: batches before the clock starts


def spark_alone(spark: SparkSession) -> Speed:
    """Rows into Python workers and no further."""
    for rows in (WARM, ROWS - WARM):
        df = spark.range(0, rows, 1, PARTITIONS).selectExpr(*COLUMNS)
        clock, cpu = time.monotonic(), cpu_seconds()
        found = map_in_arrow(df, _counted, "rows bigint").rdd.collect()
        speed = _speed(rows, clock, cpu)
    if sum(row.rows for row in found) != rows:
        raise seep.InternalError("Spark lost rows")
    return speed


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})


def finite(spark: SparkSession) -> Speed:
    return _rows_per_second(seep.from_spark(spark.range(0, ROWS, 1, PARTITIONS).selectExpr(*COLUMNS)))


def streaming(spark: SparkSession) -> Speed:
    """A stream of Parquet files, a few for each micro-batch; Spark decodes them."""
    with tempfile.TemporaryDirectory() as directory:
        _write_files(Path(directory), _five, ROWS)
        stream = _stream(spark, "a long, b long, c int, d long, e long", directory)
        return _rows_per_second(seep.from_spark(stream, trigger={"availableNow": True}))


def _write_files(directory: Path, make: Callable[[int, int, int], dict[str, Any]], rows: int) -> None:
    """Files for so many micro-batches, without Spark: it takes its time to write them.

    Their numbers are all different: dictionaries of them, as Parquet makes them if it is let, would only be in the way.
    """
    files = FILES_AT_ONCE * BATCHES
    for number in range(files):
        columns = make(0, rows * number // files, rows // files)
        parquet.write_table(pa.table(columns), directory / f"{number:03}.parquet", use_dictionary=False)


def _stream(spark: SparkSession, columns: str, directory: str) -> DataFrame:
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", FILES_AT_ONCE).parquet(directory)


# -- out ---------------------------------------------------------------------------------------------------------------


def spooled(spark: SparkSession) -> Speed:
    """Measures repeated reads of a finished run's spool as a finite DataFrame, after reads that warm Spark up."""
    with tempfile.TemporaryDirectory() as directory:
        _spool(spark, directory)
        df = spark.read.format("seep").load(f"{directory}/spool")
        for times in (6, 3):
            clock, cpu = time.monotonic(), cpu_seconds()
            for _ in range(times):
                df.write.format("noop").mode("overwrite").save()
        return _speed(SPOOLED * times, clock, cpu)


def _spool(spark: SparkSession, directory: str) -> None:
    query = seep.Query("out")
    schema = pa.schema([(name, pa.int32() if name == "c" else pa.int64()) for name in "abcde"])
    source = seep.sources.generator(_five, schema, partitions=2, rows=SPOOLED // 2)
    query.source("rows", source, parallelism=2).sink("out", seep.sinks.spark(f"{directory}/spool"), parallelism=2)
    with seep.launch(query, spark, epoch=0.1, nodes=2) as run:
        run.to_batch_df(spark)


def _five(partition: int, first: int, count: int) -> dict[str, Any]:
    numbers = np.arange(first, first + count, dtype=np.int64) * 2 + partition
    return {"a": numbers, "b": numbers % 1000, "c": numbers.astype(np.int32), "d": numbers * 7, "e": numbers + 1}


# -- in and out, next to Spark's own -----------------------------------------------------------------------------------


def count_seep(spark: SparkSession, files: DataFrame, rows: int, home: str) -> float:
    query = seep.Query("counts")
    source = query.source("rows", seep.from_spark(files, trigger={"availableNow": True}), parallelism=2)
    counts = source.key_by("key").aggregate("counter", n=seep.count(), parallelism=2)
    counts.sink("out", seep.sinks.spark(f"{home}/spool"), parallelism=2)
    with seep.launch(query, spark, epoch=0.25, nodes=2, checkpoint=5.0) as run:
        writer = run.to_spark().writeStream.format("noop").option("checkpointLocation", f"{home}/checkpoint")
        writing = writer.trigger(processingTime="1 second").start()  # its batches take as long without rows
        read = _begun(run, rows * SKIPPED // BATCHES)
        clock = time.monotonic()
        run.wait(600)
        writing.processAllAvailable()
        seconds = time.monotonic() - clock
        writing.stop()
        if run.rows_read != rows:
            raise seep.InternalError(f"{run.rows_read} rows were read, and there are {rows}")
    return (rows - read) / seconds


def count_native(_spark: SparkSession, files: DataFrame, rows: int, home: str) -> float:
    return _by_spark(files.groupBy("key").count(), rows, home)


def count_transform_with_state(spark: SparkSession, files: DataFrame, rows: int, home: str) -> float:
    from benchmarks.spark_peers import Counting

    spark.conf.set(*ROCKSDB)
    given = (Counting(), "key bigint, n bigint", "Update", "None")
    return _by_spark(files.groupBy("key").transformWithStateInPandas(*given), rows, home)


def count_apply_in_pandas(_spark: SparkSession, files: DataFrame, rows: int, home: str) -> float:
    from benchmarks.spark_peers import count

    given = (count, "key bigint, n bigint", "n bigint", "update", "NoTimeout")
    return _by_spark(files.groupBy("key").applyInPandasWithState(*given), rows, home)


def _by_spark(counts: DataFrame, rows: int, home: str) -> float:
    """Returns the rows per second, by the time that Spark takes for its batches."""
    writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", f"{home}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    if sum(batch.numInputRows for batch in batches) != rows:
        raise seep.InternalError("Spark has not read all rows")
    timed = batches[SKIPPED:]
    read = sum(batch.numInputRows for batch in timed)
    return read / (sum(batch.durationMs["triggerExecution"] for batch in timed) / 1000)


def counted(spark: SparkSession, count: Count, rows: int) -> float:
    with tempfile.TemporaryDirectory() as home:
        files = Path(home, "files")
        files.mkdir()
        _write_files(files, _keyed, rows)
        return count(spark, _stream(spark, "key long, a long, b long", str(files)), rows, home)


def _keyed(_partition: int, first: int, count: int) -> dict[str, Any]:
    """Every key comes as often as chance has it."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    return {"key": np.random.default_rng(first).integers(0, KEYS, count), "a": numbers, "b": numbers + 1}


def _rows_per_second(source: SourceDefinition) -> Speed:
    query = seep.Query("in")
    query.source("rows", source, parallelism=2).sink("out", seep.sinks.discard())
    with seep.launch(query, epoch=0.1, nodes=2) as run:
        read = _begun(run, WARM)
        clock, cpu = time.monotonic(), cpu_seconds()
        run.wait(600)
        speed = _speed(ROWS - read, clock, cpu)
        if run.rows_read != ROWS:
            raise seep.InternalError(f"{run.rows_read} rows were read, and there are {ROWS}")
    return speed


def _begun(run: Run, rows: int) -> int:
    """Waits until so many rows were read, and says how many those are by then."""
    while (read := run.rows_read) < rows and not run.wait(0.005):
        pass
    return read


def _speed(rows: int, clock: float, cpu: float) -> Speed:
    """Since a time, and what had been used of the CPUs by then."""
    return Speed(rows / (time.monotonic() - clock), rows / (cpu_seconds() - cpu))


def cpu_seconds() -> float:
    """Returns the CPU time of this process and its descendants, including ended ones that were waited for."""
    found, parents = 0.0, [os.getpid()]
    while parents:
        found += sum(map(_used, parents))
        parents = children(parents)
    return found


def _used(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def as_users_have_it() -> Iterator[SparkSession]:
    """A session with a JVM that optimises: the one that `seep` starts by itself is for nodes alone."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.driver.memory", "2g")
    builder = builder.config("spark.sql.shuffle.partitions", str(FILES_AT_ONCE))
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


PARTS: dict[str, Callable[[SparkSession], Speed]] = {
    "in_spark_alone": spark_alone,
    "in_pushed": lambda _: pushed(),
    "in_finite": finite,
    "in_streaming": streaming,
    "out_spooled": spooled,
}

Count = Callable[[SparkSession, DataFrame, int, str], float]
COUNTS: dict[str, tuple[Count, int]] = {
    "count_seep": (count_seep, COUNTED),
    "count_native": (count_native, COUNTED),
    "count_transform_with_state": (count_transform_with_state, FEW),
    "count_apply_in_pandas": (count_apply_in_pandas, FEW),
}


def main() -> None:
    parser = parser_of(__doc__, "benchmarks/spark_io.py --only in_pushed")
    parser.add_argument("--only", choices=[*PARTS, *COUNTS], action="append", help="measure only this")
    given = parser.parse_args()
    found: dict[str, float] = {}
    with as_users_have_it() as spark:
        for name in given.only or [*PARTS, *COUNTS]:
            found |= measured(spark, name)
    for name in COUNTS:
        if name in found and "count_seep" in found and name != "count_seep":
            print(f"{name:27} seep is {found['count_seep'] / found[name]:.1f} times as fast")
    tell_json(found, given.json)


def measured(spark: SparkSession, name: str) -> dict[str, float]:
    if name in COUNTS:
        count, rows = COUNTS[name]
        rate = counted(spark, count, rows)
        print(f"{name:27} {rate:12,.0f} rows/s", flush=True)
        return {name: rate}
    speed = PARTS[name](spark)
    verdict = "" if speed.by_core >= WANTED or name == "in_spark_alone" else " (missed)"
    print(f"{name:27} {speed.by_clock:12,.0f} rows/s, {speed.by_core:12,.0f} per core{verdict}", flush=True)
    return {f"{name}_rows_per_s": speed.by_clock, f"{name}_rows_per_s_and_core": speed.by_core}


if __name__ == "__main__":
    main()
