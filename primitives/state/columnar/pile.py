"""Pile: rows of any types in a few batches, to which more are appended cheaply."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: Batches above these rows or bytes are not merged again, so that no merge takes long.
_LARGE, _LARGE_BYTES = 1 << 20, 1 << 28


class Pile:
    """Rows 0, 1, 2 …; a row is copied as often as the number of rows can be halved, until its batch is large.

    >>> pile = Pile(pa.schema([("n", pa.int64())]))
    >>> for n in [5, 6, 7]:
    ...     pile.append(pa.record_batch({"n": [n]}))
    >>> pile.take(np.array([0, 2]))[1].to_pydict()
    {'n': [5, 7]}
    """

    __slots__ = ("_batches", "_schema")

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        tail = [batch]
        while self._batches and _belong_together(self._batches[-1], tail):
            tail.insert(0, self._batches.pop())
        self._batches.append(tail[0] if len(tail) == 1 else pa.concat_batches(tail))

    def take(self, rows: Ints) -> tuple[Ints, pa.RecordBatch]:
        """Returns the given rows, batch by batch, and their positions in the request; ascending rows stay in order.

        Costs a look at each of `rows` for every batch, and a copy.
        """
        start, order, parts = 0, [], []
        for batch in self._batches:
            end = start + len(batch)
            mine = np.flatnonzero((rows >= start) & (rows < end))
            if len(mine):
                order.append(mine)
                parts.append(batch.take(pa.array(rows[mine] - start)))
            start = end
        if not parts:
            return np.empty(0, np.int64), pa.RecordBatch.from_pylist([], self._schema)
        return np.concatenate(order), pa.concat_batches(parts)

    def keep(self, rows: Ints) -> None:
        """Keeps only these rows, which ascend, and renumbers them."""
        start, batches, self._batches = 0, self._batches, []
        for batch in batches:
            mine = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + len(batch))]
            if len(mine):
                self.append(batch.take(pa.array(mine - start)))
            start += len(batch)


def _belong_together(batch: pa.RecordBatch, tail: list[pa.RecordBatch]) -> bool:
    rows = sum(map(len, tail))
    return (
        len(batch) <= 2 * rows
        and len(batch) + rows <= _LARGE
        and batch.nbytes + sum(part.nbytes for part in tail) <= _LARGE_BYTES
    )
