"""Files -> Spark SQL -> the longest streaks of readings, kept by seep -> Parquet, written by Spark.

python examples/spark_pipeline.py                                   # a stream, on files that it makes itself
spark-submit --master 'local[16]' examples/spark_pipeline.py --in one_line
python examples/spark_pipeline.py --readings DIRECTORY --output DIRECTORY --home DIRECTORY

Started again, the stream goes on where it was, however it ended before: what it has to know for that is in `--home`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import seep
from seep.storage.settings import StorageSettings

SENSORS, READINGS, FILES = 20, 500, 4
COLUMNS = "sensor string, at timestamp, celsius double"
#: A reading that lies nearer to zero than this is no reading.
LEAST = 0.5


class Streaks(seep.Operator):
    """An operator that counts consecutive readings above zero, and puts out each longest streak so far."""

    def open(self, context: seep.Context) -> None:
        self.states = context.values("streaks", pa.struct([("now", pa.int64()), ("longest", pa.int64())]))

    def output(self, inputs: Sequence[Any]) -> pa.Schema:  # noqa: ARG002
        return pa.schema([("sensor", pa.string()), ("at", pa.timestamp("us", "UTC")), ("longest", pa.int64())])

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        found = [row for reading in inputs.in_sequence().to_pylist() for row in self._longer(**reading)]
        return pa.RecordBatch.from_pylist(found, self.output(()))

    def _longer(self, sensor: str, at: Any, celsius: float) -> Iterable[dict[str, Any]]:
        state = self.states.get(sensor, {"now": 0, "longest": 0})
        now = state["now"] + 1 if celsius > 0 else 0
        self.states[sensor] = {"now": now, "longest": max(now, state["longest"])}
        if now > state["longest"]:
            yield {"sensor": sensor, "at": at, "longest": now}


def plausible(readings: DataFrame) -> DataFrame:
    """Selects plausible readings with Spark's SQL, which needs no state for that."""
    return readings.where(f"abs(celsius) >= {LEAST}")


def stream(spark: SparkSession, readings: str, output: str, home: Path) -> None:
    """Streams files through a query. `availableNow` ends the stream when all are read; without it, it continues."""
    rows = plausible(spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(readings))
    query = seep.Query("streaks")
    given = seep.from_spark(rows, time="at", trigger={"availableNow": True}, checkpoint=home / "checkpoint")
    keyed = query.source("readings", given).key_by("sensor")
    keyed.apply("streaks", Streaks).sink("out", seep.sinks.spark(home / "spool"))
    storage = StorageSettings(location=str(home / "storage"))
    with seep.launch(query, spark, epoch=0.05, storage=storage) as run:
        writing = run.to_parquet(output)
        run.wait()
        writing.processAllAvailable()
        writing.stop()


def one_line(spark: SparkSession, readings: str, output: str, home: Path) -> None:  # noqa: ARG001
    """A finite DataFrame in, a finite DataFrame out; there is nothing to go on with."""
    # All readings of a sensor in one partition, in order: partitions are read side by side.
    rows = plausible(spark.read.schema(COLUMNS).parquet(readings)).repartition(4, "sensor").sortWithinPartitions("at")
    streaks = seep.stateful(rows, key="sensor", operator=Streaks, time="at", epoch=0.05)
    streaks.write.mode("overwrite").parquet(output)


def make_readings(directory: str) -> None:
    """Every sensor has a reading each second, warm and cold by turns."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    for file in range(FILES):
        numbers = range(file * READINGS * SENSORS // FILES, (file + 1) * READINGS * SENSORS // FILES)
        rows = {
            "sensor": pa.array([f"s{n % SENSORS}" for n in numbers]),
            "at": pa.array([n // SENSORS * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
            "celsius": pa.array([(n * 7919 % 1009 - 300) / 20 for n in numbers], pa.float64()),
        }
        pq.write_table(pa.table(rows), Path(directory, f"{file:03}.parquet"))


def session() -> SparkSession:
    """The one that spark-submit has prepared; else one of this machine, with task slots for nodes and for readers."""
    builder = SparkSession.builder.appName("streaks")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    return (builder if is_submitted else builder.master("local[16]")).getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readings", help="a directory of Parquet files; without it some are made")
    parser.add_argument("--output", default="streaks", help="a directory for the streaks")
    parser.add_argument("--home", type=Path, default="streaks-home", help="a directory for all that is to last")
    parser.add_argument("--in", dest="form", choices=("stream", "one_line"), default="stream")
    given = parser.parse_args()
    spark = session()
    readings = given.readings or str(given.home / "readings")
    if given.readings is None and not Path(readings).exists():
        make_readings(readings)
    {"stream": stream, "one_line": one_line}[given.form](spark, readings, given.output, given.home)
    longest = spark.read.parquet(given.output).groupBy("sensor").max("longest").orderBy("sensor")
    sys.stdout.write("".join(f"{sensor}: {seconds} seconds\n" for sensor, seconds in longest.collect()))
    spark.stop()


if __name__ == "__main__":
    main()
