"""The strategies of Megaphone: which slots of a change move together, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.migration.matchings import Pair, matchings
from policies.migration.settings import MigrationSettings, Strategy
from policies.migration.steps import MigrationSteps
from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.topology import Assignment

Numbers = NDArray[np.int64]


class Moving(NamedTuple):
    """The slots that move, in slot order."""

    slots: Numbers
    origins: NDArray[np.int32]
    targets: NDArray[np.int32]


def cut(assignment: Assignment, change: Mapping[int, SlotSet], settings: MigrationSettings) -> MigrationSteps:
    """Returns the steps of `change`, which has the slots that each instance is to get.

    Every moved slot is in one step. An instance that owns slots at the end always owns some in between, because without
    any it could get none. If all its slots would leave before the first new one comes, its last step is delayed until
    then, and so one step is larger than the strategy says.

    >>> settings = MigrationSettings(strategy="batched", batch=2)
    >>> list(cut(Assignment([0, 0, 0, 0, 1, 1, 1, 1]), {2: SlotSet([2, 3, 6, 7])}, settings))
    [{2: SlotSet(2, 6)}, {2: SlotSet(3, 7)}]
    """
    moving = _moving(assignment, change)
    if not len(moving.slots):
        return MigrationSteps.of(*moving[::2], np.zeros(0))
    numbers = STRATEGIES[settings.strategy](moving, settings.batch)
    return MigrationSteps.of(moving.slots, moving.targets, _put_off(assignment, moving, numbers))


def _moving(assignment: Assignment, change: Mapping[int, SlotSet]) -> Moving:
    given = SlotSet.empty()
    for index, slots in change.items():
        if not slots.isdisjoint(given):
            raise UserError(f"slot {next(iter(slots & given))} cannot go to instance {index} and to another one")
        given |= slots
    after = assignment.moved(change).owners
    slots_moved = np.flatnonzero(assignment.owners != after)
    return Moving(slots_moved, assignment.owners[slots_moved], after[slots_moved])


# --- step numbers of slots --------------------------------------------------------------------------------------------


def _all_at_once(moving: Moving, _: int) -> Numbers:
    return np.zeros(len(moving.slots), np.int64)


def _fluid(moving: Moving, _: int) -> Numbers:
    return _batched(moving, 1)


def _batched(moving: Moving, batch: int) -> Numbers:
    """Returns the step of each slot: steps of `batch` slots, from every pair in proportion to its slots."""
    return places_in_turn(_pairs(moving)[1]) // np.int64(batch)


def _optimised(moving: Moving, batch: int) -> Numbers:
    """Returns the step of each slot: one batch of each pair of a matching, so that no instance gives or gets more."""
    pairs, pair = _pairs(moving)
    batches = -(-np.bincount(pair, minlength=len(pairs)) // batch)
    firsts = np.cumsum(batches) - batches
    turns: Numbers = _turns(pairs, batches)[firsts[pair] + _ranks(pair) // batch]
    return turns


def _turns(pairs: list[Pair], batches: Numbers) -> Numbers:
    """Returns the step of each batch: first those of the first pair, in order, then those of the second, and so on."""
    found = matchings(dict(zip(pairs, batches.tolist(), strict=True)))
    used = np.repeat(np.arange(len(found)), [times for times, _ in found])  # one matching per step, in any order
    steps = np.split(places_in_turn(used), np.cumsum([times for times, _ in found])[:-1])
    turns: dict[Pair, list[Numbers]] = {pair: [] for pair in pairs}
    for (_, matching), its_steps in zip(found, steps, strict=True):
        for pair in matching:
            turns[pair].append(its_steps)
    return np.concatenate([np.sort(np.concatenate(turns[pair])) for pair in pairs])


STRATEGIES: Mapping[Strategy, Callable[[Moving, int], Numbers]] = {
    Strategy.ALL_AT_ONCE: _all_at_once,
    Strategy.FLUID: _fluid,
    Strategy.BATCHED: _batched,
    Strategy.OPTIMISED: _optimised,
}


def _pairs(moving: Moving) -> tuple[list[Pair], Numbers]:
    """Returns the pairs (origin, target), and the pair of each slot."""
    codes = moving.origins.astype(np.int64) << 32 | moving.targets
    found, pair = np.unique(codes, return_inverse=True)
    return [(code >> 32, code & 0xFFFFFFFF) for code in found.tolist()], pair


def places_in_turn(groups: NDArray[np.integer[Any]]) -> Numbers:
    """Returns the place of each item in an order that gives every group its fair share of any stretch.

    >>> places_in_turn(np.array([0, 0, 0, 0, 1, 1])).tolist()
    [0, 2, 3, 5, 1, 4]
    """
    positions = (_ranks(groups) + 0.5) / np.bincount(groups)[groups]
    places = np.empty(len(groups), np.int64)
    places[np.lexsort((groups, positions))] = np.arange(len(groups))
    return places


def _ranks(groups: NDArray[np.integer[Any]]) -> Numbers:
    """Returns the place of each item among those of its group."""
    counts = np.bincount(groups)
    ranks = np.empty(len(groups), np.int64)
    ranks[np.argsort(groups, kind="stable")] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


# --- no instance is emptied early -------------------------------------------------------------------------------------


def _put_off(assignment: Assignment, moving: Moving, numbers: Numbers) -> Numbers:
    """Keeps the last slot of an instance that gives all slots and gets some, until the first of these arrives."""
    renewed = [index for index in np.unique(moving.targets) if _gives_all(assignment, moving, index)]
    numbers, late = numbers.copy(), True
    while late:
        late = False
        for index in renewed:
            given, first = moving.origins == index, numbers[moving.targets == index].min()
            last = numbers[given].max()
            if last < first:
                numbers[given & (numbers == last)] = first
                late = True
    return numbers


def _gives_all(assignment: Assignment, moving: Moving, index: int) -> bool:
    return 0 < len(assignment.slots_of(index)) == int(np.count_nonzero(moving.origins == index))
