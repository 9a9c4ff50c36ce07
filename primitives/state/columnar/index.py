"""Index: finds the row numbers of keys, and assigns numbers to new keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.state.columnar.bitmap import Bitmap
from primitives.state.columnar.fixed import Selection, row_numbers
from primitives.state.columnar.memory import Region
from primitives.state.columnar.probe import Probe
from primitives.state.columnar.segments import (
    COUNTS,
    CREATED,
    ENTRIES,
    FACTS,
    FREE,
    PLACES,
    ROOMY,
    ROWS,
    SEGMENTS,
    Segments,
    append,
    insert_all,
    locate,
    remove,
    spread,
)
from primitives.state.columnar.table import RowTable

_MAX_ROWS = 2**32 - 1


class Located(NamedTuple):
    """The rows of a batch's keys."""

    rows: NDArray[np.int64]  #: -1 if there is none
    created: NDArray[np.int64]  #: positions in the batch of the keys that got a new row
    hashes: NDArray[np.uint64]


class Index:
    """Numbers the rows of a table by key: 0, 1, 2 …; numbers of removed rows are used again.

    >>> index = Index(RowTable([pa.int64()]))
    >>> index.locate([pa.array([7, 9, 7])], create=True).rows.tolist()
    [0, 1, 0]
    >>> index.locate([pa.array([9, 8])], create=False).rows.tolist()
    [1, -1]
    """

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self.live = Bitmap()  #: the existing rows
        self._free: Region[np.int64] = Region(np.int64)
        self._clear()

    def _clear(self) -> None:
        self._places: Region[np.uint64] = Region(np.uint64)
        self._directory: Region[np.int32] = Region(np.int32)
        self._facts: Region[np.int32] = Region(np.int32)
        self._counts = np.zeros(COUNTS, np.int64)
        self._add_segments(1)
        self._counts[SEGMENTS] = 1

    def __len__(self) -> int:
        return self.end - int(self._counts[FREE])

    @property
    def end(self) -> int:
        """One more than the highest row number ever in use."""
        return int(self._counts[ROWS])

    @property
    def rows(self) -> Selection:
        """All rows."""
        return self.live.rows() if self._counts[FREE] else slice(0, self.end)

    def locate(self, keys: Sequence[pa.Array], *, create: bool) -> Located:
        """The row of each key, given as columns of the declared types; with `create`, there is one for every key."""
        probe = self._table.probe(keys)
        count = len(probe.hashes)
        rows, created = np.empty(count, np.int64), np.empty(count if create else 0, np.int64)
        if create:
            self._reserve(count, len(probe.data))
        self._counts[CREATED] = done = 0
        while (done := locate(self._segments(), self._table.stored(), probe, rows, created, done, create)) < count:
            self._add_segments(1)
        created = created[: self._counts[CREATED]]
        self.live.add(rows[created])
        self._table.set_defaults(rows[created])
        return Located(rows, created, probe.hashes)

    def append(self, probe: Probe) -> slice:
        """Adds new rows at the end for keys that have none, in order; several times as fast as `locate`.

        If a key has a row after all, then it and the keys after it get none.
        """
        first, count = self.end, len(probe.hashes)
        self._reserve(count, len(probe.data))
        self._table.append(first, probe)
        done = 0
        while (done := append(self._segments(), self._table.stored(), probe, done)) < count and self._is_used_up:
            self._add_segments(1)
        self._abandon(row_numbers(slice(self.end, first + count)))
        rows = slice(first, self.end)
        self.live.add(row_numbers(rows))
        return rows

    def make_room(self, more: int) -> None:
        """Reserves segments for this many more rows if these are most of all, so that fewer segments are split."""
        if more > len(self):
            depth = ((len(self) + more - 1) // ROOMY).bit_length()
            self._add_segments(max((1 << depth) - int(self._counts[SEGMENTS]), 0))
            spread(self._segments(), depth)

    def distinct(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The given numbers that are rows, each once."""
        members = self.live.discard(rows)
        self.live.add(members)
        return members

    def remove(self, rows: NDArray[np.int64]) -> None:
        """Removes rows, each given once; their numbers can be used for new keys."""
        self._free.reserve(int(self._counts[FREE]) + len(rows))
        remove(self._segments(), self._table.hashes(rows), rows)
        self.live.discard(rows)
        self._abandon(rows)
        self._table.tidy(lambda: self.rows)

    def _abandon(self, rows: NDArray[np.int64]) -> None:
        self._table.release(rows)
        self._table.clear(rows)

    def compact(self, without: NDArray[np.int64]) -> NDArray[np.int64]:
        """Removes rows, renumbers the others without gaps, and frees memory; returns their old numbers.

        Costs nothing for the removed rows, so use it to remove many.
        """
        self.live.discard(without)
        self._table.release(without)
        rows = self.live.rows()
        self._table.keep(rows)
        self.live.renumber(rows)
        self._free.truncate(0)
        self._clear()
        self.make_room(len(rows))
        self._counts[ROWS] = len(rows)
        hashes, done = self._table.hashes(slice(0, len(rows))), 0
        while (done := insert_all(self._segments(), hashes, done)) < len(rows):
            self._add_segments(1)
        self._table.tidy(lambda: self.rows)
        return rows

    def _reserve(self, rows: int, data: int) -> None:
        if self.end + rows > _MAX_ROWS:
            raise EnvironmentFault(f"a frame holds up to {_MAX_ROWS} rows; run the operator on more instances")
        self._table.reserve(self.end + rows, data)

    def _add_segments(self, count: int) -> None:
        self._places.reserve((int(self._counts[SEGMENTS]) + count) * PLACES)
        self._facts.reserve(self._room * FACTS)
        self._directory.reserve(self._room * ENTRIES)

    @property
    def _room(self) -> int:
        return len(self._places.array) // PLACES

    @property
    def _is_used_up(self) -> bool:
        """Whether every allocated segment is in use."""
        return bool(self._counts[SEGMENTS] == self._room)

    def _segments(self) -> Segments:
        """Returns the arrays for compiled code; not to be kept, as they are views of regions."""
        return Segments(
            self._places.array, self._directory.array, self._facts.array, self._free.array, self._counts, self._room
        )
