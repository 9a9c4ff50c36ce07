"""Consults a balancer, built-in or a user's own, and checks its decision before it becomes a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.balance.loads import Balancer, Rebalance, SlotLoads
from primitives.errors import SeepError, UserError
from primitives.slots import SlotSet
from primitives.topology import Assignment


def asked(balancer: Balancer, windows: Sequence[SlotLoads]) -> Rebalance:
    """Returns the balancer's decision.

    Raises UserError with its class if it fails, or if the decision is not possible.
    """
    name = f"balancer {type(balancer).__name__}"
    try:
        decided: object = balancer.decide(windows)
    except SeepError:
        raise
    except Exception as reason:
        raise UserError(f"{name} fails: {type(reason).__name__}: {reason}") from reason
    if not isinstance(decided, Rebalance):
        raise UserError(f"{name} decides {decided!r}; decide must return a policies.balance.loads.Rebalance")
    _check(decided.moves, windows[-1], name)
    return decided


def _check(moves: Mapping[int, SlotSet], window: SlotLoads, name: str) -> None:
    """Checks that slots move to existing instances, each to one, that none is moving, and no instance loses all."""
    given, everything = SlotSet.empty(), SlotSet.full(window.assignment.slot_bits)
    for index, slots in moves.items():
        if index not in window.assignment.parts:
            there = ", ".join(map(str, window.assignment.parts))
            raise UserError(f"{name} gives slots to instance {index}; there are instances {there}")
        for wrong, words in (
            (slots - everything, "does not exist"),
            (slots & window.moving, "is on its way"),
            (slots & given, "goes to another one too"),
        ):
            if wrong:
                raise UserError(f"{name} moves slot {next(iter(wrong))} to instance {index}, but it {words}")
        given |= slots
    _check_nobody_loses_all(window.assignment, moves, name)


def _check_nobody_loses_all(assignment: Assignment, moves: Mapping[int, SlotSet], name: str) -> None:
    for index in assignment.parts.keys() - assignment.moved(moves).parts.keys():
        raise UserError(f"{name} takes all slots from instance {index}; that is for scaling in to decide")
