"""The traffic as a data source of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lrb.generator import Recording, TrafficSettings
from lrb.sources.spark_source import TrafficOptions, register
from primitives.errors import UserError
from seep.spark.session import open_session

OPTIONS = {"xways": 3, "partitions": 2, "seconds": 15, "seed": 5, "secondsPerBatch": 8}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with open_session(SparkContext._active_spark_context, name="tests") as host:
        session = SparkSession(host.context)
        register(session)
        yield session


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    recording = Recording.of(TrafficSettings(seconds=15, seed=5))
    return sorted(tuple(row.values()) for row in recording.play(0, 15, range(3)).to_pylist())


def test_a_table_holds_all_of_the_traffic(spark: SparkSession, expected: list[tuple[int, ...]]) -> None:
    rows = spark.read.format("linear-road").options(**OPTIONS).load().collect()
    assert sorted(tuple(row) for row in rows) == expected


def test_a_stream_brings_all_of_it_and_goes_on_where_it_stopped(
    spark: SparkSession, expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    stream = spark.readStream.format("linear-road").options(**OPTIONS).load()
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    for _ in range(2):  # a batch each
        writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer.trigger(once=True).start(out).awaitTermination()
    rows = spark.read.parquet(out).collect()
    assert sorted(tuple(row) for row in rows) == expected


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"xways": "many"}, "no number"), ({"partitions": "0"}, "1 or more"), ({"rate": "-1"}, "above 0")],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        TrafficOptions.of(wrong)
