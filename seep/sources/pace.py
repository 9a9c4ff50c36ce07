"""Pace: how many rows a source reads in an epoch, by a rate or as fast as the query takes them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from seep.rows.position import Position
from seep.rows.rate import Rate

#: Rows of an epoch, at least; and of the first ones, until a commit has shown how fast the query is.
_LEAST, _FIRST = 256, 1024
#: Growth of epochs that the query takes in time: until it was once too slow for them, and after that.
_SLOW_START, _GROWTH = 2.0, 1.25
#: Rows of an epoch over those that the query commits in the time of one, if it cannot keep up.
_HEADROOM = 1.25
#: Open epochs more than there were when there were fewest, from which on the query does not keep up.
_SLACK = 4
#: Commits, one told with each epoch at most, by which its speed is known.
_COMMITS = 32


class ReadPortion(NamedTuple):
    """What to read of one partition: first pass over some rows, then take some."""

    skip: int
    take: int


class ReadPace(Protocol):
    """How much to read of each of the partitions at `positions`, none of which has ended.

    `share` is the part of the source's partitions that the instance has, so that all instances together keep the pace.
    """

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]: ...

    def took(self, rows: int, share: float, is_full: bool) -> None:
        """So many rows were read in the epoch that was asked about last, or in a piece of it.

        It is full if there was as much as its portion in any partition, or not much less.
        """
        ...

    def committed(self, epoch: int) -> None:
        """The query has come so far."""
        ...


class UnpacedReading:
    """A pace that goes neither by the clock nor by the query."""

    def took(self, rows: int, share: float, is_full: bool) -> None:
        """See `Pace`."""

    def committed(self, epoch: int) -> None:
        """See `Pace`."""


class FixedEpochs(UnpacedReading):
    """Epochs of the same size, as where no time passes."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]:  # noqa: ARG002
        """See `Pace`."""
        return [ReadPortion(0, _even(self._rows * share, positions))] * len(positions)


class Paced(UnpacedReading):
    """By a rate: each partition reads what is due of its equal part of the rate.

    What is due counts from the first read of the partition, so one that is behind, by a stall or a recovery, catches
    up: by at most `max_rows` in an epoch. With `shed`, what is overdue by more than that is passed over.
    """

    def __init__(self, rate: Rate, partitions: int, max_rows: int, *, shed: bool = False) -> None:
        self._rate = rate
        self._partitions = partitions
        self._max_rows = max_rows
        self._shed = shed

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]:  # noqa: ARG002
        """See `Pace`."""
        seconds = np.array([now - (position.start or now) for position in positions])
        due = self._rate.rows_due_at(seconds) / self._partitions
        cap = _even(self._max_rows * share, positions)
        behind = [max(int(rows) - position.passed, 0) for rows, position in zip(due, positions, strict=True)]
        return [ReadPortion(max(rows - cap, 0) if self._shed else 0, min(rows, cap)) for rows in behind]


@dataclass(slots=True)
class _Epoch:
    """What was read in an epoch that is not committed."""

    number: int
    quota: float  #: rows that were to be read, if the instance had all partitions
    rows: float = 0.0
    share: float = 0.0  #: of the partitions, in all pieces of it
    is_full: bool = False  #: there was no less than was to be read

    @property
    def whole(self) -> float:
        """Rows that it would have had of all partitions."""
        return self.rows / self.share if self.share else 0.0


class Adaptive:
    """By a closed loop, for sources without a rate: an epoch brings what the query commits in the time of one.

    It begins with small epochs. They double, each time that one of the present size is committed, as long as the query
    keeps up with them: then hardly more epochs are open than there ever were, and reads come as fast as epochs are long
    (a tenth later counts, as clocks are not exact). If more are open, an epoch brings a quarter more rows than were
    committed in the time of one lately, so that the query is never idle; from then on epochs grow by a quarter. They
    shrink by a quarter if it is reading itself that takes longer than one and a half times the length of an epoch. A
    source that has less to read than it may does not grow its epochs.
    """

    def __init__(self, epoch_seconds: float, max_rows: int) -> None:
        self._epoch_seconds = epoch_seconds
        self._max_rows = max_rows
        self._quota = float(min(_FIRST, max_rows))
        self._growth = _SLOW_START
        self._epoch: int | None = None
        self._last = 0.0
        self._since = 0  #: the first epoch of the present size
        self._open: deque[_Epoch] = deque()
        self._fewest = math.inf  #: epochs that were open when a commit was heard of
        self._told = 0  #: the last epoch that is committed
        self._rows = 0.0  #: of committed epochs
        self._commits: deque[tuple[float, float]] = deque(maxlen=_COMMITS)  #: (when heard of, rows until then)

    def portions(self, epoch: int, now: float, share: float, positions: Sequence[Position]) -> list[ReadPortion]:
        """See `Pace`. An epoch that is read in several pieces counts once."""
        if epoch != self._epoch:
            if self._epoch is not None:
                self._adapt(epoch, now)
            self._epoch, self._last = epoch, now
            self._open.append(_Epoch(epoch, self._quota))
        return [ReadPortion(0, _even(self._quota * share, positions))] * len(positions)

    def took(self, rows: int, share: float, is_full: bool) -> None:
        """See `Pace`."""
        epoch = self._open[-1]
        epoch.rows, epoch.share, epoch.is_full = epoch.rows + rows, epoch.share + share, epoch.is_full or is_full

    def committed(self, epoch: int) -> None:
        """See `Pace`."""
        self._told = max(self._told, epoch)

    def _adapt(self, epoch: int, now: float) -> None:
        interval, newest = now - self._last, self._newly_committed(now)
        if newest is not None:
            is_behind = epoch - newest.number > self._fewest + _SLACK
            self._fewest = min(self._fewest, epoch - newest.number)
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
        """The newest epoch that was committed since the last look, if any was."""
        newest = None
        while self._open and self._open[0].number <= self._told:
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
        """Rows per second that were committed lately; 0 if that is not known."""
        (begin, before), (end, rows) = self._commits[0], self._commits[-1]
        return (rows - before) / (end - begin) if end > begin else 0.0


def _even(rows: float, positions: Sequence[Position]) -> int:
    """An equal part of the rows for each of the positions, and at least one row."""
    return max(int(rows / max(len(positions), 1)), 1)
