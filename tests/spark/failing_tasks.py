"""A driver whose Spark tries tasks three times, with tasks that fail after or while they push: a process of its own.

Prints a line of JSON: the numbers that came out, and how many attempts failed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import seep
from seep.spark.inlet import feed
from seep.spark.inlet.push import PushSettings, push
from seep.spark.session import open_session

ROWS, PARTITIONS = 3_000, 3


def failing(failures: str, settings: PushSettings, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pushes, as tasks do. Attempt 0 of partition 0 fails in the middle, that of partition 1 when all is pushed."""
    context = TaskContext.get()
    assert context is not None
    attempt = context.partitionId() if context.attemptNumber() == 0 else None
    yield from push(settings, breaking_off(failures, batches) if attempt == 0 else batches)
    if attempt == 1:
        fail(failures, "pushed")


def breaking_off(failures: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        fail(failures, "broke off")


def fail(failures: str, how: str) -> None:
    Path(failures, how).touch()
    raise ValueError(how)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as failures,
        open_session(master="local[8,3]") as host,
    ):
        vars(feed)["push"] = lambda settings, batches: failing(failures, settings, batches)
        df = SparkSession(host.context).range(0, ROWS, 1, PARTITIONS).selectExpr("id as n")
        query = seep.Query("failing")
        query.source("numbers", seep.from_spark(df)).sink("out", seep.sinks.collect())
        with seep.launch(query, host.context, epoch=0.02) as run:
            run.wait(120)
            numbers = sorted(run.result("out")["n"].to_pylist())
        failed = sorted(path.name for path in Path(failures).iterdir())
        sys.stdout.write(json.dumps({"numbers": numbers, "failed": failed}) + "\n")


if __name__ == "__main__":
    main()
