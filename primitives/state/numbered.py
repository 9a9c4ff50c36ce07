"""NumberedRows: the common part of containers that number their rows to distinguish rows of equal keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.slots import SlotSet, slots_of
from primitives.state.changes import Tracked
from primitives.state.chunk import Chunk
from primitives.state.container import check_fits
from primitives.state.keys import KeyColumns

_NEVER_MARKED = -(2**63)  # the epoch of rows written without a retained mark; before any other


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Rows removed at once: their identities, their slots, and the mark after which each was written."""

    identities: pa.RecordBatch
    slots: NDArray[np.uint32]
    born: NDArray[np.int64]


class NumberedRows(Tracked[list[RemovedRows]]):
    """Logs removed rows by identity, and makes chunks of the rows written and removed since a mark."""

    _keys: KeyColumns
    _identity: pa.Schema  #: the columns by which a row is removed
    _schema: pa.Schema  #: all columns

    @abstractmethod
    def _remove_same(self, identities: pa.RecordBatch) -> None:
        """Removes the rows with these identities."""

    @property
    def _last_mark(self) -> int:
        """The mark after which rows that are added now count as written."""
        interval = self._changes.current
        return _NEVER_MARKED if interval is None else interval.mark

    def _log_removed(
        self,
        places: NDArray[Any],
        born: NDArray[np.int64],
        hashes: NDArray[np.uint64],
        take: Callable[[NDArray[Any]], pa.RecordBatch],
    ) -> None:
        """Logs the rows at `places`, which are about to be removed, unless they were written after the last mark."""
        interval = self._changes.current
        if interval is None:
            return
        older = places[born[places] < interval.mark]
        if len(older):
            identities = take(older).select(self._identity.names)
            interval.log.append(RemovedRows(identities, slots_of(hashes[older], self.slot_bits), born[older]))

    def _removed(self, slots: SlotSet, since: int) -> list[pa.RecordBatch]:
        """Returns identities of the rows that were in some slots at a mark and have been removed since."""
        mask = slots.mask(self.slot_bits)
        return [
            gone.identities.filter(pa.array(mask[gone.slots] & (gone.born < since)))
            for interval in self._changes.since(since)
            for gone in interval.log
        ]

    def _chunk(self, slots: SlotSet, since: int | None, written: Callable[[SlotSet], pa.RecordBatch]) -> Chunk:
        """Returns the chunk for `snapshot`; `written` returns its rows, given the slots that it replaces."""
        replaced = slots if since is None else self._changes.replaced_since(since)
        removed = [] if since is None else self._removed(slots - replaced, since)
        return self._chunk_of(self._keys.names, replaced, written(replaced), concatenated(removed, self._identity))

    def _clear_for(self, chunk: Chunk) -> None:
        """Removes all rows that a chunk replaces, deletes or writes again."""
        check_fits(chunk, self, self.version, self._keys.names, self._schema)
        self.drop(chunk.replaced)
        kept = ~chunk.replaced.mask(self.slot_bits)[chunk.slots_of_rows()]
        self._remove_same(chunk.rows.select(self._identity.names).filter(pa.array(kept)))
        self._remove_same(chunk.deleted)


def concatenated(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of all parts; without parts, an empty batch of the schema."""
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema)
