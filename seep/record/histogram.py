"""A histogram of durations, in buckets that grow by 2 %; its size does not depend on the number of durations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Range of the buckets: from a microsecond to an hour.
_GROWTH = np.log(1.02)
_BUCKETS = 1_200
_MICROS = 1e6

#: Upper bounds, in seconds, of the few buckets that others are shown.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class DurationCounts(NamedTuple):
    """The number of durations up to each of a few bounds; an immutable value."""

    up_to: tuple[int, ...] = (0,) * len(BOUNDS)  #: up to each of `BOUNDS`, to 2 %; it grows with the bound
    number: int = 0  #: of all
    total: float = 0.0  #: sum of all, in seconds


class Histogram:
    """Counts durations. Percentiles are right to 2 %; the longest is exact.

    >>> times = Histogram()
    >>> times.add(np.array([0.010, 0.020, 3.0]))
    >>> times.count, round(times.percentile(0.5), 3), times.longest
    (3, 0.02, 3.0)
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self.longest = 0.0  #: in seconds, as all times here
        self.total = 0.0  #: sum of all

    def add(self, seconds: NDArray[Any]) -> None:
        """Counts durations in seconds; one below a microsecond counts as a microsecond."""
        if not len(seconds):
            return
        buckets = np.log(np.maximum(np.asarray(seconds) * _MICROS, 1.0)) / _GROWTH
        self._counts += np.bincount(np.minimum(buckets.astype(np.int64), _BUCKETS - 1), minlength=_BUCKETS)
        self.longest = max(self.longest, float(np.max(seconds)))
        self.total += float(np.sum(seconds))

    @property
    def count(self) -> int:
        """The number of durations so far."""
        return int(self._counts.sum())

    def percentile(self, share: float) -> float:
        """Returns the upper end of the percentile's bucket."""
        if not self._counts.any():
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self._counts), share * self._counts.sum()))
        return min(_end(bucket), self.longest)

    def counts(self) -> DurationCounts:
        """Returns the counts by a few bounds.

        >>> times = Histogram()
        >>> times.add(np.array([0.0009, 0.02, 0.02, 9_000]))
        >>> times.counts().up_to[:6], times.counts().up_to[-1], times.counts().number
        ((1, 1, 1, 1, 3, 3), 3, 4)
        """
        sums = np.cumsum(self._counts)
        up_to = tuple(int(sums[last]) for last in _LAST_BUCKETS)
        return DurationCounts(up_to, int(sums[-1]), self.total)

    def to_json(self) -> list[list[float]]:
        """The upper end and the count of each bucket that is not empty."""
        return [[_end(int(bucket)), int(self._counts[bucket])] for bucket in np.flatnonzero(self._counts)]


def _end(bucket: int) -> float:
    return float(np.exp((bucket + 1) * _GROWTH) / _MICROS)


#: The last bucket up to each bound.
_LAST_BUCKETS = tuple(int(np.log(bound * _MICROS) / _GROWTH) - 1 for bound in BOUNDS)
