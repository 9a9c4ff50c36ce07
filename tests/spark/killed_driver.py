"""A driver in a process of its own that is to be killed: a stream of files -> seep -> files of Spark's, and others.

    python -m tests.spark.killed_driver HOME END ROWS

The very same command begins, and goes on after whatever has become of the driver before. It ends when all files are
read (`available`), when ROWS rows are read and the input is ended (`finish`), or the run is stopped then (`stop`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import seep
from seep.running.run import Run
from seep.storage.settings import StorageSettings
from tests.runtime.counting import wait_until
from tests.spark.small import for_small_data

KEYS = 7


class Counting(seep.Operator):
    """Each row with its number among those of its key, which is what it is however rows come in epochs."""

    def open(self, context: seep.Context) -> None:
        self.counts = context.values("counts", pa.int64())

    def output(self, inputs: Sequence[Any]) -> pa.Schema:  # noqa: ARG002
        return pa.schema([("key", pa.int64()), ("count", pa.int64())])

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        found = []
        for key in inputs[0]["key"].to_pylist():
            self.counts[key] = self.counts.get(key, 0) + 1
            found.append({"key": key, "count": self.counts[key]})
        return pa.RecordBatch.from_pylist(found, self.output(()))


def query_of(spark: SparkSession, home: Path, end: str) -> seep.Query:
    """Rows as they are -> files; counted by key -> Spark."""
    files = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    rows = files.selectExpr("n", f"n % {KEYS} as key")
    trigger = {"availableNow": True} if end == "available" else None
    query = seep.Query("killed")
    source = query.source(
        "rows", seep.from_spark(rows, checkpoint=home / "checkpoint-in", trigger=trigger, partitions=2)
    )
    source.sink("files", seep.sinks.parquet(home / "files", roll=3))
    source.key_by("key").apply("counting", Counting).sink("spark", seep.sinks.spark(home / "spool"))
    return query


def come_to(run: Run, end: str, rows: int) -> None:
    if end != "available":
        wait_until(lambda: run.rows_read >= rows, 120.0)
    if end == "finish":
        run.finish()
    if end != "stop":
        assert run.wait(120)


def main(home: Path, end: str, rows: int) -> None:
    spark = for_small_data(SparkSession.builder.master("local[12]").getOrCreate())
    storage = StorageSettings(location=str(home / "storage"), every=1)
    options: dict[str, Any] = {"epoch": 0.02, "checkpoint": 0.3, "nodes": 2, "storage": storage}
    with seep.launch(query_of(spark, home, end), spark, **options) as run:
        written = run.to_parquet(home / "result")
        come_to(run, end, rows)
        if end != "stop":
            written.processAllAvailable()
        written.stop()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
