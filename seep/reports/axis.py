"""The axis of a chart: the positions of values, and its ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: Steps between ticks, times a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
#: Values up to this count as zero.
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from `low` to `high` to positions from `begin` to `end`; logarithmically if `log`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Returns the position of a value; a value outside is moved to the end.

        >>> Axis(0, 10, 100, 200).at(2.5), Axis(1, 100, 0, 2, log=True).at(10), Axis(0, 10, 100, 200).at(99)
        (125.0, 1.0, 200.0)
        """
        low, high, value = (math.log(each) if self.log else each for each in (self.low, self.high, self._within(value)))
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Returns round numbers on the axis, in order.

        >>> Axis(0, 70, 0, 1).ticks(), Axis(0.003, 2, 0, 1, log=True).ticks()
        ([0.0, 20.0, 40.0, 60.0], [0.01, 0.1, 1.0])
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = _step((self.high - self.low) / 4)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]

    def _within(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def axis(values: Iterable[float], begin: float, end: float, *, log: bool = False) -> Axis:
    """Makes an axis for all values; it begins at 0, or if `log`, at a power of ten.

    >>> axis([3, 8], 0, 100), axis([0.02, 0.5], 0, 100, log=True)
    (Axis(low=0.0, high=8.4, begin=0, end=100, log=False), Axis(low=0.01, high=1.0, begin=0, end=100, log=True))
    """
    known = [value for value in values if math.isfinite(value) and value > _TINY]
    if not log:
        return Axis(0.0, 1.05 * max(known, default=0.0) or 1.0, begin, end)
    low = math.floor(math.log10(min(known, default=1.0)))
    high = max(math.ceil(math.log10(max(known, default=1.0))), low + 1)
    return Axis(10.0**low, 10.0**high, begin, end, log=True)


def _step(least: float) -> float:
    """Returns the next round number that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))
