"""Keys computed from their positions: by the sources of the queries, and again by whoever checks the counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel

Numbers = NDArray[np.int64]
#: What a generator source calls: (partition, position of the first row, how many rows) -> columns.
Columns = Callable[[int, int, int], dict[str, Numbers]]

#: Different keys, from 0 on.
KEYS = 1_000_000
#: Keys that `Drifting` draws from at any time, and by how many these move on in a second.
DRIFT = KEYS // 20

#: Has no divisor in common with a power of ten.
_TURN = 618_033


@dataclass(frozen=True, slots=True)
class AtRandom:
    """Every key is as likely at every position."""

    keys: int = KEYS

    def __call__(self, partition: int, first: int, count: int) -> dict[str, Numbers]:  # noqa: ARG002
        return {"key": _at_random(first, count, self.keys)}


@dataclass(frozen=True, slots=True)
class InTurn:
    """Every key once in any `keys` positions, neighbours far apart."""

    keys: int = KEYS

    def __post_init__(self) -> None:
        assert gcd(_TURN, self.keys) == 1, "some keys would never come"

    def __call__(self, partition: int, first: int, count: int) -> dict[str, Numbers]:  # noqa: ARG002
        return {"key": np.arange(first, first + count, dtype=np.int64) * _TURN % self.keys}


at_random, in_turn = AtRandom(), InTurn()


@dataclass(frozen=True, slots=True)
class Drifting:
    """Keys from a range that moves: in any second, at `rows_per_second`, a tenth of all keys occurs."""

    rows_per_second: float

    def __call__(self, partition: int, first: int, count: int) -> dict[str, Numbers]:  # noqa: ARG002
        return {"key": _drifting(first, count, max(round(self.rows_per_second / DRIFT), 1))}


def counts(columns: Columns, rows: int, block: int = 1 << 22) -> Numbers:
    """Returns the number of occurrences of each key at the first `rows` positions, by NumPy alone."""
    found = np.zeros(KEYS, np.int64)
    for first in range(0, rows, block):
        found += np.bincount(columns(0, first, min(block, rows - first))["key"], minlength=KEYS)
    return found


@kernel
def _at_random(first: int, count: int, below: int) -> Numbers:
    keys = np.empty(count, np.int64)
    for row in range(count):
        keys[row] = _random(first + row, below)
    return keys


@kernel
def _drifting(first: int, count: int, rows_per_step: int) -> Numbers:
    keys = np.empty(count, np.int64)
    done = 0
    while done < count:  # the keys of one step at a time
        step, passed = divmod(first + done, rows_per_step)
        lowest, end = step % KEYS, min(done + rows_per_step - passed, count)
        for row in range(done, end):
            key = lowest + _random(first + row, DRIFT)
            keys[row] = key if key < KEYS else key - KEYS
        done = end
    return keys


@kernel
def _random(position: int, below: int) -> int:
    """SplitMix64 of a position, its upper half scaled to [0, below)."""
    mixed = (np.uint64(position) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.int64((mixed >> np.uint64(32)) * np.uint64(below) >> np.uint64(32))  # type: ignore[return-value]
