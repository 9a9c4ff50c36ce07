"""SlotLoads: what a balancer knows of an operator in each window of time; Rebalance: what it decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from primitives.slots import SlotSet
from primitives.topology import Assignment

#: One number per slot, or per instance.
Numbers = NDArray[np.float64]


class Heaviest(NamedTuple):
    """The key of a slot that has the most rows."""

    key: str
    share: float  #: of the slot's rows


@dataclass(frozen=True, slots=True, eq=False)
class SlotLoads:
    """An operator over one window."""

    seconds: float  #: length of the window
    assignment: Assignment  #: as it is once all plans so far are carried out
    rows: NDArray[np.integer[Any]]  #: of each slot
    cpu: Numbers | None = None  #: seconds of each slot; not a number where that is not known
    moving: SlotSet = field(default_factory=SlotSet.empty)  #: slots that are on their way
    heaviest: Mapping[int, Heaviest] = field(default_factory=dict)  #: by slot, where it is known


class HotKey(NamedTuple):
    """A slot that is too hot for any one instance: to move it would only move the problem."""

    slot: int
    instance: int  #: that owns it
    share: float  #: of all that the operator has to do
    key: str | None  #: the heaviest in it, if that is known
    why: str  #: with the numbers, and what can be done


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The changes that a balancer wants now; most of the time none."""

    moves: Mapping[int, SlotSet] = field(default_factory=dict)  #: for `Manager.move`
    why: str = ""  #: with the numbers that led to it; empty if nothing moves
    hot: tuple[HotKey, ...] = ()  #: slots that became too hot since the window before


class Balancer(Protocol):
    """Decides by the windows alone: no clock, no chance, no memory of its own."""

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        """`windows` of one operator, oldest first, at least one; the last is the one that has just ended."""
        ...


def work_of(windows: Sequence[SlotLoads]) -> Numbers:
    """The work of each slot in each window, per second: CPU time if all windows report it, else rows.

    Where the CPU time of a slot is not known, it is taken to be as long per row as that of the others.

    >>> two = Assignment([0, 1])
    >>> work_of([SlotLoads(2.0, two, np.array([30, 10]), np.array([0.6, np.nan]))]).tolist()
    [[0.3, 0.1]]
    """
    if all(window.cpu is not None and np.isfinite(window.cpu).any() for window in windows):
        return np.array([_cpu(window) / window.seconds for window in windows])
    return np.array([window.rows / window.seconds for window in windows])


def _cpu(window: SlotLoads) -> Numbers:
    assert window.cpu is not None
    known = np.isfinite(window.cpu)
    rows = window.rows[known].sum()
    return np.where(known, window.cpu, window.rows * (window.cpu[known].sum() / rows if rows else 0.0))


def by_instance(work: Numbers, owners: NDArray[np.integer[Any]], count: int) -> Numbers:
    """The work of each of `count` instances in each window, if slots are owned as in `owners` (0 to count - 1)."""
    return np.array([np.bincount(owners, weights=window, minlength=count) for window in work])
