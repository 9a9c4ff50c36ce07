"""Sliding totals: carried from one window to the next by adding and subtracting; finds the highest in each window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel

Ints = NDArray[np.int64]

_LEAST = -(2**63)


class SlidingChanges(NamedTuple):
    """Changes of totals, sorted by time; each counts from the first window that ends at that time or later."""

    times: Ints
    rows: Ints  #: rows of the frame
    amounts: Ints
    parts: Ints  #: 1 for what comes in, -1 for what leaves


NO_STEPS = SlidingChanges(*(np.empty(0, np.int64) for _ in SlidingChanges._fields))


@kernel
def slide(
    steps: SlidingChanges,
    words: Ints,
    width: int,
    first: int,
    mine: NDArray[np.bool_],
    windows: tuple[int, int, int],
) -> tuple[Ints, Ints, Ints, np.int64]:
    """Applies all steps; returns the highest totals at each end of a window: the ends, the rows and the totals.

    The last result is a row whose total exceeds 64 bits at such an end, or after all steps; -1 if there is none.
    """
    found, count, done = np.empty((64, 3), np.int64), 0, 0
    wraps, wrapped, beyond = np.empty(len(steps.times), np.int64), 0, np.int64(-1)
    end, last, step = windows
    while end <= last and beyond < 0:
        while done < len(steps.times) and steps.times[done] <= end:
            wrapped += take(steps, done, words, width, first, wraps, wrapped)
            done += 1
        if wrapped:
            beyond, wrapped = _beyond(wraps[:wrapped]), 0
        highest = _highest_total(words, width, first, mine)
        if highest > _LEAST:
            rows = _rows_with(highest, words, width, first, mine)
            if count + len(rows) > len(found):
                found = np.concatenate((found, np.empty((len(found) + len(rows), 3), np.int64)))
            found[count : count + len(rows), 0], found[count : count + len(rows), 2] = end, highest
            found[count : count + len(rows), 1] = rows
            count += len(rows)
            end += step
        elif done < len(steps.times):  # this window is empty, and so are those before the next step
            end += (steps.times[done] - end + step - 1) // step * step
        else:
            break
    for at in range(done, len(steps.times)):
        wrapped += take(steps, at, words, width, first, wraps, wrapped)
    if wrapped and beyond < 0:
        beyond = _beyond(wraps[:wrapped])
    return found[:count, 0].copy(), found[:count, 1].copy(), found[:count, 2].copy(), beyond


@kernel
def _beyond(wraps: Ints) -> np.int64:
    """Returns a row that has wrapped around and not back, or -1; there are few, if any."""
    for at in range(len(wraps)):
        row, net = max(wraps[at], ~wraps[at]), 0
        for other in wraps:
            net += 1 if other == row else -1 if other == ~row else 0
        if net != 0:
            return row  # type: ignore[no-any-return]
    return np.int64(-1)


@kernel
def _highest_total(words: Ints, width: int, first: int, mine: NDArray[np.bool_]) -> int:
    """Returns the highest total. It has no branches, because they would be hard to predict."""
    highest = np.int64(_LEAST)
    for row in range(len(mine)):
        at = row * width + first
        there = (words[at + 1] > 0) & mine[row]
        total = words[at] if there else np.int64(_LEAST)
        highest = max(highest, total)
    return highest  # type: ignore[return-value]


@kernel
def _rows_with(highest: int, words: Ints, width: int, first: int, mine: NDArray[np.bool_]) -> Ints:
    """Returns the rows with the highest total. It is a separate function, because the loop is 20 times faster so."""
    found, count = np.empty(16, np.int64), 0
    for row in range(len(mine)):
        at = row * width + first
        if (words[at] == highest) & (words[at + 1] > 0) & mine[row]:
            if count == len(found):
                return _all_rows_with(highest, words, width, first, mine)  # type: ignore[no-any-return]
            found[count] = row
            count += 1
    return found[:count]


@kernel
def _all_rows_with(highest: int, words: Ints, width: int, first: int, mine: NDArray[np.bool_]) -> Ints:
    """Does the same as `_rows_with` for many rows."""
    found, count = np.empty(len(mine), np.int64), 0
    for row in range(len(mine)):
        at = row * width + first
        found[count] = row
        count += (words[at] == highest) & (words[at + 1] > 0) & mine[row]
    return found[:count]


@kernel
def take(steps: SlidingChanges, at: int, words: Ints, width: int, first: int, wraps: Ints, count: int) -> int:
    """Applies one step; if the total wraps around, notes the row, or its complement if downwards, and returns 1."""
    place, amount = steps.rows[at] * width + first, steps.amounts[at]
    before = words[place]
    after = before + amount
    words[place] = after
    words[place + 1] += steps.parts[at]
    if (before ^ after) & (amount ^ after) < 0:
        wraps[count] = steps.rows[at] if amount > 0 else ~steps.rows[at]
        return 1
    return 0
