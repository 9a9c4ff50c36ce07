"""Settings of the traffic generator: the amount, kind and duration of traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from primitives.errors import UserError

#: Tuples per second of one expressway at some seconds; linear between them.
RAMP = ((0, 15.0), (3_000, 1_000.0), (10_800, 1_700.0))
DURATION = RAMP[-1][0]  #: duration of the benchmark in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSettings:
    """Settings of traffic; equal settings make equal traffic."""

    xways: int = 1
    seconds: int = DURATION
    seed: int = 1
    rate: float = 1.0  #: factor of the ramp
    balances: float = 0.01  #: fraction of the reports that come with such a query
    expenditures: float = 0.001
    travel_times: float = 0.0
    accidents_every: float = 1_200.0  #: average seconds between accidents, for each direction of an expressway
    near_misses_every: float = 600.0
    jams_every: float = 600.0
    returning: float = 0.1  #: fraction of the trips after which the vehicle returns
    silent: float = 0.0001  #: fraction of the reports at which a vehicle falls silent instead

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
        """Returns the rate of one expressway for each second.

        >>> TrafficSettings(seconds=3001).tuples_per_second()[[0, 600, 3000]].tolist()
        [15.0, 212.0, 1000.0]
        """
        times, rates = zip(*RAMP, strict=True)
        return self.rate * np.interp(np.arange(self.seconds), times, rates)

    def reports_per_second(self) -> NDArray[np.float64]:
        return self.tuples_per_second() / (1 + sum(self._shares))
