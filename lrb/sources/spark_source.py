"""Spark source: `spark.readStream.format("linear-road")`, the traffic of Linear Road as a data source of Spark.

    register(spark)
    traffic = spark.readStream.format("linear-road").option("xways", 4).option("secondsPerBatch", 30).load()

Every expressway has the recording of one, as with `Recording.play`. `spark.read` gives all of it as a plain table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from lrb.generator import Recording, TrafficSettings
from lrb.schema import INPUT
from primitives.errors import UserError

#: Seconds of traffic in a batch of a stream, and in an Arrow batch.
_SECONDS = 10
#: Spark declares all columns of a data source nullable.
_NULLABLE = pa.schema([field.with_nullable(True) for field in INPUT])


def register(spark: SparkSession) -> None:
    """Registers the format in a session."""
    spark.dataSource.register(LinearRoad)


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """Options of a reader, with these names; `seconds_per_batch` is written `secondsPerBatch`."""

    xways: int
    partitions: int  #: number of Spark's partitions, which share the expressways
    seconds_per_batch: int
    settings: TrafficSettings  #: settings of the recorded expressway: `seconds`, `seed`, `rate`

    @classmethod
    def of(cls, given: Any) -> TrafficOptions:
        """Checks and converts Spark's mapping, whose keys ignore case."""
        try:
            settings = TrafficSettings(
                seconds=int(given.get("seconds", TrafficSettings().seconds)),
                seed=int(given.get("seed", TrafficSettings().seed)),
                rate=float(given.get("rate", 1.0)),
            )
            xways, batch = int(given.get("xways", 1)), int(given.get("secondsPerBatch", _SECONDS))
            partitions = int(given.get("partitions", 1))
        except ValueError as reason:
            raise UserError(f"an option of linear-road is no number: {reason}") from reason
        if min(xways, batch, partitions) < 1:
            raise UserError("xways, partitions and secondsPerBatch of linear-road are 1 or more")
        return cls(xways, min(partitions, xways), batch, settings)

    def parts(self, first: int, end: int) -> list[TrafficPartition]:
        """Divides these seconds by expressways."""
        cuts = [self.xways * part // self.partitions for part in range(self.partitions + 1)]
        if first >= end:
            return []
        return [TrafficPartition(first, end, low, high) for low, high in pairwise(cuts)]


class LinearRoad(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return "linear-road"

    def schema(self) -> str:
        kinds = {pa.int32(): "int", pa.int64(): "bigint"}
        return ", ".join(f"{field.name} {kinds[field.type]}" for field in INPUT)

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002
        return TrafficTable(TrafficOptions.of(self.options))

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002
        return TrafficStream(TrafficOptions.of(self.options))


class TrafficPartition(InputPartition):
    """Seconds from `first` to before `end`, of the expressways from `low` to before `high`."""

    def __init__(self, first: int, end: int, low: int, high: int) -> None:
        self.first, self.end, self.xways = first, end, (low, high)


class TrafficTable(DataSourceReader):
    """A table with all seconds."""

    def __init__(self, options: TrafficOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._options.parts(0, self._options.settings.seconds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _played(self._options, partition)


class TrafficStream(DataSourceStreamReader):
    """A stream with a fixed number of seconds in each batch; an offset is the first unread second."""

    def __init__(self, options: TrafficOptions) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:
        return {"second": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002
        return {"second": min(start["second"] + self._options.seconds_per_batch, self._options.settings.seconds)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._options.parts(start["second"], end["second"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _played(self._options, partition)


def _played(options: TrafficOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, TrafficPartition)
    recording = _recording(options.settings)
    for first in range(partition.first, partition.end, _SECONDS):
        played = recording.play(first, min(first + _SECONDS, partition.end), range(*partition.xways))
        yield pa.record_batch(played.columns, schema=_NULLABLE)


@cache
def _recording(settings: TrafficSettings) -> Recording:
    """Returns the recording, made once in each of Spark's Python processes, as these serve many batches."""
    return Recording.of(settings)
