"""The in-memory source: batches that are sent to the nodes with the query."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa

from primitives.errors import UserError
from seep.rows.batches import concat
from seep.rows.times import Duration
from seep.sources.base import ReaderDefinition, check_partitions
from seep.sources.reader import Block, SourceReader

Given: TypeAlias = pa.RecordBatch | pa.Table


def memory(
    batches: Given | Iterable[Given], *, time: str | None = None, out_of_order: Duration = 0, partitions: int = 1
) -> Memory:
    """Reads the rows of some batches or tables, in their order, divided equally among the partitions.

    >>> memory(pa.record_batch({"n": [1, 2, 3]})).schema.names
    ['n']
    """
    given = [batches] if isinstance(batches, Given) else list(batches)
    return Memory(_as_table(given), time, out_of_order, check_partitions(partitions))


class Memory(ReaderDefinition):
    """See `memory`."""

    def __init__(self, table: pa.Table, time: str | None, out_of_order: Duration, partitions: int) -> None:
        super().__init__(time, out_of_order)
        self._table = table
        self._partitions = partitions

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def partitions(self) -> int:
        return self._partitions

    def reader(self) -> SourceReader:
        return MemoryReader(self._table, self._partitions)


class MemoryReader(SourceReader):
    """Reads batches in memory; an offset is a number of rows of a partition."""

    def __init__(self, table: pa.Table, partitions: int) -> None:
        bounds = [table.num_rows * i // partitions for i in range(partitions + 1)]
        self._parts = [table.slice(a, b - a) for a, b in pairwise(bounds)]

    def read(self, partition: int, offset: int, limit: int) -> Block:
        """See `SourceReader`."""
        part = self._parts[partition]
        rows = concat(part.slice(offset, limit).to_batches(), part.schema)
        return Block(rows, offset + len(rows), offset + len(rows) >= part.num_rows)


def _as_table(given: list[Given]) -> pa.Table:
    if not given:
        raise UserError("a memory source needs at least one batch, for its columns; an empty one will do")
    tables = [pa.Table.from_batches([each]) if isinstance(each, pa.RecordBatch) else each for each in given]
    for at, table in enumerate(tables):
        if not table.schema.equals(tables[0].schema):
            raise UserError(
                f"batch {at} of a memory source has the columns [{_columns(table.schema)}], "
                f"the first one has [{_columns(tables[0].schema)}]; all must have the same"
            )
    return pa.concat_tables([table.replace_schema_metadata(tables[0].schema.metadata) for table in tables])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
