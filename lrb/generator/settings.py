"""Settings of the traffic generator: how much traffic, of what kind, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from primitives.errors import UserError

#: Tuples a second of one expressway at some seconds; the rate between them is on a straight line.
RAMP = ((0, 15.0), (3_000, 1_000.0), (10_800, 1_700.0))
DURATION = RAMP[-1][0]  #: of the benchmark, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSettings:
    """Equal settings make equal traffic."""

    xways: int = 1
    seconds: int = DURATION
    seed: int = 1
    rate: float = 1.0  #: a factor on the ramp
    balances: float = 0.01  #: part of the reports that come with such a query
    expenditures: float = 0.001
    travel_times: float = 0.0
    accidents_every: float = 1_200.0  #: seconds on the average, for each direction of an expressway
    near_misses_every: float = 600.0
    jams_every: float = 600.0
    returning: float = 0.1  #: part of the trips after which the vehicle comes again
    silent: float = 0.0001  #: part of the reports instead of which a vehicle falls silent

    def __post_init__(self) -> None:
        if not (1 <= self.xways <= 1 << 16 and 1 <= self.seconds <= DURATION and self.rate > 0):
            raise UserError(f"traffic has 1 to {1 << 16} expressways, 1 to {DURATION} seconds and a rate above 0")
        if min(self._shares) < 0 or sum(self._shares) > 1:
            raise UserError("the parts of reports that come with a query are 0 or more, and together 1 at most")
        if min(self.accidents_every, self.near_misses_every, self.jams_every) < 1:
            raise UserError("accidents, near misses and jams are at least 1 second apart")

    @property
    def _shares(self) -> tuple[float, float, float]:
        return self.balances, self.expenditures, self.travel_times

    def tuples_per_second(self) -> NDArray[np.float64]:
        """Of one expressway, for each second.

        >>> TrafficSettings(seconds=3001).tuples_per_second()[[0, 600, 3000]].tolist()
        [15.0, 212.0, 1000.0]
        """
        times, rates = zip(*RAMP, strict=True)
        return self.rate * np.interp(np.arange(self.seconds), times, rates)

    def reports_per_second(self) -> NDArray[np.float64]:
        return self.tuples_per_second() / (1 + sum(self._shares))
