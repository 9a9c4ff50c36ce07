"""Queryable state: the state of an operator of a running query, all of it after the same epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from primitives.errors import UserError
from primitives.state.chunk import Chunk, merge_chunks
from primitives.state.file_chunk import FileChunk
from primitives.state.on_disk.row_files import read_pieces
from seep.protocol.cuts import CutComplete


@dataclass(frozen=True, slots=True)
class StateView:
    """The state of one operator after an epoch; the query has continued since."""

    operator: str
    epoch: int
    containers: Mapping[str, pa.Table]
    keys: Mapping[str, tuple[str, ...]]  #: container -> its key columns

    @classmethod
    def of(cls, operator: str, cut: CutComplete) -> StateView:
        chunks = [rows for part in cut.parts.values() for chunk in part.reference for rows in _in_rows(chunk)]
        names = dict.fromkeys(chunk.name for chunk in chunks)
        tables = {name: _table([chunk for chunk in chunks if chunk.name == name]) for name in names}
        return cls(operator, cut.cut.epoch, tables, {chunk.name: chunk.keys for chunk in chunks})

    def to_arrow(self, container: str | None = None) -> pa.Table:
        """Returns the rows of a container; the name may be left out if there is only one."""
        return self.containers[self._named(container)]

    def get(self, *key: Any, container: str | None = None) -> list[dict[str, Any]]:
        """Returns the rows of a key: one, or one for each of its subkeys; none if it has no state."""
        name = self._named(container)
        columns, table = self.keys[name], self.containers[name]
        if len(key) != len(columns):
            raise UserError(
                f"state {name!r} of {self.operator} is keyed by {', '.join(columns)}; give a value for each"
            )
        found = pa.scalar(True)
        for column, value in zip(columns, key, strict=True):
            found = pc.and_(found, pc.equal(table[column], pa.scalar(value, table[column].type)))
        rows: list[dict[str, Any]] = (table.filter(found) if len(table) else table).to_pylist()
        return rows

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
