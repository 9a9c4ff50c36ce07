"""Targets: the owners of slots after a migration, computed from the facts when it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from policies.scaling.assignment import relocated, rescaled
from primitives.errors import UserError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.record.facts import QueryFacts

#: The slots that each instance gets, in the form that `Manager.move` takes.
Parts = Mapping[int, SlotSet]
Goal = Callable[[QueryFacts], Parts]
#: A user's target: an assignment, a number of instances, or slots by instance (`1`, or `counter[1]`).
Target = Assignment | int | Mapping[int | str, SlotSet | Iterable[int]] | Goal


def goal_of(operator: str, target: Target, slot_bits: int) -> Goal:
    """Returns the goal for a target.

    Raises UserError if it is not possible for an operator with 2^`slot_bits` slots.
    """
    match target:
        case int():
            return to_parallelism(operator, target)
        case Assignment():
            return _to_assignment(operator, target, slot_bits)
        case Mapping():
            return _to_parts(operator, _read_parts(operator, target, slot_bits))
        case _ if callable(target):
            return target
    raise UserError(
        f"{target!r} is no target for {operator}; give a number of instances, an Assignment, or slots by instance"
    )


# -- goals ------------------------------------------------------------------------------------------------------------


def to_parallelism(operator: str, parallelism: int) -> Goal:
    """Returns a goal with this number of instances, for which as few slots move as possible."""
    return lambda facts: rescaled(facts.latest(operator), parallelism, facts.fresh[operator])


def handed_over(operator: str, index: int | None) -> Goal:
    """Returns a goal by which all slots of an instance (of the first, if none is named) move to a new one."""

    def parts(facts: QueryFacts) -> Parts:
        assignment = facts.latest(operator)
        origin = min(assignment.parts) if index is None else index
        if origin not in assignment.parts:
            raise UserError(f"{operator}[{origin}] owns no slots; those that do: {_names(operator, assignment)}")
        return relocated(assignment, origin, facts.fresh[operator])

    return parts


def passed_on(operator: str) -> Goal:
    """Returns a goal by which every slot moves to the next instance, so that all change their owner."""

    def parts(facts: QueryFacts) -> Parts:
        owned = facts.latest(operator).parts
        if len(owned) < 2:
            raise UserError(f"{operator} has one instance, so none of its slots can change its owner; scale it out")
        givers = list(owned)
        return {taker: owned[giver] for giver, taker in zip(givers, [*givers[1:], givers[0]], strict=True)}

    return parts


def away_from(operator: str, node: str, heirs: dict[int, int]) -> Goal:
    """Returns a goal by which every instance with slots on the node is replaced by a new one.

    `heirs` keeps the replacement of each, for slots that come to the node later.
    """

    def parts(facts: QueryFacts) -> Parts:
        assignment, fresh = facts.latest(operator), count(facts.fresh[operator])
        hosted = [i.index for i, seat in facts.placement.items() if i.operator == operator and seat.node == node]
        leaving = sorted(index for index in hosted if index in assignment.parts)
        heirs.update({index: next(fresh) for index in leaving if heirs.get(index) not in assignment.parts})
        return {heirs[index]: assignment.slots_of(index) for index in leaving}

    return parts


def _to_assignment(operator: str, target: Assignment, slot_bits: int) -> Goal:
    if target.slot_bits != slot_bits:
        raise UserError(f"{operator} has {1 << slot_bits} slots, and the assignment is of {1 << target.slot_bits}")
    return _to_parts(operator, target.parts)


def _to_parts(operator: str, parts: Parts) -> Goal:
    def checked(facts: QueryFacts) -> Parts:
        owned = facts.latest(operator)
        for index in parts:
            if index not in owned.parts and facts.was_born(InstanceId(operator, index)):
                raise UserError(
                    f"{operator}[{index}] has given up all its slots and gets no new ones; name one of "
                    f"{_names(operator, owned)}, or a new one from {operator}[{facts.fresh[operator]}] on"
                )
        return {index: slots - owned.slots_of(index) for index, slots in parts.items()}

    return checked


# -- users' input -----------------------------------------------------------------------------------------------------


def _read_parts(operator: str, target: Mapping[Any, Any], slot_bits: int) -> Parts:
    parts, given, everything = dict[int, SlotSet](), SlotSet.empty(), SlotSet.full(slot_bits)
    for name, wanted in target.items():
        slots = wanted if isinstance(wanted, SlotSet) else SlotSet(wanted)
        if not slots <= everything:
            missing = next(iter(slots - everything))
            raise UserError(f"{operator} has slots 0 to {(1 << slot_bits) - 1}; there is no slot {missing}")
        if not slots.isdisjoint(given):
            raise UserError(f"slot {next(iter(slots & given))} of {operator} cannot go to two instances")
        given |= slots
        parts[_index(operator, name)] = slots
    return parts


def _index(operator: str, name: object) -> int:
    text = str(name).removeprefix(f"{operator}[").removesuffix("]")
    if not text.isdecimal():
        raise UserError(f"{name!r} is no instance of {operator}; write its number, or {operator}[0]")
    return int(text)


def _names(operator: str, assignment: Assignment) -> str:
    return ", ".join(f"{operator}[{index}]" for index in assignment.parts)
