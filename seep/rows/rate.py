"""Rates: how many rows a source should have read by a given time, for several load profiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from primitives.errors import UserError

Numbers = NDArray[np.float64]


class Profile(StrEnum):
    """The way a rate changes over a period."""

    STEADY = "steady"
    RAMP = "ramp"  #: from a tenth of the rate up to the full rate in the first half of the period, and down again
    SAWTOOTH = "sawtooth"  #: from a tenth up to the full rate over each period, then down at once
    SPIKE = "spike"  #: a fifth of the rate, with the full rate for the middle tenth of each period


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate in rows per second, which may change over time; `rows_per_second` is the highest.

    >>> Rate(1000).rows_due(2.5)
    2500.0
    >>> Rate(1000, Profile.SAWTOOTH, period=10).rows_due(10)  # 55 % of the full rate on average
    5500.0
    """

    rows_per_second: float
    profile: Profile = Profile.STEADY
    period: float = 60.0  #: seconds

    def __post_init__(self) -> None:
        for name in ("rows_per_second", "period"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"a rate with {name}={value!r} makes no sense; choose a number above 0")

    def rows_due(self, seconds: float) -> float:
        """Returns the rows due in the first `seconds`: the exact integral of the rate; none before the start."""
        return float(self.rows_due_at(np.array([seconds]))[0])

    def rows_due_at(self, seconds: NDArray[Any]) -> Numbers:
        """Computes `rows_due` for many times at once."""
        seconds = np.maximum(seconds, 0.0)
        if self.profile is Profile.STEADY:
            return self.rows_per_second * seconds
        curve = _curve(self.profile)
        periods, part = np.divmod(seconds / self.period, 1.0)
        return (periods * curve.total + curve.area_until(part)) * (self.rows_per_second * self.period)

    def due_times(self, rows: NDArray[Any]) -> Numbers:
        """Returns the seconds after which so many rows are due, for many numbers of rows: the inverse of `rows_due`."""
        rows = np.maximum(rows, 0.0)
        if self.profile is Profile.STEADY:
            return rows / self.rows_per_second
        curve = _curve(self.profile)
        periods, part = np.divmod(rows / (self.rows_per_second * self.period), curve.total)
        return (periods + curve.part_with(part)) * self.period


class _Curve(NamedTuple):
    """The level of a rate over one period as linear pieces; level and time are from 0 to 1."""

    begins: Numbers
    levels: Numbers  #: at the start of each piece
    slopes: Numbers
    areas: Numbers  #: under all pieces before
    total: float  #: area under the whole curve

    def area_until(self, part: Numbers) -> Numbers:
        """Returns the area under the first `part` of the period."""
        at = np.searchsorted(self.begins, part, side="right") - 1
        width = part - self.begins[at]
        return self.areas[at] + width * (self.levels[at] + self.slopes[at] * width / 2)

    def part_with(self, area: Numbers) -> Numbers:
        """Returns the part of the period that has an area under it, by a formula that also holds for a slope of 0."""
        at = np.searchsorted(self.areas, area, side="right") - 1
        rest, level = area - self.areas[at], self.levels[at]
        root = np.sqrt(np.maximum(level * level + 2 * self.slopes[at] * rest, 0.0))
        return self.begins[at] + 2 * rest / (level + root)


#: For each profile, its linear pieces: start and end in the period, and the level at each.
_PIECES: dict[Profile, list[tuple[float, float, float, float]]] = {
    Profile.RAMP: [(0.0, 0.5, 0.1, 1.0), (0.5, 1.0, 1.0, 0.1)],
    Profile.SAWTOOTH: [(0.0, 1.0, 0.1, 1.0)],
    Profile.SPIKE: [(0.0, 0.45, 0.2, 0.2), (0.45, 0.55, 1.0, 1.0), (0.55, 1.0, 0.2, 0.2)],
}


@cache
def _curve(profile: Profile) -> _Curve:
    begins, ends, first, last = np.array(_PIECES[profile]).T
    areas = (ends - begins) * (first + last) / 2
    return _Curve(begins, first, (last - first) / (ends - begins), np.cumsum(areas) - areas, float(areas.sum()))
