"""Queryable state: the state of an operator of a running query, all of it after the same epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from primitives.errors import UserError
from primitives.slots import DEFAULT_SLOT_BITS
from primitives.state.chunk import Chunk, merge_chunks
from primitives.state.file_chunk import FileChunk
from primitives.state.keys import KeyColumns, same_rows
from primitives.state.on_disk.row_files import read_pieces
from seep.protocol.cuts import CutComplete
from seep.running.state_sql import SqlLimits, StateSql, as_streams

#: Runs the queries of views that a program of the user has.
_SQL = StateSql()


@dataclass(frozen=True, slots=True)
class StateView:
    """The state of one operator after an epoch; the query has continued since."""

    operator: str
    epoch: int
    containers: Mapping[str, pa.Table]
    keys: Mapping[str, tuple[str, ...]]  #: container -> its key columns
    identity: Mapping[str, tuple[str, ...]]  #: container -> the columns that identify a row, key columns first

    @classmethod
    def of(cls, operator: str, cut: CutComplete) -> StateView:
        chunks = [rows for part in cut.parts.values() for chunk in part.reference for rows in _in_rows(chunk)]
        names = dict.fromkeys(chunk.name for chunk in chunks)
        tables = {name: _table([chunk for chunk in chunks if chunk.name == name]) for name in names}
        keys = {chunk.name: chunk.keys for chunk in chunks}
        return cls(operator, cut.cut.epoch, tables, keys, {chunk.name: chunk.identity for chunk in chunks})

    def to_arrow(self, container: str | None = None) -> pa.Table:
        """Returns the rows of a container; the name may be left out if there is only one."""
        return self.containers[self._named(container)]

    def get(self, *key: Any, container: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows of a key: one, or one for each of its subkeys; none if it has no state."""
        rows: list[dict[str, Any]] = self.rows_of(key, self._named(container)).to_pylist()
        return rows

    def sql(self, query: str, *, seconds: float = 10.0) -> pa.Table:
        """Returns the result of a SELECT of DuckDB, in which each container is a table of its name.

        Python objects are JSON text. The query runs in a process of its own, which can reach nothing but these tables,
        with limits of time and memory. It needs the extra `dashboard`.
        """
        limits = SqlLimits(seconds=seconds)
        answer = _SQL.query(query, as_streams(self.containers), limits)
        if answer.more:
            raise UserError(f"the result has more than {limits.nbytes >> 20} MiB; select less, or add a LIMIT")
        return answer.rows

    def rows_of(self, key: Sequence[Any], container: str) -> pa.Table:
        """Returns the rows of a key, of which null and NaN are values like any other."""
        columns, table = self.keys[container], self.containers[container]
        if len(key) != len(columns):
            raise UserError(
                f"state {container!r} of {self.operator} is keyed by {', '.join(columns)}; give a value for each"
            )
        types = {name: table.schema.field(name).type for name in columns}
        wanted = KeyColumns(container, DEFAULT_SLOT_BITS, types, ()).normal_columns([[value] for value in key], 1)
        repeated = [column.take(pa.array(np.zeros(len(table), np.int64))) for column in wanted]
        there = [table[name].combine_chunks() for name in columns]
        return table.filter(pa.array(same_rows(there, repeated)))

    def _named(self, container: str | None) -> str:
        if container is None and len(self.containers) == 1:
            return next(iter(self.containers))
        if container is None or container not in self.containers:
            raise UserError(f"{self.operator} has the state {', '.join(self.containers)}; say which one you want")
        return container


def _in_rows(chunk: Chunk | FileChunk) -> Iterable[Chunk]:
    return read_pieces(chunk) if isinstance(chunk, FileChunk) else (chunk,)


def _table(chunks: list[Chunk]) -> pa.Table:
    """Concatenates the rows of all instances: each has other slots."""
    return pa.Table.from_batches([merge_chunks([chunk]).rows for chunk in chunks])
