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

#: Seconds of a stream's batch, and of an Arrow batch.
_SECONDS = 10
#: Columns of a data source may be null, says Spark.
_NULLABLE = pa.schema([field.with_nullable(True) for field in INPUT])


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    spark.dataSource.register(LinearRoad)


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """Options of a reader, under these names with `seconds_per_batch` as `secondsPerBatch`."""

    xways: int
    partitions: int  #: in which Spark reads; each has some of the expressways
    seconds_per_batch: int
    settings: TrafficSettings  #: of the one expressway: `seconds`, `seed`, `rate`

    @classmethod
    def of(cls, given: Any) -> TrafficOptions:
        """Checked; `given` is the mapping of Spark, whose keys know no case."""
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
        """These seconds, cut by expressways."""
        cuts = [self.xways * part // self.partitions for part in range(self.partitions + 1)]
        if first >= end:
            return []
        return [TrafficPartition(first, end, low, high) for low, high in pairwise(cuts)]


class LinearRoad(DataSource):
    """The format."""

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
    """All seconds at once."""

    def __init__(self, options: TrafficOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._options.parts(0, self._options.settings.seconds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _played(self._options, partition)


class TrafficStream(DataSourceStreamReader):
    """So many seconds in each batch; an offset is the first second that was not read."""

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
    """Made once in each of Spark's Python processes, which serve one batch after another."""
    return Recording.of(settings)
