"""Pace: how many rows a source reads in an epoch, by a rate or as fast as the query takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from seep.sources.position import Position
from seep.sources.rate import Rate

_LEAST = 256
_FIRST = 8192


class Portion(NamedTuple):
    """What to read of one partition: first pass over some rows, then take some."""

    skip: int
    take: int


class Pace(Protocol):
    """How much to read of each of the partitions at `positions`, none of which has ended.

    `share` is the part of the source's partitions that the instance has, so that all instances together keep the pace.
    """

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[Portion]: ...


class Paced:
    """By a rate: each partition reads what is due of its equal part of the rate.

    What is due counts from the first read of the partition, so one that is behind, by a stall or a recovery, catches
    up: by at most `max_rows` in an epoch. With `shed`, what is overdue by more than that is passed over.
    """

    def __init__(self, rate: Rate, partitions: int, max_rows: int, *, shed: bool = False) -> None:
        self._rate = rate
        self._partitions = partitions
        self._max_rows = max_rows
        self._shed = shed

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[Portion]:  # noqa: ARG002
        """See `Pace`."""
        seconds = np.array([now - (position.start or now) for position in positions])
        due = self._rate.rows_due_at(seconds) / self._partitions
        cap = _even(self._max_rows * share, positions)
        behind = [max(int(rows) - position.passed, 0) for rows, position in zip(due, positions, strict=True)]
        return [Portion(max(rows - cap, 0) if self._shed else 0, min(rows, cap)) for rows in behind]


class Adaptive:
    """By a closed loop, for sources without a rate: the epochs that the query takes in time grow.

    A quarter more if reads come at least as fast as the epoch's length (a tenth later counts, as clocks are not
    exact), a quarter less if they come later than one and a half of it.
    """

    def __init__(self, epoch_seconds: float, max_rows: int) -> None:
        self._epoch_seconds = epoch_seconds
        self._max_rows = max_rows
        self._quota = min(_FIRST, max_rows)
        self._epoch: int | None = None
        self._last = 0.0

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[Portion]:
        """See `Pace`. An epoch that is read in several pieces counts once."""
        if epoch != self._epoch:
            if self._epoch is not None:
                self._adapt(now - self._last)
            self._epoch, self._last = epoch, now
        return [Portion(0, _even(self._quota * share, positions))] * len(positions)

    def _adapt(self, interval: float) -> None:
        if interval <= 1.1 * self._epoch_seconds:
            self._quota = min(self._quota * 5 // 4, self._max_rows)
        elif interval > 1.5 * self._epoch_seconds:
            self._quota = max(self._quota * 3 // 4, min(_LEAST, self._max_rows))


def _even(rows: float, positions: Sequence[Position]) -> int:
    """An equal part of the rows for each of the positions, and at least one row."""
    return max(int(rows / max(len(positions), 1)), 1)
