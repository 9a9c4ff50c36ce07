"""The pace of a source: how many rows it reads in an epoch, by a rate or as fast as the query processes them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from seep.rows.position import Position
from seep.rows.rate import Rate

#: The fewest rows of an epoch; and the rows of the first epochs, until a commit shows how fast the query is.
_LEAST, _FIRST = 256, 1024
#: The growth of epochs while the query keeps up: before it was too slow for the first time, and after that.
_SLOW_START, _GROWTH = 2.0, 1.25
#: If the query cannot keep up: rows of an epoch, relative to those that it commits in the time of an epoch.
_HEADROOM = 1.25
#: The query does not keep up if this many more epochs are open than the fewest so far.
_SLACK = 4
#: The number of recent commits from which its speed is computed, at most one for each epoch.
_COMMITS = 32


class ReadPortion(NamedTuple):
    """The rows to read of one partition: first the number to skip, then the number to take."""

    skip: int
    take: int


class ReadPace(Protocol):
    """Decides how much to read of each of the partitions at `positions`, none of which has ended.

    `share` is the part of the source's partitions that the instance has, so that all instances together keep the pace.
    """

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]: ...

    def took(self, rows: int, share: float, is_full: bool) -> None:
        """Records the rows read in the latest epoch, or in a piece of it.

        It is full if any partition had as many rows as its portion, or almost.
        """
        ...

    def committed(self, epoch: int) -> None:
        """Records the last epoch that the query has committed."""
        ...


class UnpacedReading:
    """A pace that does not depend on commits."""

    def took(self, rows: int, share: float, is_full: bool) -> None:
        """See `ReadPace`."""

    def committed(self, epoch: int) -> None:
        """See `ReadPace`."""


class FixedEpochs(UnpacedReading):
    """Epochs of the same size, for runs without a clock."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]:  # noqa: ARG002
        """See `ReadPace`."""
        return [ReadPortion(0, _even(self._rows * share, positions))] * len(positions)


class Paced(UnpacedReading):
    """Reads by a rate: each partition reads the rows that are due by its equal part of the rate.

    Due rows are counted from the first read of the partition. So a partition that is behind, after a stall or a
    recovery, catches up, by at most `max_rows` in an epoch. With `shed`, rows overdue by more than that are skipped.
    """

    def __init__(self, rate: Rate, partitions: int, max_rows: int, *, shed: bool = False) -> None:
        self._rate = rate
        self._partitions = partitions
        self._max_rows = max_rows
        self._shed = shed

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]:  # noqa: ARG002
        """See `ReadPace`."""
        seconds = np.array([now - (position.start or now) for position in positions])
        due = self._rate.rows_due_at(seconds) / self._partitions
        cap = _even(self._max_rows * share, positions)
        behind = [max(int(rows) - position.passed, 0) for rows, position in zip(due, positions, strict=True)]
        return [ReadPortion(max(rows - cap, 0) if self._shed else 0, min(rows, cap)) for rows in behind]


@dataclass(slots=True)
class _Epoch:
    """The rows read in an epoch that is not committed."""

    number: int
    quota: float  #: rows to be read, if the instance had all partitions
    rows: float = 0.0
    share: float = 0.0  #: fraction of the partitions, in all pieces of it
    is_full: bool = False  #: whether all requested rows were there

    @property
    def whole(self) -> float:
        """The rows it would have had of all partitions."""
        return self.rows / self.share if self.share else 0.0


class Adaptive:
    """A closed loop for sources without a rate: an epoch reads as much as the query commits in the time of an epoch.

    It begins with small epochs. They double each time an epoch of the current size is committed while the query keeps
    up: that is, while few more epochs are open than the fewest so far, and the time between reads is the length of an
    epoch (or up to a tenth more, because clocks are not exact). If more epochs are open, an epoch reads a quarter more
    rows than were recently committed in the time of an epoch, so that the query is never idle; after that, epochs grow
    by a quarter. They shrink by a quarter if reading itself takes longer than 1.5 times the length of an epoch. Epochs
    do not grow if the source has fewer rows than it may read.
    """

    def __init__(self, epoch_seconds: float, max_rows: int) -> None:
        self._epoch_seconds = epoch_seconds
        self._max_rows = max_rows
        self._quota = float(min(_FIRST, max_rows))
        self._growth = _SLOW_START
        self._epoch: int | None = None
        self._last = 0.0
        self._since = 0  #: the first epoch of the current size
        self._open: deque[_Epoch] = deque()
        self._fewest_open = math.inf  #: the fewest open epochs at a commit
        self._last_committed = 0  #: the last epoch that is committed
        self._rows = 0.0  #: total of committed epochs
        self._commits: deque[tuple[float, float]] = deque(maxlen=_COMMITS)  #: (time, rows committed until then)

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]:
        """See `ReadPace`. An epoch that is read in several pieces counts once."""
        if epoch != self._epoch:
            if self._epoch is not None:
                self._adapt(epoch, now)
            self._epoch, self._last = epoch, now
            self._open.append(_Epoch(epoch, self._quota))
        return [ReadPortion(0, _even(self._quota * share, positions))] * len(positions)

    def took(self, rows: int, share: float, is_full: bool) -> None:
        """See `ReadPace`."""
        epoch = self._open[-1]
        epoch.rows, epoch.share, epoch.is_full = epoch.rows + rows, epoch.share + share, epoch.is_full or is_full

    def committed(self, epoch: int) -> None:
        """See `ReadPace`."""
        self._last_committed = max(self._last_committed, epoch)

    def _adapt(self, epoch: int, now: float) -> None:
        interval, newest = now - self._last, self._newly_committed(now)
        if newest is not None:
            is_behind = epoch - newest.number > self._fewest_open + _SLACK
            self._fewest_open = min(self._fewest_open, epoch - newest.number)
            if is_behind and newest.whole and self._speed:
                self._growth = _GROWTH
                wanted = _HEADROOM * self._speed * self._epoch_seconds
                self._resize(epoch, newest.quota * min(_SLOW_START, wanted / newest.whole))
                return
        if interval > 1.5 * self._epoch_seconds:
            self._resize(epoch, self._quota * 3 / 4)
        elif newest is not None and self._is_to_grow(newest, interval):
            self._resize(epoch, self._quota * self._growth)

    def _newly_committed(self, now: float) -> _Epoch | None:
        """Returns the newest epoch that was committed since the last call, if there is one."""
        newest = None
        while self._open and self._open[0].number <= self._last_committed:
            newest = self._open.popleft()
            self._rows += newest.whole
        if newest is not None:
            self._commits.append((now, self._rows))
        return newest

    def _is_to_grow(self, newest: _Epoch, interval: float) -> bool:
        is_proven = newest.number >= self._since and newest.is_full
        return is_proven and interval <= 1.1 * self._epoch_seconds

    def _resize(self, epoch: int, rows: float) -> None:
        self._quota = min(max(rows, _LEAST), self._max_rows)
        self._since = epoch

    @property
    def _speed(self) -> float:
        """Returns the rows committed per second recently; 0 if unknown."""
        (begin, before), (end, rows) = self._commits[0], self._commits[-1]
        return (rows - before) / (end - begin) if end > begin else 0.0


def _even(rows: float, positions: Sequence[Position]) -> int:
    """Returns an equal part of the rows for each position, at least one row."""
    return max(int(rows / max(len(positions), 1)), 1)
