"""Chains: a hash index in which several rows may have the same hash; rows are appended and found in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import pointer, prefetch
from primitives.state.columnar.memory import Region

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

_MAX_ROWS = 2**31 - 2

#: Initial number of places, and the number of rows by which compiled loops prefetch memory.
_PLACES, _AHEAD = 1 << 10, 16


class Chains:
    """Rows 0, 1, 2 … by a 64-bit number with well-mixed low bits; several rows may have the same number.

    Each place of the table holds the last row whose number leads there, and each row the one before it. A lookup costs
    a wait for memory for the place, and one for each row that it passes.

    >>> chains = Chains()
    >>> chains.append(np.array([7, 9, 7], np.uint64))
    >>> [found.tolist() for found in chains.find(np.array([8, 7], np.uint64))]
    [[1, 1], [2, 0]]
    """

    __slots__ = ("_heads", "_length", "_links")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._length = 0
        self._links: Region[np.uint64] = Region(np.uint64)  #: for each row its number, and 1 + the row before it
        self._heads = np.zeros(_PLACES, np.int32)  #: for each place 1 + its last row

    def __len__(self) -> int:
        return self._length

    def append(self, numbers: Words) -> None:
        """Adds rows. When the table is full, it is rebuilt at twice the size, which costs a look at each row."""
        first, end = self._length, self._length + len(numbers)
        if end > _MAX_ROWS:
            raise EnvironmentFault(f"a container holds up to {_MAX_ROWS} rows; run the operator on more instances")
        self._links.reserve(2 * end)
        self._links.array[2 * first : 2 * end : 2] = numbers
        self._length = end
        if end > len(self._heads):
            self._heads, first = np.zeros(1 << end.bit_length(), np.int32), 0
        _link(self._heads, self._links.array, first, end)

    def find(self, wanted: Words) -> tuple[Ints, Ints]:
        """All pairs of a position in `wanted` and a row with the number there, by position, later rows first."""
        positions, rows = _find(self._heads, self._links.array, wanted)
        return positions, rows

    def keep(self, rows: Ints) -> None:
        """Keeps only these rows, which ascend, and renumbers them."""
        numbers = self._links.array[: 2 * self._length : 2][rows]
        self._clear()
        self.append(numbers)


# --- compiled ---------------------------------------------------------------------------------------------------------


@kernel
def _link(heads: NDArray[np.int32], links: Words, first: int, end: int) -> None:
    there, mask = pointer(heads), np.uint64(len(heads) - 1)
    for row in range(first, end):
        prefetch(there, np.int64(links[2 * min(row + _AHEAD, end - 1)] & mask))
        place = links[2 * row] & mask
        links[2 * row + 1] = np.uint64(heads[place])
        heads[place] = row + 1


@kernel
def _find(heads: NDArray[np.int32], links: Words, wanted: Words) -> tuple[Ints, Ints]:
    places, chain, mask = pointer(heads), pointer(links), np.uint64(len(heads) - 1)
    positions, rows = np.empty(len(wanted) + 16, np.int64), np.empty(len(wanted) + 16, np.int64)
    count, last = 0, len(wanted) - 1
    for at in range(len(wanted)):
        prefetch(places, np.int64(wanted[min(at + 2 * _AHEAD, last)] & mask))
        prefetch(chain, 2 * (np.int64(heads[wanted[min(at + _AHEAD, last)] & mask]) - 1))
        row = np.int64(heads[wanted[at] & mask]) - 1
        while row >= 0:
            if links[2 * row] == wanted[at]:
                if count == len(rows):
                    positions, rows = _doubled(positions), _doubled(rows)
                positions[count], rows[count] = at, row
                count += 1
            row = np.int64(links[2 * row + 1]) - 1
    return positions[:count], rows[:count]


@kernel
def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger
