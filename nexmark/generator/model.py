"""Computes the numeric fields of events, each a function of the event's number (compiled)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nexmark.generator.chance import Draw, below, draw, unit
from primitives.kernels import kernel

Ints = NDArray[np.int64]

#: The lowest id of persons and auctions, and of categories.
FIRST_ID, FIRST_CATEGORY = 1_000, 10
CATEGORIES = 5
#: How far references go beyond the newest person or auction; the number of ids for which a hot one stays hot.
LEAD, HOT = 10, 100


class Model(NamedTuple):
    """The settings that compiled functions need, as numbers."""

    seed: np.uint64
    persons: int
    auctions: int
    cycle: int
    in_flight: int
    active: int
    hot_auctions: int
    hot_sellers: int
    hot_bidders: int


@kernel
def last_person(number: int, model: Model) -> int:
    """Returns the newest person at the time of an event. Internal ids start at 0, unlike those in the output."""
    turn, place = divmod(number, model.cycle)
    return turn * model.persons + min(place, model.persons - 1)


@kernel
def last_auction(number: int, model: Model) -> int:
    """Returns the newest auction at the time of an event."""
    turn, place = divmod(number, model.cycle)
    if place < model.persons:
        return (turn - 1) * model.auctions + model.auctions - 1
    return turn * model.auctions + min(place - model.persons, model.auctions - 1)


@kernel
def price(bits: np.uint64) -> int:
    """Returns a price from 100 to 10^8, with an evenly distributed logarithm."""
    return np.int64(100.0 * np.exp(unit(bits) * 13.815510557964274) + 0.5)  # type: ignore[return-value]


@kernel
def _is_hot(number: int, which: int, ratio: int, model: Model) -> bool:
    return below(draw(model.seed, number, which), ratio) > 0  # type: ignore[no-any-return]


@kernel
def _person(number: int, ratio: int, hot: int, model: Model) -> int:
    """Returns a hot person, any active person, or one that registers later."""
    newest = last_person(number, model)
    if _is_hot(number, Draw.HOT_PERSON, ratio, model):
        return newest // HOT * HOT + hot  # type: ignore[no-any-return]
    active = min(newest + 1, model.active)
    cold = below(draw(model.seed, number, Draw.COLD_PERSON), active + LEAD)
    return newest + 1 - active + cold  # type: ignore[no-any-return]


@kernel
def _auction(number: int, model: Model) -> int:
    newest = last_auction(number, model)
    if _is_hot(number, Draw.HOT_AUCTION, model.hot_auctions, model):
        return newest // HOT * HOT  # type: ignore[no-any-return]
    lowest = max(newest - model.in_flight, 0)
    cold = below(draw(model.seed, number, Draw.COLD_AUCTION), newest - lowest + 1 + LEAD)
    return lowest + cold  # type: ignore[no-any-return]


# --- columns ----------------------------------------------------------------------------------------------------------


@kernel
def persons(numbers: Ints, model: Model) -> Ints:
    """Returns the ids of persons."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = last_person(numbers[at], model) + FIRST_ID
    return out


@kernel
def auctions(numbers: Ints, model: Model) -> Ints:
    """Returns the ids of auctions."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = last_auction(numbers[at], model) + FIRST_ID
    return out


@kernel
def sellers(numbers: Ints, model: Model) -> Ints:
    """Returns the sellers of auctions."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = _person(numbers[at], model.hot_sellers, 0, model) + FIRST_ID
    return out


@kernel
def bidders(numbers: Ints, model: Model) -> Ints:
    """Returns the bidders of bids."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = _person(numbers[at], model.hot_bidders, 1, model) + FIRST_ID
    return out


@kernel
def bid_auctions(numbers: Ints, model: Model) -> Ints:
    """Returns the auctions of bids."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = _auction(numbers[at], model) + FIRST_ID
    return out


@kernel
def prices(numbers: Ints, model: Model, which: int) -> Ints:
    """Returns prices of bids, first bids of auctions, or the amounts by which reserves exceed these."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = price(draw(model.seed, numbers[at], which))
    return out


@kernel
def choices(numbers: Ints, model: Model, which: int, count: int) -> Ints:
    """Returns a random choice out of `count` for each event."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = below(draw(model.seed, numbers[at], which), count)
    return out


@kernel
def expiries(numbers: Ints, times: Ints, horizons: Ints, model: Model) -> Ints:
    """Returns the ends of auctions: at most twice their horizon after their beginning."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        length = below(draw(model.seed, numbers[at], Draw.LENGTH), max(2 * horizons[at], 1))
        out[at] = times[at] + 1 + length
    return out


@kernel
def delays(numbers: Ints, model: Model, share: float, longest: int) -> Ints:
    """Returns the milliseconds by which events are held back; 0 for most."""
    out = np.zeros(len(numbers), np.int64)
    for at in range(len(numbers)):
        if unit(draw(model.seed, numbers[at], Draw.HELD_BACK)) < share:
            out[at] = 1 + below(draw(model.seed, numbers[at], Draw.DELAY), longest)
    return out


# --- numbers and times ------------------------------------------------------------------------------------------------


@kernel
def steady_times(numbers: Ints, base: int, dilation: int, rate: int) -> Ints:
    """Returns event times at a steady rate."""
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = base + numbers[at] * 1_000 * dilation // rate
    return out


@kernel
def of_kinds(numbers: Ints, wanted: NDArray[np.bool_]) -> Ints:
    """Returns the indexes of events of wanted kinds; `wanted` has an entry for each place in the cycle."""
    out = np.empty(len(numbers), np.int64)
    count = 0
    for at in range(len(numbers)):
        out[count] = at
        count += wanted[numbers[at] % len(wanted)]
    return out[:count]
