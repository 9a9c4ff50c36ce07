"""Random numbers for compiled code (splitmix64): equal seeds give equal numbers wherever they are drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel

Chance = NDArray[np.uint64]  #: the state of a generator: one number

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def chance(seed: int) -> Chance:
    """Returns the initial state."""
    return np.array([seed], np.uint64)


@kernel
def draw(state: Chance) -> float:
    """Returns a random number of at least 0 and below 1."""
    state[0] += _GOLDEN
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    bits ^= bits >> np.uint64(31)
    return float(bits >> np.uint64(11)) * 2.0**-53


@kernel
def below(state: Chance, limit: int) -> int:
    """Returns a random integer of at least 0 and below the limit."""
    return int(draw(state) * limit)


@kernel
def between(state: Chance, first: int, last: int) -> int:
    """Returns a random integer from `first` to `last`, including both."""
    return first + int(draw(state) * (last - first + 1))
