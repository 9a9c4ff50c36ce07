"""Windows of event time: the classes by which users describe them, and the computation of their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from seep.rows.times import Duration, length

Times = NDArray[np.int64]

_MICROSECONDS = {"s": 10**6, "ms": 10**3}


class Window:
    """A division of event time: `Tumbling`, `Sliding` or `Session`.

    A window closes when the watermark says that no more of its rows will come. For a row that comes later, but by no
    more than `lateness`, the window's result is put out again; other late rows are dropped and counted. Lengths of time
    are text such as "30 s", or a timedelta; for integer event times, plain numbers.
    """


@dataclass(frozen=True, slots=True)
class Tumbling(Window):
    """Windows of one size without gaps or overlaps; one of them begins at `offset`."""

    size: Duration
    offset: Duration = 0
    lateness: Duration = 0


@dataclass(frozen=True, slots=True)
class Sliding(Window):
    """Windows of one size; one begins every `slide`, so that they overlap."""

    size: Duration
    slide: Duration
    offset: Duration = 0
    lateness: Duration = 0


@dataclass(frozen=True, slots=True)
class Session(Window):
    """Windows of one key that end when it has had no row for `gap`: from the first row to `gap` after the last one.

    Rows that are exactly `gap` apart are in two windows. A late row may merge windows whose results have been put out;
    then the result of the merged window is put out, and the earlier results are not withdrawn.
    """

    gap: Duration
    lateness: Duration = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows at regular distances, in the unit of watermarks, divided into panes, so that each row is counted once.

    The width of a pane is the greatest that divides all windows into whole panes.

    >>> grid = Grid(size=30, slide=20, offset=0, lateness=0)
    >>> grid.width, grid.pane_of(np.array([47])).tolist(), grid.last_end(np.array([40])).tolist()
    (10, [40], [70])
    >>> grid.next_end(np.array([50, 51])).tolist()
    [50, 70]
    """

    size: int
    slide: int
    offset: int
    lateness: int

    @property
    def width(self) -> int:
        """The width of a pane."""
        return gcd(self.size, self.slide)

    @property
    def is_tumbling(self) -> bool:
        """Whether each pane is a window."""
        return self.size == self.slide

    def pane_of(self, times: Times) -> Times:
        """Returns the starts of the panes of rows."""
        return (times - self.offset) // self.width * self.width + self.offset

    def next_end(self, times: Times) -> Times:
        """Returns the first end of a window at or after each time."""
        return times + (self.offset + self.size - times) % self.slide

    def last_end_by(self, watermark: int) -> int:
        """Returns the end of the last window that is closed at a watermark."""
        phase = self.offset + self.size
        return (watermark + 1 - phase) // self.slide * self.slide + phase

    def last_end(self, panes: Times) -> Times:
        """Returns the end of the last window that contains each pane."""
        return (panes - self.offset) // self.slide * self.slide + self.offset + self.size

    def over(self, panes: Times) -> Times:
        """Returns the watermark from which on each pane cannot change any more."""
        return self.last_end(panes) - 1 + self.lateness


def grid_of(window: Tumbling | Sliding, time: pa.DataType) -> Grid:
    """Returns the windows over event times of a type; raises UserError if the windows do not fit the type."""
    slide = window.slide if isinstance(window, Sliding) else window.size
    grid = Grid(
        _positive("size", window.size, time),
        _positive("slide", slide, time),
        _length("offset", window.offset, time),
        lateness_of(window, time),
    )
    if grid.slide > grid.size:
        raise UserError(f"windows of {window.size!r} that slide by {slide!r} leave rows out; let them slide by less")
    return grid


def gap_of(window: Session, time: pa.DataType) -> int:
    """Returns the gap in the unit of event times of a type."""
    return _positive("gap", window.gap, time)


def lateness_of(window: Tumbling | Sliding | Session, time: pa.DataType) -> int:
    """Returns the allowed lateness in the unit of event times of a type."""
    lateness = _length("lateness", window.lateness, time)
    if lateness < 0:
        raise UserError(f"the lateness of a window is {window.lateness!r}; it cannot be negative")
    return lateness


def _positive(what: str, duration: Duration, time: pa.DataType) -> int:
    number = _length(what, duration, time)
    if number <= 0:
        raise UserError(f"the {what} of a window is {duration!r}; it must be greater than zero")
    return number


def _length(what: str, duration: Duration, time: pa.DataType) -> int:
    number = 0 if duration == 0 else length(duration, time)
    unit = _MICROSECONDS.get(time.unit, 1) if pa.types.is_timestamp(time) else 1
    if number % unit:
        raise UserError(
            f"the {what} of a window is {duration!r}, finer than the event time, which is {time}; "
            "round it, or convert the column to timestamp('us')"
        )
    return number
