"""The generator source: rows that a function computes from their position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from primitives.errors import UserError
from seep.rows.batches import as_batch, empty
from seep.rows.times import Duration
from seep.sources.base import ReaderDefinition, check_partitions
from seep.sources.reader import Block, SourceReader

#: (partition, number of the first row, number of rows) -> these rows, the same every time.
Function = Callable[[int, int, int], pa.RecordBatch | Mapping[str, Any]]


def generator(
    function: Function,
    schema: pa.Schema,
    *,
    partitions: int = 1,
    rows: int | None = None,
    time: str | None = None,
    out_of_order: Duration = 0,
    stamp: str | None = None,
    shed: bool = False,
) -> Generator:
    """Makes rows with `function(partition, first, count)`, which must return the same rows for the same numbers.

    `rows` is the number of rows of each partition; without it, the source never ends. `stamp` names a column of the
    schema that the function leaves out: it is filled with the time when the row was due by the rate (without a rate:
    when it was read), in microseconds of unix time, as int64 or timestamp; sinks can compute latencies from it. With
    `shed`, rows are skipped, and counted, if more are overdue than an epoch can hold.

    >>> schema = pa.schema([("n", pa.int64())])
    >>> numbers = generator(lambda partition, first, count: {"n": range(first, first + count)}, schema, rows=10)
    >>> numbers.reader().read(0, 8, 5).rows.to_pydict()
    {'n': [8, 9]}
    """
    if rows is not None and rows < 0:
        raise UserError(f"rows={rows!r}; a generator has 0 rows per partition or more, or None for no end")
    return Generator(function, schema, check_partitions(partitions), rows, time, out_of_order, stamp, shed)


class Generator(ReaderDefinition):
    """See `generator`."""

    def __init__(
        self,
        function: Function,
        schema: pa.Schema,
        partitions: int,
        rows: int | None,
        time: str | None,
        out_of_order: Duration,
        stamp: str | None,
        shed: bool,
    ) -> None:
        super().__init__(time, out_of_order)
        self.stamp = stamp
        self.shed = shed
        self._function = function
        self._schema = schema
        self._partitions = partitions
        self._rows = rows

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def partitions(self) -> int:
        return self._partitions

    def check_data(self) -> None:
        if self.stamp is None:
            return
        index = self._schema.get_field_index(self.stamp)
        if index < 0 or self._schema.field(index).type not in (pa.int64(), pa.timestamp("us")):
            raise UserError(f"stamp={self.stamp!r} must name a column of type int64 or timestamp[us] of its schema")

    def reader(self) -> SourceReader:
        columns = [field for field in self._schema if field.name != self.stamp]
        return GeneratorReader(self._function, self._rows, pa.schema(columns))


class GeneratorReader(SourceReader):
    """Reads rows that a function computes; an offset is the number of a row."""

    def __init__(self, function: Function, rows: int | None, schema: pa.Schema) -> None:
        self._function = function
        self._rows = rows
        self._nothing = empty(schema)

    def read(self, partition: int, offset: int, limit: int) -> Block:
        """See `SourceReader`."""
        count = self._count(offset, limit)
        rows = as_batch("generator", self._function(partition, offset, count)) if count else self._nothing
        if len(rows) != count:
            raise UserError(
                f"its function was asked for {count} rows from row {offset} of partition {partition}, "
                f"and returned {len(rows)}; return exactly as many"
            )
        return Block(rows, offset + count, self._rows is not None and offset + count >= self._rows)

    def skip(self, partition: int, offset: int, rows: int) -> tuple[int, int]:  # noqa: ARG002
        """See `SourceReader`."""
        count = self._count(offset, rows)
        return offset + count, count

    def _count(self, offset: int, limit: int) -> int:
        return limit if self._rows is None else max(min(limit, self._rows - offset), 0)
