"""A driver in a process of its own: a stream of files through windows to Spark again, while all that can fail does.

Spark tries tasks three times: the first attempt of one partition of a batch fails in the middle of its push, that of
another one when all is pushed. Ingress nodes are killed, the query that reads the results is stopped and goes on from
its checkpoint, and the whole run is given up and goes on from what it has stored. Prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import seep
from seep.driver import feed
from seep.running.run import Run
from seep.spark.inlet.push import PushSettings, push
from seep.spark.session import Host, open_session
from seep.storage.settings import StorageSettings
from tests.runtime.counting import recovered, wait_until
from tests.spark.small import for_small_data

FILES, LATER, ROWS, KEYS, WINDOW = 8, 3, 600, 7, 250
#: Spark reads files by their age: they are a second apart.
EARLIER = 1_700_000_000
#: An instance on each node: state is lost if its node and that with its backup are the same, and that one is killed.
OPTIONS: dict[str, Any] = {"epoch": 0.05, "checkpoint": 0.5, "spare": 1}


# -- tasks that fail ---------------------------------------------------------------------------------------------------


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
    """In the first batch in which there is something to push: not again."""
    try:
        Path(failures, how).touch(exist_ok=False)
    except FileExistsError:
        return
    raise ValueError(how)


# -- the query ---------------------------------------------------------------------------------------------------------


def write_file(directory: Path, file: int) -> None:
    numbers = range(file * ROWS, (file + 1) * ROWS)
    path = directory / f"{file:03}.parquet"
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), path)
    os.utime(path, (EARLIER + file, EARLIER + file))


def windows(spark: SparkSession, home: Path, sink: Any) -> seep.Query:
    """A stream of files, in three partitions each -> counts and sums by key and window -> sink"""
    files = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).parquet(str(home / "files"))
    rows = files.selectExpr("n", f"n % {KEYS} as key").repartition(3)
    source = seep.from_spark(
        rows, time="n", out_of_order=ROWS, trigger={"availableNow": True}, checkpoint=home / "checkpoint-in"
    )
    query = seep.Query("chaos")
    keyed = query.source("numbers", source, rate=1_500, parallelism=2).key_by("key")
    keyed.window(seep.tumbling(WINDOW)).aggregate("counter", n=seep.count(), total=seep.sum("n")).sink("out", sink)
    return query


def expected(files: int) -> list[list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for n in range(files * ROWS):
        found.setdefault((n // WINDOW * WINDOW, n % KEYS), []).append(n)
    return sorted([key, start, len(each), sum(each)] for (start, key), each in found.items())


class Written:
    """Writes batches by their id, so that one that comes again replaces itself."""

    def __init__(self, frame: DataFrame, home: Path) -> None:
        self.rows: dict[int, list[list[int]]] = {}
        self._frame, self._checkpoint = frame, str(home / "checkpoint-out")
        self.query: StreamingQuery = self._started()

    def _started(self) -> StreamingQuery:
        return self._frame.writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(self._write).start()

    def _write(self, batch: DataFrame, id: int) -> None:
        self.rows[id] = [[row["key"], row["window_start"], row["n"], row["total"]] for row in batch.collect()]

    def begin_again(self) -> None:
        self.query.stop()
        self.query = self._started()

    def all(self) -> list[list[int]]:
        return sorted(row for rows in self.rows.values() for row in rows)


def more_read(run: Run, rows: int) -> None:
    goal = run.rows_read + rows
    wait_until(lambda: run.rows_read >= goal, 120.0)


# -- the story ---------------------------------------------------------------------------------------------------------


def story(host: Host, home: Path) -> dict[str, Any]:
    spark = for_small_data(SparkSession(host.context))
    (home / "files").mkdir()
    for file in range(FILES):
        write_file(home / "files", file)
    sink = seep.sinks.spark(home / "out")
    stored = OPTIONS | {"storage": StorageSettings(location=str(home / "storage"), every=1)}
    with seep.launch(windows(spark, home, sink), spark, **stored) as run:
        written = Written(run.to_spark(), home)
        more_read(run, ROWS)
        run.kill("numbers[0]")
        recovered(run)
        wait_until(lambda: bool(written.rows), 120.0)
        written.begin_again()
        before = len(run.events.of("persisted"))
        wait_until(lambda: len(run.events.of("persisted")) > before)
        more_read(run, ROWS // 4)  # which no checkpoint has
        healed, read = bool(run.events.of("recovered")), run.rows_read
    for file in range(FILES, FILES + LATER):
        write_file(home / "files", file)
    with seep.launch(windows(spark, home, sink), spark, **stored, restore="latest") as run:
        more_read(run, ROWS // 4)
        run.kill("numbers[1]")
        run.wait(240)
        written.query.processAllAvailable()
        written.query.stop()
        healed_again, again = bool(run.events.of("recovered")), run.rows_read
    return {
        "equal": written.all() == expected(FILES + LATER),
        "healed": [healed, healed_again],
        "read": [0 < read < FILES * ROWS, again == (FILES + LATER) * ROWS],
        "refused": refused(spark, home),
    }


def refused(spark: SparkSession, home: Path) -> bool:
    """Whether a run that begins anew minds that Spark's checkpoint goes on."""
    write_file(home / "files", FILES + LATER)
    query = windows(spark, home, seep.sinks.discard())
    other = StorageSettings(location=str(home / "other"))
    try:
        with seep.launch(query, spark, **OPTIONS | {"nodes": 1, "spare": 0}, storage=other) as run:
            run.wait(120)
    except seep.UserError as reason:
        return "restore='auto'" in str(reason)
    return False


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, open_session(master="local[16,3]") as host:
        failures = Path(directory, "failures")
        failures.mkdir()
        vars(feed)["push"] = lambda settings, batches: failing(str(failures), settings, batches)
        told = story(host, Path(directory)) | {"failed": sorted(path.name for path in failures.iterdir())}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
