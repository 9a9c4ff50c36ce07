"""Sliding: totals that go from one window to the next by what comes in and what leaves, and the highest of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_LEAST = -(2**63)


class Steps(NamedTuple):
    """What changes in totals, in order of time: from the first window on that ends then, or later."""

    times: Ints
    rows: Ints  #: of the frame
    amounts: Ints
    parts: Ints  #: 1 for what comes in, -1 for what leaves


NO_STEPS = Steps(*(np.empty(0, np.int64) for _ in Steps._fields))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def slide(
    steps: Steps,
    words: Ints,
    width: int,
    first: int,
    mine: NDArray[np.bool_],
    windows: tuple[int, int, int],
) -> tuple[Ints, Ints, Ints]:
    """Takes all steps; the highest totals at each end of a window, from the first to the last."""
    found, count, done = np.empty((64, 3), np.int64), 0, 0
    end, last, step = windows
    while end <= last:
        while done < len(steps.times) and steps.times[done] <= end:
            take(steps, done, words, width, first)
            done += 1
        highest = _highest_total(words, width, first, mine)
        if highest > _LEAST:
            rows = _rows_with(highest, words, width, first, mine)
            if count + len(rows) > len(found):
                found = np.concatenate((found, np.empty((len(found) + len(rows), 3), np.int64)))
            found[count : count + len(rows), 0], found[count : count + len(rows), 2] = end, highest
            found[count : count + len(rows), 1] = rows
            count += len(rows)
            end += step
        elif done < len(steps.times):  # nothing is in the window, nor in those before the next step
            end += (steps.times[done] - end + step - 1) // step * step
        else:
            break
    for at in range(done, len(steps.times)):
        take(steps, at, words, width, first)
    return found[:count, 0].copy(), found[:count, 1].copy(), found[:count, 2].copy()


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _highest_total(words: Ints, width: int, first: int, mine: NDArray[np.bool_]) -> int:
    """Without branches, as whether a row is in the window is hard to predict."""
    highest = np.int64(_LEAST)
    for row in range(len(mine)):
        at = row * width + first
        there = (words[at + 1] > 0) & mine[row]
        total = words[at] if there else np.int64(_LEAST)
        highest = max(highest, total)
    return highest  # type: ignore[return-value]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _rows_with(highest: int, words: Ints, width: int, first: int, mine: NDArray[np.bool_]) -> Ints:
    """A function of its own, as the loop is twenty times slower where arrays change hands around it."""
    found, count = np.empty(16, np.int64), 0
    for row in range(len(mine)):
        at = row * width + first
        if (words[at] == highest) & (words[at + 1] > 0) & mine[row]:
            if count == len(found):
                return _all_rows_with(highest, words, width, first, mine)  # type: ignore[no-any-return]
            found[count] = row
            count += 1
    return found[:count]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _all_rows_with(highest: int, words: Ints, width: int, first: int, mine: NDArray[np.bool_]) -> Ints:
    """Where they are many."""
    found, count = np.empty(len(mine), np.int64), 0
    for row in range(len(mine)):
        at = row * width + first
        found[count] = row
        count += (words[at] == highest) & (words[at + 1] > 0) & mine[row]
    return found[:count]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def take(steps: Steps, at: int, words: Ints, width: int, first: int) -> None:
    place = steps.rows[at] * width + first
    words[place] += steps.amounts[at]
    words[place + 1] += steps.parts[at]
