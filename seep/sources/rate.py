"""Rates: how many rows a source should have read by a given time, for the profiles a load can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Profile(StrEnum):
    """How a rate changes over a period."""

    STEADY = "steady"
    RAMP = "ramp"  #: from a tenth of the rate up to the full rate in the first half of the period, and down again
    SAWTOOTH = "sawtooth"  #: from a tenth up to the full rate over each period, then at once down
    SPIKE = "spike"  #: a fifth of the rate, with the full rate for the middle tenth of each period


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows per second, at its highest, over time."""

    rows_per_second: float
    profile: Profile = Profile.STEADY
    period: float = 60.0  #: seconds
