"""Compiled loops that fold numbers into rows of a table, and detect sums beyond the range of their type.

Sums are exact in any order of additions. Each addition that wraps around is noted, and a row has overflowed only if its
wraps do not cancel out in the end. So the common case costs one comparison that is always false.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import pointer, prefetch

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

#: Number of rows by which compiled loops prefetch memory.
AHEAD = 128

_TOP = np.uint64(63)


def overflowed(rows: Ints, noted: Ints) -> Ints:
    """Returns one position in `rows` for each row whose sum is beyond its type, given the noted wraps."""
    at = np.where(noted < 0, ~noted, noted)
    _, first, row = np.unique(rows[at], return_index=True, return_inverse=True)
    net = np.bincount(row, weights=np.where(noted < 0, -1, 1))
    positions: Ints = np.sort(at[first[net != 0]])
    return positions


# --- one word ---------------------------------------------------------------------------------------------------------


@kernel
def add(values: NDArray[Any], width: int, head: int, rows: Ints, addends: NDArray[Any]) -> None:
    """Adds to word `head` of rows of `width` words, in order; integers wrap around."""
    there = pointer(values)
    for at in range(len(rows)):
        prefetch(there, rows[min(at + AHEAD, len(rows) - 1)] * width + head)
        there[rows[at] * width + head] += addends[at]


@kernel
def add_signed(values: Ints, width: int, head: int, rows: Ints, addends: Ints, noted: Ints) -> int:
    """Works like `add`, and notes additions that wrap: their positions, or the complements if they wrap downwards.

    Returns the number of notes.
    """
    there, count = pointer(values), 0
    for at in range(len(rows)):
        prefetch(there, rows[min(at + AHEAD, len(rows) - 1)] * width + head)
        place, more = rows[at] * width + head, addends[at]
        before = there[place]
        after = before + more
        there[place] = after
        if (before ^ after) & (more ^ after) < 0:
            noted[count] = at if more > 0 else ~at
            count += 1
    return count


@kernel
def add_unsigned(values: Words, width: int, head: int, rows: Ints, addends: Words, noted: Ints) -> int:
    """Works like `add_signed`, for unsigned numbers."""
    there, count = pointer(values), 0
    for at in range(len(rows)):
        prefetch(there, rows[min(at + AHEAD, len(rows) - 1)] * width + head)
        place = rows[at] * width + head
        after = there[place] + addends[at]
        there[place] = after
        if after < addends[at]:
            noted[count] = at
            count += 1
    return count


@kernel
def lower_floats(there: NDArray[Any], rows: Ints, others: NDArray[Any]) -> None:
    """Replaces floats by lower ones. NaN is greater than any number, unlike in NumPy's minimum."""
    for at in range(len(rows)):
        other, one = others[at], there[rows[at]]
        if other < one or one != one:
            there[rows[at]] = other


# --- two words, the lower one first -----------------------------------------------------------------------------------


@kernel
def add_wide(values: Words, width: int, head: int, rows: Ints, addends: Words, noted: Ints) -> int:
    """Works like `add_signed`, for numbers of 128 bits."""
    there, more, count = pointer(values), pointer(addends), 0
    for at in range(len(rows)):
        prefetch(there, rows[min(at + AHEAD, len(rows) - 1)] * width + head)
        place, high = rows[at] * width + head, more[2 * at + 1]
        low = there[place] + more[2 * at]
        before = there[place + 1]
        after = before + high + (np.uint64(1) if low < more[2 * at] else np.uint64(0))
        there[place], there[place + 1] = low, after
        if ((before ^ after) & (high ^ after)) >> _TOP:
            noted[count] = at if high >> _TOP == 0 else ~at
            count += 1
    return count


@kernel
def beyond(values: Words, width: int, head: int, rows: Ints, limit_low: np.uint64, limit_high: np.uint64) -> Ints:
    """Returns positions of rows whose number is at least the limit, or at most its negative."""
    found, count = np.empty(len(rows), np.int64), 0
    for at in range(len(rows)):
        low, high = values[rows[at] * width + head], values[rows[at] * width + head + 1]
        if high >> _TOP:
            low, high = ~low + np.uint64(1), ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        if high > limit_high or (high == limit_high and low >= limit_low):
            found[count] = at
            count += 1
    return found[:count].copy()


@kernel
def extreme_wide(values: Words, width: int, head: int, rows: Ints, others: Words, greatest: bool) -> None:
    """Replaces numbers by lower ones, or with `greatest` by greater ones."""
    for at in range(len(rows)):
        place = rows[at] * width + head
        low, high = values[place], np.int64(values[place + 1])
        other_low, other_high = others[2 * at], np.int64(others[2 * at + 1])
        is_less = other_high < high or (other_high == high and other_low < low)
        if is_less != greatest:
            values[place], values[place + 1] = others[2 * at], others[2 * at + 1]
