"""Events as a data source of Spark: a whole log as a table, or an endless stream, in the columns of logs.

register(spark)
spark.readStream.format("nexmark").option("rate", 100_000).option("eventsPerBatch", 50_000).load()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from nexmark.generator import EventSettings
from nexmark.log import log_part
from nexmark.schema import LOG
from primitives.errors import UserError

_EVENTS, _PER_BATCH = 100_000, 10_000
#: Option names, and the settings that they set.
_SETTINGS = {"seed": "seed", "rate": "rate", "dilation": "dilation", "inFlight": "in_flight", "outOfOrder": "group"}
_TYPES = {pa.int8(): "tinyint", pa.int64(): "bigint", pa.string(): "string"}


def register(spark: SparkSession) -> None:
    """Registers the format in a session."""
    spark.dataSource.register(NexmarkSource)


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Options of a reader, with these names in camel case."""

    events: int  #: size of a table; a stream ends with it only if it is given
    per_batch: int  #: events in a batch of a stream
    partitions: int
    settings: EventSettings
    is_bounded: bool

    @classmethod
    def of(cls, given: Any) -> EventOptions:
        """Checks and converts Spark's mapping, whose keys ignore case."""
        try:
            numbers: dict[str, Any] = {
                name: int(given.get(option)) for option, name in _SETTINGS.items() if given.get(option) is not None
            }
            events, batch = int(given.get("events", _EVENTS)), int(given.get("eventsPerBatch", _PER_BATCH))
            partitions = int(given.get("partitions", 1))
        except ValueError as reason:
            raise UserError(f"an option of nexmark is no number: {reason}") from reason
        if min(events, batch, partitions) < 1:
            raise UserError("events, eventsPerBatch and partitions of nexmark are 1 or more")
        texts: dict[str, Any] = {name: str(given.get(name, "true")).lower() == "true" for name in ("text", "filler")}
        return cls(events, batch, partitions, EventSettings(**numbers, **texts), given.get("events") is not None)

    @property
    def last(self) -> int | None:
        """Number of events, or None if the stream is endless."""
        return self.events if self.is_bounded else None

    def parts(self, first: int, end: int) -> list[EventPartition]:
        """Divides these positions evenly."""
        if first >= end:
            return []
        cuts = [first + (end - first) * part // self.partitions for part in range(self.partitions + 1)]
        return [EventPartition(low, high) for low, high in pairwise(cuts) if low < high]


class NexmarkSource(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> str:
        return ", ".join(f"{field.name} {_TYPES[field.type]}" for field in LOG)

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002
        return EventTable(EventOptions.of(self.options))

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002
        return EventStream(EventOptions.of(self.options))


class EventPartition(InputPartition):
    """Events at positions from `first` to before `end`."""

    def __init__(self, first: int, end: int) -> None:
        self.first, self.end = first, end


class EventTable(DataSourceReader):
    """A table with all events."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._options.parts(0, self._options.events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EventPartition)
        return log_part(self._options.settings, partition.first, partition.end, self._options.events)


class EventStream(DataSourceStreamReader):
    """A stream with a fixed number of events in each batch; an offset is the first unread position."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options

    def initialOffset(self) -> dict[str, int]:
        return {"position": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002
        end = start["position"] + self._options.per_batch
        return {"position": end if self._options.last is None else min(end, self._options.last)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._options.parts(start["position"], end["position"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EventPartition)
        return log_part(self._options.settings, partition.first, partition.end, self._options.last)
