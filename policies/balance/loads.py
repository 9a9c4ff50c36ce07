"""SlotLoads: what a balancer knows of an operator in each window of time; Rebalance: its decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from primitives.slots import SlotSet
from primitives.topology import Assignment

#: A number per slot, or per instance.
Numbers = NDArray[np.float64]


class Heaviest(NamedTuple):
    """The key with the most rows in a slot."""

    key: str
    share: float  #: fraction of the slot's rows


@dataclass(frozen=True, slots=True, eq=False)
class SlotLoads:
    """An operator over one window."""

    seconds: float  #: length of the window
    assignment: Assignment  #: the assignment after all plans so far
    rows: NDArray[np.integer[Any]]  #: number of rows of each slot
    cpu: Numbers | None = None  #: CPU seconds of each slot; NaN if not known
    moving: SlotSet = field(default_factory=SlotSet.empty)  #: slots that are moving
    heaviest: Mapping[int, Heaviest] = field(default_factory=dict)  #: by slot, if known


class HotKey(NamedTuple):
    """A slot that is too hot for any single instance: moving it would only move the problem."""

    slot: int
    instance: int  #: its owner
    share: float  #: fraction of the operator's work
    key: str | None  #: its heaviest key, if known
    why: str  #: an explanation with the numbers, and what can be done


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The changes that a balancer wants now; mostly none."""

    moves: Mapping[int, SlotSet] = field(default_factory=dict)  #: slots that each instance gets, for `Manager.move`
    why: str = ""  #: an explanation with the numbers; empty if nothing moves
    hot: tuple[HotKey, ...] = ()  #: slots that became too hot since the window before


class Balancer(Protocol):
    """Decides by the windows alone, without clock, randomness or memory."""

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        """Returns the decision for `windows` of one operator: oldest first, at least one; the last has just ended."""
        ...


def work_of(windows: Sequence[SlotLoads]) -> Numbers:
    """Returns the work of each slot in each window, per second: CPU time if all windows have it, else rows.

    If the CPU time of a slot is not known, its rows count as long as those of other slots.

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
    """Returns the work of each of `count` instances in each window, if `owners` (0 to count - 1) own the slots."""
    return np.array([np.bincount(owners, weights=window, minlength=count) for window in work])
