"""Draws in advance where and when vehicles stop, and where traffic is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lrb.data.checking import FEET_PER_SEGMENT, SEGMENTS
from lrb.generator.settings import TrafficSettings

#: An incident: the next vehicles that pass its position between `begin` and `end` stop there.
INCIDENT = np.dtype(
    [
        ("xway", np.int32),
        ("direction", np.int32),
        ("position", np.int32),
        ("lane", np.int32),  # lane of the first vehicle
        ("begin", np.int32),
        ("end", np.int32),  # when the first vehicle drives on
        ("stagger", np.int32),  # seconds between the departures of two vehicles
        ("reports", np.int32),  # most reports of a vehicle here
        ("cars", np.int32),  # vehicles that are to stop here
        ("apart", np.int32),  # lanes between two vehicles
        ("relay", np.bool_),  # each comes when the one before has left
        ("joined", np.int32),  # vehicles that have stopped here so far
        ("standing", np.int32),  # vehicles that stand here now
    ]
)
#: Segments, from `first` to `last`, where the speed limit is `cap`.
JAM = np.dtype(
    [(name, np.int32) for name in ("xway", "direction", "first", "last", "begin", "end", "cap")],
)

#: The speed limit where nothing slows the traffic.
NO_CAP = 100
_BEHIND_AN_ACCIDENT = 15
_MANY = 1 << 20

Array = NDArray[np.void]
Number = int | np.int64


class Trouble(NamedTuple):
    """All incidents and jams, for all expressways."""

    incidents: Array
    jams: Array

    def caps(self, xways: int, begin: int, end: int) -> NDArray[np.int32]:
        """Returns the lowest speed limits between `begin` and `end`, by expressway, direction and segment."""
        caps = np.full((xways, 2, SEGMENTS), NO_CAP, np.int32)
        for jam in _active(self.jams, begin, end):
            slow = caps[jam["xway"], jam["direction"], jam["first"] : jam["last"] + 1]
            np.minimum(slow, jam["cap"], out=slow)
        for incident in _active(self.incidents, begin, end):
            if incident["standing"] > 1:
                here = incident["position"] // FEET_PER_SEGMENT
                behind = here + (1 if incident["direction"] else -1)
                caps[incident["xway"], incident["direction"], [here, behind]] = _BEHIND_AN_ACCIDENT
        return caps

    def traps(self, xways: int, begin: int, end: int) -> NDArray[np.int32]:
        """Returns the number of the incident in each segment, by expressway, direction and segment, or -1."""
        traps = np.full((xways, 2, SEGMENTS), -1, np.int32)
        active = np.flatnonzero((self.incidents["begin"] < end) & (self.incidents["end"] > begin))
        where = self.incidents[active]
        traps[where["xway"], where["direction"], where["position"] // FEET_PER_SEGMENT] = active
        return traps


def _active(those: Array, begin: int, end: int) -> Array:
    active: Array = those[(those["begin"] < end) & (those["end"] > begin)]
    return active


def troubles(settings: TrafficSettings) -> Trouble:
    """Draws all incidents and jams of some traffic."""
    random = np.random.default_rng(settings.seed)
    accidents = _draw_all(settings, settings.accidents_every, INCIDENT, lambda where: _accident(random, where), random)
    misses = _draw_all(settings, settings.near_misses_every, INCIDENT, lambda where: _near_miss(random, where), random)
    jams = _draw_all(settings, settings.jams_every, JAM, lambda where: _jam(random, where), random)
    return Trouble(np.concatenate([accidents, misses]), jams)


def _draw_all(
    settings: TrafficSettings,
    every: float,
    kind: np.dtype[np.void],
    one: Callable[[Array], None],
    random: np.random.Generator,
) -> Array:
    """Draws one record of a kind for each `every` seconds of each direction, at random times."""
    count = int(np.ceil(settings.seconds / every))
    them = np.zeros((settings.xways, 2, count), kind)
    them["xway"] = np.arange(settings.xways)[:, None, None]
    them["direction"] = np.arange(2)[:, None]
    them["begin"] = every * (np.arange(count) + random.random(them.shape))
    flat = them.reshape(-1)
    for each in range(len(flat)):
        one(flat[each : each + 1])
    return flat


def _incident(
    random: np.random.Generator, where: Array, *, cars: int, seconds: Number, reports: Number = _MANY
) -> None:
    where["position"] = random.integers(2 * FEET_PER_SEGMENT, (SEGMENTS - 2) * FEET_PER_SEGMENT)
    where["lane"] = random.integers(1, 4)
    where["end"] = where["begin"] + seconds
    where["cars"] = cars
    where["reports"] = reports


def _accident(random: np.random.Generator, where: Array) -> None:
    """Draws an accident: two or three vehicles, for 10 to 20 minutes, which leave together or one after the other."""
    _incident(random, where, cars=random.choice([2, 3], p=[0.8, 0.2]), seconds=random.integers(600, 1200))
    where["stagger"] = random.choice([0, 45, 90])


def _near_miss(random: np.random.Generator, where: Array) -> None:
    """Draws an incident that resembles an accident, but is none, or barely is one."""
    match random.integers(5):
        case 0:
            _incident(random, where, cars=1, seconds=random.integers(120, 600))
        case 1:
            _incident(random, where, cars=2, seconds=300, reports=3)
        case 2:
            _incident(random, where, cars=2, seconds=300, reports=4)
        case 3:
            _incident(random, where, cars=2, seconds=random.integers(180, 600))
            where["apart"] = 1
        case _:
            _incident(random, where, cars=3, seconds=600, reports=random.integers(4, 7))
            where["relay"] = True


def _jam(random: np.random.Generator, where: Array) -> None:
    first = random.integers(0, SEGMENTS - 1)
    where["first"], where["last"] = first, min(first + random.integers(2, 10), SEGMENTS - 1)
    where["end"] = where["begin"] + random.integers(300, 900)
    where["cap"] = random.integers(9, 31)
