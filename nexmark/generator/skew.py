"""BidSkew: sends a share of the bids to chosen auctions: always, at intervals, or to changing ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from nexmark.generator.chance import Draw, below, draw, unit
from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.kernels import kernel
from primitives.slots import DEFAULT_SLOT_BITS, contiguous_assignment, slots_of

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: How far below an auction a chosen one is searched; one further away is too unlikely to matter.
_NEAR = 1 << 16
_FIRST = 1_000


class Pattern(StrEnum):
    """The pattern of redirected bids over time."""

    FIXED = "fixed"
    SPIKING = "spiking"  #: in the first half of each period only
    ROTATING = "rotating"  #: to the next instances in each period


@dataclass(frozen=True, slots=True, kw_only=True)
class BidSkew:
    """A share of the bids goes to `keys`, or each to the nearest chosen auction at or below its own number.

    Chosen auctions are those whose number modulo `modulus` is in `residues`, or those whose slots belong to the first
    `hot` of `instances`, if slots are divided evenly.
    """

    share: float
    keys: tuple[int, ...] = ()
    modulus: int = 0
    residues: tuple[int, ...] = ()
    hot: int = 0
    instances: int = 0
    slot_bits: int = DEFAULT_SLOT_BITS
    pattern: Pattern = Pattern.FIXED
    period: float = 10.0  #: seconds of event time
    begin: float = 0.0  #: seconds of event time after the first event
    end: float = float("inf")

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.period <= 0:
            raise UserError(
                f"skew of {self.share} of the bids every {self.period} s; say a part from 0 to 1, and a time"
            )
        if [bool(self.keys), bool(self.modulus and self.residues), bool(self.hot)].count(True) != 1:
            raise UserError("skew goes to keys, or to residues of a modulus, or to hot instances; name one of these")
        if self.hot and not self.hot <= self.instances <= 1 << self.slot_bits:
            raise UserError(f"skew to {self.hot} of {self.instances} instances; there are 1 to {1 << self.slot_bits}")
        if self.pattern is Pattern.ROTATING and not self.hot:
            raise UserError("only skew to hot instances can rotate")

    def redirect(self, seed: np.uint64, numbers: Ints, auctions: Ints, since: Ints) -> Ints:
        """Returns the redirected auctions of bids; `since` is each event time, in milliseconds after the first."""
        concerned = self._concerned(seed, numbers, since)
        out = auctions.copy()
        if self.keys:
            out[concerned] = _by_lot(seed, numbers[concerned], np.array(self.keys, np.int64))
            return out
        turns = self._turns(since)
        for turn in np.unique(turns[concerned]):
            rows = np.flatnonzero(concerned & (turns == turn))
            out[rows] = self._nearest(auctions[rows], int(turn))
        return out

    def _concerned(self, seed: np.uint64, numbers: Ints, since: Ints) -> Flags:
        inside = (since >= self.begin * 1_000) & (since < self.end * 1_000)
        if self.pattern is Pattern.SPIKING:
            inside &= since % (self.period * 1_000) < self.period * 500
        concerned: Flags = inside & _chosen(seed, numbers, self.share)
        return concerned

    def _turns(self, since: Ints) -> Ints:
        if self.pattern is not Pattern.ROTATING:
            return np.zeros(len(since), np.int64)
        return (since // (self.period * 1_000)).astype(np.int64)

    def _nearest(self, auctions: Ints, turn: int) -> Ints:
        """Returns the nearest chosen auction at or below each, or the same auction if there is none."""
        first = max(int(auctions.min()) - _NEAR, _FIRST)
        there = np.arange(first, int(auctions.max()) + 1)
        nearest = np.maximum.accumulate(np.where(self._is_target(there, turn), there, -1))[auctions - first]
        return np.where(nearest < 0, auctions, nearest)

    def _is_target(self, auctions: Ints, turn: int) -> Flags:
        if self.modulus:
            return np.isin(auctions % self.modulus, self.residues)
        owners = contiguous_assignment(self.instances, self.slot_bits)
        mine = owners[slots_of(hash_keys([auctions]), self.slot_bits)]
        hot: Flags = (mine - turn * self.hot) % self.instances < self.hot
        return hot


@kernel
def _chosen(seed: np.uint64, numbers: Ints, share: float) -> Flags:
    out = np.empty(len(numbers), np.bool_)
    for at in range(len(numbers)):
        out[at] = unit(draw(seed, numbers[at], Draw.SKEWED)) < share
    return out


@kernel
def _by_lot(seed: np.uint64, numbers: Ints, keys: Ints) -> Ints:
    out = np.empty(len(numbers), np.int64)
    for at in range(len(numbers)):
        out[at] = keys[below(draw(seed, numbers[at], Draw.SKEW_KEY), len(keys))]
    return out
