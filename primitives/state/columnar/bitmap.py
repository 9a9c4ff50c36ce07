"""Bitmap: a set of row numbers, one bit for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import ones, trailing_zeros
from primitives.state.columnar.memory import Region

Words = NDArray[np.uint64]
Rows = NDArray[np.int64]

_ONE = np.uint64(1)


class Bitmap:
    """A set of row numbers.

    >>> rows = Bitmap()
    >>> rows.add(np.array([3, 70, 3]))
    >>> rows.discard(np.array([70, 71, -1])).tolist()
    [70]
    >>> rows.rows().tolist()
    [3]
    """

    __slots__ = ("_size", "_words")

    def __init__(self) -> None:
        self._words: Region[np.uint64] = Region(np.uint64)
        self._size = 0  #: words in use; no bit beyond is set

    def add(self, rows: Rows) -> None:
        """Adds rows, which may repeat."""
        if len(rows):
            self._cover(int(rows.max()) + 1)
            _set(self._words.array, rows)

    def discard(self, rows: Rows) -> Rows:
        """Removes rows, and returns the members among them, each once; the rows may be any numbers."""
        members = np.empty(len(rows), np.int64)
        return members[: _clear(self._words.array, 64 * self._size, rows, members)]

    def holds(self, rows: Rows) -> NDArray[np.bool_]:
        """Returns which of the rows are members; the rows may be any numbers."""
        held = np.empty(len(rows), np.bool_)
        _test(self._words.array, 64 * self._size, rows, held)
        return held

    def rows(self) -> Rows:
        """The members, ascending. Costs a look at every 64 numbers, and a step for each member."""
        return common_rows(self, [self])

    def renumber(self, rows: Rows) -> None:
        """Keeps the members among `rows`, and numbers them by their positions there."""
        positions = np.flatnonzero(self.holds(rows))
        self._words.array[: self._size] = 0
        self._size = 0
        self.add(positions)

    def _cover(self, count: int) -> None:
        self._size = max(self._size, count // 64 + 1)
        self._words.reserve(self._size)

    def _used(self) -> Words:
        return self._words.array[: self._size]


def common_rows(bitmap: Bitmap, others: Sequence[Bitmap]) -> Rows:
    """Returns the members that are also members of any of the others, ascending."""
    rows: Rows = _common_rows(*_side_by_side(bitmap, others))
    return rows


def count_common(bitmap: Bitmap, others: Sequence[Bitmap]) -> int:
    """Returns the number of rows that `common_rows` finds; costs a look at every 64 numbers."""
    return int(_count_common(*_side_by_side(bitmap, others)))


def _side_by_side(bitmap: Bitmap, others: Sequence[Bitmap]) -> tuple[Words, Words]:
    """Returns the words of one bitmap, and the union of all others, up to the shorter length."""
    words = others[0]._used() if len(others) == 1 else _union(others)
    size = min(bitmap._size, len(words))
    return bitmap._used()[:size], words[:size]


def _union(bitmaps: Sequence[Bitmap]) -> Words:
    words = np.zeros(max(bitmap._size for bitmap in bitmaps), np.uint64)
    for bitmap in bitmaps:
        words[: bitmap._size] |= bitmap._used()
    return words


@kernel
def _set(words: Words, rows: Rows) -> None:
    for row in rows:
        words[row >> 6] |= _ONE << np.uint64(row & 63)


@kernel
def _clear(words: Words, size: int, rows: Rows, members: Rows) -> int:
    found = 0
    for row in rows:
        if 0 <= row < size and _is_set(words, row):
            words[row >> 6] &= ~(_ONE << np.uint64(row & 63))
            members[found] = row
            found += 1
    return found


@kernel
def _test(words: Words, size: int, rows: Rows, held: NDArray[np.bool_]) -> None:
    for at in range(len(rows)):
        held[at] = 0 <= rows[at] < size and _is_set(words, rows[at])


@kernel
def _is_set(words: Words, row: int) -> bool:
    return bool((words[row >> 6] >> np.uint64(row & 63)) & _ONE)


@kernel
def _count_common(words: Words, others: Words) -> int:
    count = 0
    for place in range(len(words)):
        count += ones(words[place] & others[place])
    return count


@kernel
def _common_rows(words: Words, others: Words) -> Rows:
    some, places, count, size = np.empty(len(words), np.uint64), np.empty(len(words), np.int64), 0, 0
    for place in range(len(words)):
        some[count], places[count] = words[place] & others[place], place
        size += ones(some[count])
        count += some[count] != 0  # without a branch, as it could not be predicted
    rows, found = np.empty(size, np.int64), 0
    for at in range(count):
        word = some[at]
        while word:
            rows[found] = 64 * places[at] + trailing_zeros(word)
            found += 1
            word &= word - _ONE
    return rows
