"""Skewed loads: keys of which many are those of a few instances, for a while or in turns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.slots import DEFAULT_SLOT_BITS, contiguous_assignment, slots_of

#: Different keys, from 0 on.
KEYS = 20_000

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Skew:
    """From `begin` to `end`, so much of the rows have keys that certain instances own at first.

    Times are seconds of a run without skew: they stand for rows, so that with and without balancing these are the same.
    """

    name: str
    instances: int
    share: float = 0.0
    on: int = 1  #: how many instances the hot keys belong to
    begin: float = 0.0
    end: float = float("inf")
    turn: float = float("inf")  #: seconds after which the hot keys are those of the next instances

    def hot_instance(self, seconds: NDArray[np.float64], mixed: Numbers) -> Numbers:
        """Whose keys each row has; -1 where these may be anybody's."""
        is_hot = (seconds >= self.begin) & (seconds < self.end) & (mixed % 1000 < 1000 * self.share)
        turns = np.floor_divide(seconds, self.turn).astype(np.int64) if np.isfinite(self.turn) else 0
        return np.where(is_hot, (turns + mixed // 1000 % self.on) % self.instances, -1)


@dataclass(frozen=True, slots=True)
class Skewed:
    """The rows of a source whose load is skewed; `rate` is that of a run without skew."""

    skew: Skew
    rate: float

    def __call__(self, partition: int, first: int, count: int) -> dict[str, Numbers]:  # noqa: ARG002
        places = np.arange(first, first + count)
        mixed = places * 2_654_435_761 % 998_244_353
        hot = self.skew.hot_instance(places / self.rate, mixed)
        keys = mixed // 1_000_000 * 20_011 + mixed
        keys %= KEYS
        for instance, own in enumerate(keys_of(self.skew.instances)):
            chosen = hot == instance
            keys[chosen] = own[keys[chosen] % len(own)]
        return {"key": keys}


@cache
def keys_of(instances: int) -> list[Numbers]:
    """The keys that each instance owns at first."""
    keys = np.arange(KEYS)
    owners = contiguous_assignment(instances, DEFAULT_SLOT_BITS)[slots_of(hash_keys([keys]), DEFAULT_SLOT_BITS)]
    return [keys[owners == instance] for instance in range(instances)]
