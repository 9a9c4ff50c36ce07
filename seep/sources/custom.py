"""The custom source: a reader that the user writes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from seep.rows.times import Duration
from seep.sources.base import ReaderDefinition, check_partitions
from seep.sources.reader import SourceReader


def custom(
    reader: Callable[[], SourceReader],
    schema: pa.Schema,
    *,
    partitions: int = 1,
    time: str | None = None,
    out_of_order: Duration = 0,
) -> CustomSource:
    """Makes a source from your own reader: a subclass of `SourceReader`, or a function that makes such an object.

    `reader` is called once for every instance, on its node.

    >>> from seep.sources.reader import Block
    >>> class Countdown(SourceReader):
    ...     def start(self, partition):
    ...         return 3
    ...
    ...     def read(self, partition, offset, limit):
    ...         left = max(offset - limit, 0)
    ...         return Block(pa.record_batch({"n": list(range(offset, left, -1))}), left, ended=left == 0)
    >>> custom(Countdown, pa.schema([("n", pa.int64())])).partitions
    1
    """
    return CustomSource(reader, schema, check_partitions(partitions), time, out_of_order)


class CustomSource(ReaderDefinition):
    """See `custom`."""

    def __init__(
        self,
        make: Callable[[], SourceReader],
        schema: pa.Schema,
        partitions: int,
        time: str | None,
        out_of_order: Duration,
    ) -> None:
        super().__init__(time, out_of_order)
        self._make = make
        self._schema = schema
        self._partitions = partitions

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def partitions(self) -> int:
        return self._partitions

    def reader(self) -> SourceReader:
        return self._make()
