"""Spark in: how many rows per second Spark's tasks push, and a query reads; `python benchmarks/spark_io.py [--json]`.

Five integer columns that Spark computes, pushed to two nodes each, read by two source instances, and thrown away.
Per core means per second of CPU of all processes that take part, Spark's JVM, its Python workers, the driver and the
nodes: so it says the same on a machine that has something else to do. `spark_alone` is what of it Spark takes to hand
the same rows to a Python worker that throws them away.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

# As a script, its own directory would be searched first, and `primitives` there is a benchmark too.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import seep
from seep.runtime.run import Run
from seep.sources.definition import SourceDefinition
from seep.spark.inlet.mapped import map_in_arrow
from seep.spark.process import children

COLUMNS = ("id as a", "id % 1000 as b", "cast(id as int) as c", "id * 7 as d", "id + 1 as e")
ROWS, PARTITIONS = 8_000_000, 16
#: Partitions of one micro-batch, and batches.
FILES_AT_ONCE, BATCHES = 4, 4
SLOTS = 12  #: for nodes, and for a few tasks
WANTED = 2e6  #: rows per second and core


def spark_alone(spark: SparkSession) -> Speed:
    """Rows into Python workers and no further; the first half of the rows is for Spark to get going."""
    for rows in (ROWS // 2, ROWS):
        df = spark.range(0, rows, 1, PARTITIONS).selectExpr(*COLUMNS)
        clock, cpu = time.monotonic(), cpu_seconds()
        found = map_in_arrow(df, _counted, "rows bigint").rdd.collect()
        seconds, spent = time.monotonic() - clock, cpu_seconds() - cpu
    if sum(row.rows for row in found) != ROWS:
        raise seep.InternalError("Spark lost rows")
    return Speed(ROWS / seconds, ROWS / spent)


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})


class Speed(NamedTuple):
    """Rows per second, from when the first are read, and per second of CPU."""

    by_clock: float
    by_core: float


def finite(spark: SparkSession) -> Speed:
    """A finite DataFrame."""
    return _rows_per_second(seep.from_spark(spark.range(0, ROWS, 1, PARTITIONS).selectExpr(*COLUMNS)), ROWS)


def streaming(spark: SparkSession) -> Speed:
    """A stream of Parquet files, a few for each micro-batch; Spark decodes them."""
    with tempfile.TemporaryDirectory() as directory:
        files = FILES_AT_ONCE * BATCHES
        df = spark.range(0, ROWS, 1, files).selectExpr(*COLUMNS)
        df.write.parquet(str(Path(directory, "files")))
        return _rows_per_second(seep.from_spark(_stream(spark, df, directory), trigger={"availableNow": True}), ROWS)


def _stream(spark: SparkSession, df: DataFrame, directory: str) -> DataFrame:
    reader = spark.readStream.schema(df.schema).option("maxFilesPerTrigger", FILES_AT_ONCE)
    return reader.parquet(str(Path(directory, "files")))


def _rows_per_second(source: SourceDefinition, rows: int) -> Speed:
    query = seep.Query("in")
    query.source("rows", source, parallelism=2).sink("out", seep.sinks.discard())
    with seep.launch(query, epoch=0.02) as run:
        read = _begun(run)
        clock, cpu = time.monotonic(), cpu_seconds()
        run.wait(600)
        seconds, spent = time.monotonic() - clock, cpu_seconds() - cpu
        if run.rows_read != rows:
            raise seep.InternalError(f"{run.rows_read} rows were read, and there are {rows}")
    return Speed((rows - read) / seconds, (rows - read) / spent)


def _begun(run: Run) -> int:
    """Waits for the first rows, and says how many those are: what comes before is the start of Spark's first job."""
    while not (read := run.rows_read) and not run.wait(0.005):
        pass
    return read


def cpu_seconds() -> float:
    """What this process and all below it have used, and those that are gone and were waited for."""
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
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


PARTS: dict[str, Callable[[SparkSession], Speed]] = {
    "spark_alone": spark_alone,
    "finite": finite,
    "streaming": streaming,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this")
    given = parser.parse_args()
    found: dict[str, float] = {}
    with as_users_have_it() as spark:
        for name in given.only or PARTS:
            speed = PARTS[name](spark)
            found |= {f"in_{name}_rows_per_s": speed.by_clock, f"in_{name}_rows_per_s_and_core": speed.by_core}
            verdict = "" if speed.by_core >= WANTED or name == "spark_alone" else " (missed)"
            clock, core = speed.by_clock / 1e6, speed.by_core / 1e6
            sys.stdout.write(f"{name:10} {clock:6.2f} M rows/s, {core:5.2f} M per core{verdict}\n")
            sys.stdout.flush()
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
