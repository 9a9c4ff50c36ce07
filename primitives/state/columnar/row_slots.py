"""RowSlots: the slot of each row, and the number of rows in each slot."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel
from primitives.routing import places_in
from primitives.slots import SlotSet
from primitives.state.columnar.memory import Region

Ints = NDArray[np.int64]
Slots = NDArray[Any]  # unsigned integers of the narrowest type that fits

#: Number of slots that fit into two bytes a row.
_NARROW = 16
#: Rows processed at a time, so that intermediate results stay in the cache.
_BLOCK = 1 << 16


class RowSlots:
    """The slot of each row in two or four bytes, so that the rows of some slots are found without reading keys.

    It does not know which rows exist: the caller filters out removed rows.

    >>> slots = RowSlots(slot_bits=2)
    >>> slots.add(np.array([0, 1, 2]), np.array([2**63, 0, 2**63], np.uint64))
    >>> slots.rows_in(SlotSet([2]), end=3).tolist(), slots.counts.tolist()
    ([0, 2], [1, 0, 2, 0])
    """

    def __init__(self, slot_bits: int) -> None:
        self._slot_bits = slot_bits
        self._slots: Region[Any] = Region(np.uint16 if slot_bits <= _NARROW else np.uint32)
        self.counts = np.zeros(1 << slot_bits, np.int64)

    def add(self, rows: Ints, hashes: NDArray[np.uint64]) -> None:
        """Adds new rows, given the hashes of their keys."""
        if len(rows):
            self._slots.reserve(int(rows.max()) + 1)
            _enter(self._slots.array, self.counts, np.uint64(63 - self._slot_bits), rows, hashes)

    def remove(self, rows: Ints) -> None:
        """Removes rows."""
        _leave(self._slots.array, self.counts, rows)

    def clear(self, slots: SlotSet) -> None:
        """Removes all rows of slots."""
        self.counts[self._mask(slots)] = 0

    def keep(self, rows: Ints) -> None:
        """Keeps these rows, which ascend, and renumbers them; the others have been removed."""
        self._slots.keep(rows)

    def count_in(self, slots: SlotSet) -> int:
        """Returns the number of rows in slots."""
        return int(self.counts[self._mask(slots)].sum())

    def rows_in(self, slots: SlotSet, end: int, first: int = 0) -> Ints:
        """Returns the rows in slots with numbers from `first` to below `end`; removed rows may be among them."""
        mask, known = self._mask(slots), self._slots.array[:end]
        chosen = [_NO_ROWS]
        for start in range(first, end, _BLOCK):
            chosen.append(places_in(mask, known[start : start + _BLOCK]) + start)
        return np.concatenate(chosen)

    def within(self, slots: SlotSet, rows: Ints) -> Ints:
        """Returns the given rows that are in slots."""
        found: Ints = rows[self._mask(slots)[self._slots.array[rows]]]
        return found

    def _mask(self, slots: SlotSet) -> NDArray[np.bool_]:
        return slots.mask(self._slot_bits)


_NO_ROWS = np.empty(0, np.int64)


@kernel
def _enter(slots: Slots, counts: Ints, shift: np.uint64, rows: Ints, hashes: NDArray[np.uint64]) -> None:
    for at in range(len(rows)):
        slot = (hashes[at] >> np.uint64(1)) >> shift  # in two steps, as a shift by all 64 bits is undefined
        slots[rows[at]] = slot
        counts[slot] += 1


@kernel
def _leave(slots: Slots, counts: Ints, rows: Ints) -> None:
    for row in rows:
        counts[slots[row]] -= 1
