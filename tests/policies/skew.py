"""Skew: an operator whose slots have unequal loads over time, and a balancer that moves them, one window at a time.

The input waits for nobody but the fullest instance, so throughput is the mean of what instances have to do, over the
most that one of them has: 1 is as good as it can be. What is decided at the end of a window holds in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.balance.loads import Balancer, HotKey, SlotLoads
from primitives.slots import SlotSet
from primitives.topology import Assignment

SLOT_BITS = 8
#: Rows of all slots in one window.
ROWS = 100_000
#: Windows that a balancer is shown, by default.
HISTORY = 8

Shares = NDArray[np.float64]
#: The part of the rows that each slot has, window by window.
Curve = Callable[[int], Shares]


def owned_by(instances: Sequence[int], of: int, slot_bits: int = SLOT_BITS) -> NDArray[np.bool_]:
    """The slots that these instances own to begin with."""
    return np.isin(Assignment.contiguous(of, slot_bits).owners, instances)


def skewed(hot: NDArray[np.bool_], share: float) -> Shares:
    """Hot slots have that share of the rows among them, the others the rest."""
    return np.where(hot, share / hot.sum(), (1 - share) / (~hot).sum())


def always(shares: Shares) -> Curve:
    return lambda _: shares


def spike(shares: Shares, begin: int, end: int) -> Curve:
    even = np.full(len(shares), 1 / len(shares))
    return lambda window: shares if begin <= window < end else even


def rotating(share: float, instances: int, period: int) -> Curve:
    """For some windows the slots of one instance are hot, then those of the next."""
    return lambda window: skewed(owned_by([window // period % instances], instances), share)


@dataclass
class Skewed:
    """One operator, run window by window."""

    curve: Curve
    instances: int
    balancer: Balancer | None = None
    noise: float = 0.0  #: part by which what a slot has is off, at most
    takes: int = 0  #: windows for which slots are on their way
    slot_bits: int = SLOT_BITS
    throughput: list[float] = field(default_factory=list)  #: in each window
    moved: list[int] = field(default_factory=list)  #: slots, after each window
    told: list[HotKey] = field(default_factory=list)
    assignment: Assignment = field(init=False)  #: at the end

    def run(self, windows: int) -> Skewed:
        self.assignment = assignment = Assignment.contiguous(self.instances, self.slot_bits)
        chance = np.random.default_rng(7)
        seen: list[SlotLoads] = []
        under_way: list[SlotSet] = []
        for window in range(windows):
            shares = self.curve(window) * chance.uniform(1 - self.noise, 1 + self.noise, 1 << self.slot_bits)
            loads = np.bincount(assignment.owners, weights=shares, minlength=self.instances)
            self.throughput.append(float(loads.mean() / loads.max()))
            moving = SlotSet([slot for slots in under_way[-self.takes :] for slot in slots] if self.takes else [])
            seen = [*seen, SlotLoads(1.0, assignment, np.rint(shares * ROWS).astype(np.int64), moving=moving)][
                -HISTORY:
            ]
            moves = self._decide(seen)
            under_way.append(SlotSet([slot for slots in moves.values() for slot in slots]))
            self.moved.append(len(under_way[-1]))
            self.assignment = assignment = assignment.moved(moves)
        return self

    def _decide(self, seen: list[SlotLoads]) -> dict[int, SlotSet]:
        if self.balancer is None:
            return {}
        decided = self.balancer.decide(seen)
        self.told += decided.hot
        return dict(decided.moves)
