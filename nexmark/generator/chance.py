"""Random numbers as functions of a seed, the number of an event, and the number of the draw."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from primitives.kernels import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.uint64(0xD1B54A32D192ED03)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)

#: A draw of which several are needed, such as the characters of a text, has so many numbers for itself.
MANY = 1 << 12


class Draw(IntEnum):
    """What chance decides of an event; each by its own number, so none depends on how many others there were."""

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
    TEXT = 17  #: from here on by `MANY`: the kinds of text


@kernel
def draw(seed: np.uint64, number: int, which: int) -> np.uint64:
    """64 bits by chance."""
    bits = seed + np.uint64(number) * _GOLDEN + np.uint64(which) * _OTHER
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


@kernel
def below(bits: np.uint64, limit: int) -> int:
    """At least 0, below the limit, which is less than 2^32."""
    return np.int64(((bits >> _HALF) * np.uint64(limit)) >> _HALF)  # type: ignore[return-value]


@kernel
def unit(bits: np.uint64) -> float:
    """At least 0, below 1."""
    return float(bits >> np.uint64(11)) * 2.0**-53
