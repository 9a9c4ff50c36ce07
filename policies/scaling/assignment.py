"""Computes assignments for more or fewer instances of an operator that move as few slots as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from primitives.errors import InternalError, UserError
from primitives.slots import SlotSet, split_by_weight, split_evenly
from primitives.topology import Assignment

#: A weight per slot of an operator, such as its work.
Weights = NDArray[np.float64]


def rescaled(
    assignment: Assignment,
    parallelism: int,
    fresh: int,
    hot: Sequence[int] = (),
    weights: Weights | None = None,
) -> dict[int, SlotSet]:
    """Returns the slots that each instance gets, so that there are `parallelism` of them; for `Assignment.moved`.

    More: `hot` instances are split, in halves if there is one new instance for each. Without hot ones, the instances
    with the most slots (or weight, with weights) give some. New instances are numbered from `fresh` on. Fewer: those
    with the fewest slots leave, of equals the highest index, and those with the fewest slots left take theirs.

    >>> rescaled(Assignment([0, 0, 0, 0, 1, 1, 2, 2]), 4, fresh=5, hot=[0])
    {5: SlotSet(2-3)}
    >>> rescaled(Assignment([0, 0, 0, 0, 1, 1, 2, 2]), 2, fresh=5)
    {1: SlotSet(6-7)}
    """
    _check(assignment, parallelism, fresh)
    _check_weights(assignment, weights)
    more = parallelism - len(assignment.parts)
    if more > 0:
        return _gains(assignment, _with_more(assignment, more, fresh, hot, weights))
    return _gains(assignment, _with_fewer(assignment, -more)) if more else {}


def relocated(assignment: Assignment, index: int, fresh: int) -> dict[int, SlotSet]:
    """Returns the move of all slots of an instance to a new one, for instance when its node is drained.

    >>> relocated(Assignment([0, 0, 1, 1]), 1, fresh=2)
    {2: SlotSet(2-3)}
    """
    _check(assignment, len(assignment.parts), fresh)
    if index not in assignment.parts:
        raise InternalError(f"instance {index} owns no slot that could be relocated")
    return {fresh: assignment.slots_of(index)}


def split_parts(slots: SlotSet, parts: int, fresh: int, weights: Weights | None = None) -> dict[int, SlotSet]:
    """Returns the slots of new instances if an owner of `slots` becomes `parts` instances; it keeps the first part.

    >>> split_parts(SlotSet.full(3), 2, fresh=4)
    {4: SlotSet(4-7)}
    """
    if not 1 <= parts <= len(slots):
        raise UserError(f"an instance with {len(slots)} slots cannot be split into {parts}; choose 1 to {len(slots)}")
    return dict(enumerate(_cut(slots, parts, weights)[1:], fresh))


def _check(assignment: Assignment, parallelism: int, fresh: int) -> None:
    if not 1 <= parallelism <= assignment.owners.size:
        raise UserError(
            f"an operator with {assignment.owners.size} slots cannot have {parallelism} instances; "
            f"choose 1 to {assignment.owners.size}"
        )
    if fresh <= max(assignment.parts):
        raise InternalError(f"index {fresh} is not fresh: there is an instance {max(assignment.parts)}")


def _check_weights(assignment: Assignment, weights: Weights | None) -> None:
    if weights is not None and weights.shape != assignment.owners.shape:
        raise InternalError(f"{assignment.owners.size} slots need a weight each; the weights are {weights.shape}")


def _gains(before: Assignment, after: Assignment) -> dict[int, SlotSet]:
    gained = {index: slots - before.slots_of(index) for index, slots in after.parts.items()}
    return {index: slots for index, slots in gained.items() if slots}


# -- more instances ------------------------------------------------------------------------------------------------


def _with_more(
    assignment: Assignment, more: int, fresh: int, hot: Sequence[int], weights: Weights | None
) -> Assignment:
    """Splits hot instances first, as far as their slots allow; for further new instances all give."""
    splits = _of_hot(assignment, more, hot) or (_of_heaviest(assignment, more, weights) if weights is not None else {})
    for index, new in splits.items():
        assignment = assignment.moved(split_parts(assignment.slots_of(index), new + 1, fresh, weights))
        fresh += new
    return _levelled_out(assignment, more - sum(splits.values()), fresh)


def _of_hot(assignment: Assignment, more: int, hot: Sequence[int]) -> dict[int, int]:
    """Returns the number of new instances for each hot one: in turns, hottest first, as long as it has slots."""
    spare = {index: len(assignment.slots_of(index)) - 1 for index in dict.fromkeys(hot)}
    turns = range(min(more, max(spare.values(), default=0)))
    return dict(Counter([index for turn in turns for index, slots in spare.items() if turn < slots][:more]))


def _of_heaviest(assignment: Assignment, more: int, weights: Weights) -> dict[int, int]:
    """Returns the number of new instances for each one: repeatedly splits the one with the heaviest parts."""
    weight = {index: float(weights[slots.array].sum()) for index, slots in assignment.parts.items()}
    parts = dict.fromkeys(weight, 1)
    for _ in range(more):
        divisible = [index for index, slots in assignment.parts.items() if parts[index] < len(slots)]
        parts[max(divisible, key=lambda index: (weight[index] / parts[index], -index))] += 1
    return {index: count - 1 for index, count in parts.items() if count > 1}


def _levelled_out(assignment: Assignment, more: int, fresh: int) -> Assignment:
    """Gives new instances an even part, from those with the most slots."""
    if not more:
        return assignment
    size, sizes = assignment.owners.size, {index: len(slots) for index, slots in assignment.parts.items()}
    share, larger = divmod(size, len(sizes) + more)
    larger = max(0, larger - len(sizes))  # a remainder stays where it is, one slot each
    wanted = [share + 1] * larger + [share] * (more - larger)
    kept = _levelled(sizes, size - sum(wanted))
    given = _union(slots - SlotSet(slots.array[: kept[index]]) for index, slots in assignment.parts.items())
    return assignment.moved(dict(enumerate(_shared_out(given, wanted), fresh)))


# -- fewer instances -------------------------------------------------------------------------------------------------


def _with_fewer(assignment: Assignment, fewer: int) -> Assignment:
    """Moves only the slots of the instances that leave."""
    by_size = sorted(assignment.parts, key=lambda index: (len(assignment.slots_of(index)), -index))
    leaving, staying = by_size[:fewer], sorted(by_size[fewer:])
    sizes = {index: len(assignment.slots_of(index)) for index in staying}
    filled = _levelled(sizes, assignment.owners.size)
    given = _union(assignment.slots_of(index) for index in leaving)
    parts = _shared_out(given, [filled[index] - sizes[index] for index in staying])
    return assignment.moved(dict(zip(staying, parts, strict=True)))


# -- sizes -----------------------------------------------------------------------------------------------------------


def _levelled(sizes: Mapping[int, int], total: int) -> dict[int, int]:
    """Returns sizes with sum `total`: the largest are cut to one level, or the smallest filled up to one.

    >>> _levelled({0: 9, 1: 4, 2: 1}, 9), _levelled({0: 9, 1: 4, 2: 1}, 17)
    ({0: 4, 1: 4, 2: 1}, {0: 9, 1: 4, 2: 4})
    """
    towards = min if total < sum(sizes.values()) else max
    level = bisect_right(range(total + 1), total, key=lambda at: sum(towards(size, at) for size in sizes.values())) - 1
    found = {index: towards(size, level) for index, size in sizes.items()}
    movable = [i for i, size in sizes.items() if found[i] == level and towards(size, level + 1) == level + 1]
    for index in movable[: total - sum(found.values())]:
        found[index] += 1
    return found


def _cut(slots: SlotSet, parts: int, weights: Weights | None) -> list[SlotSet]:
    return split_evenly(slots, parts) if weights is None else split_by_weight(slots, weights[slots.array], parts)


def _shared_out(slots: SlotSet, counts: Iterable[int]) -> list[SlotSet]:
    """Divides the slots in order into parts of the given sizes."""
    bounds = np.cumsum(list(counts))[:-1]
    return [SlotSet(part) for part in np.split(slots.array, bounds)]


def _union(sets: Iterable[SlotSet]) -> SlotSet:
    return SlotSet(np.concatenate([slots.array for slots in sets]))
