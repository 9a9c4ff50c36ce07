"""Random numbers, computed from a seed, the number of an event, and the number of the draw."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from primitives.kernels import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)

#: Draw numbers that are reserved for a draw of many values, such as the characters of a text.
MANY = 1 << 12


class Draw(IntEnum):
    """The random decisions of an event. Each has its own number, so it does not depend on the other draws."""

    HOT_AUCTION = 1
    COLD_AUCTION = 2
    HOT_PERSON = 3
    COLD_PERSON = 4
    PRICE = 5
    RESERVE = 6
    CATEGORY = 7
    LENGTH = 8
    SKEWED = 9
    SKEW_KEY = 10
    FIRST_NAME = 11
    LAST_NAME = 12
    CITY = 13
    STATE = 14
    HELD_BACK = 15
    DELAY = 16
    TEXT = 17  #: the kinds of text have draw numbers from here on, `MANY` each


@kernel
def draw(seed: np.uint64, number: int, which: int) -> np.uint64:
    """Returns 64 random bits."""
    bits = seed + np.uint64(number) * _GOLDEN + np.uint64(which) * _OTHER
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


@kernel
def below(bits: np.uint64, limit: int) -> int:
    """Returns a number of at least 0 and below the limit, which is less than 2^32."""
    return np.int64(((bits >> _HALF) * np.uint64(limit)) >> _HALF)  # type: ignore[return-value]


@kernel
def unit(bits: np.uint64) -> float:
    """Returns a number of at least 0 and below 1."""
    return float(bits >> np.uint64(11)) * 2.0**-53
