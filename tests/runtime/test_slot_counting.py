"""Slot counting: nodes count the rows of operators that are balanced, or that somebody has looked at lately."""

from __future__ import annotations

from seep.channels.letters import CountSlots
from seep.driver.slot_counting import LOOKED, SlotCounting
from tests.record.kit import Recorded


def counting() -> tuple[SlotCounting, list[tuple[str, ...]]]:
    """What is counted, and what nodes have been told of it."""
    told: list[tuple[str, ...]] = []

    def tell(letter: CountSlots) -> None:
        told.append(letter.operators)

    return SlotCounting(Recorded().record, tell, 0.1), told


def test_nodes_are_told_once_when_somebody_begins_to_look_and_once_when_nobody_has_for_a_while() -> None:
    slots, told = counting()
    slots.look("counter", 0.0)
    slots.look("counter", LOOKED - 1.0)
    slots.expire(LOOKED + 1.0)
    assert told == [("counter",)]
    slots.expire(2 * LOOKED - 1.0)
    slots.expire(2 * LOOKED)
    assert told == [("counter",), ()]


def test_balanced_operators_are_counted_whoever_looks_and_looking_makes_no_operator_balanced() -> None:
    slots, told = counting()
    slots.balance(["counter"])
    slots.look("map", 0.0)
    assert (slots.balanced, slots.letter.operators) == ({"counter"}, ("counter", "map"))
    slots.look("counter", 0.0)
    slots.balance([])
    assert (slots.balanced, slots.letter.operators) == (set(), ("counter", "map"))
    slots.expire(LOOKED)
    assert told == [("counter",), ("counter", "map"), ("counter", "map"), ("counter", "map"), ()]
