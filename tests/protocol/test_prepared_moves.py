"""Moves that are announced long before their effect."""

from __future__ import annotations

import pytest

from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Accepted, Refusal, Refused
from seep.protocol.manager.state import ManagerSettings
from tests.protocol.staging import GRAPH, NUMBERS, OUT, PASS, SUM, node_of

LEAD = 2


@pytest.fixture
def manager() -> Manager:
    """At epoch 0, so that a move can be effective at epoch 3."""
    manager = Manager(GRAPH, settings=ManagerSettings(lead=LEAD))
    homes = {instance: node_of(instance) for instance in (NUMBERS, PASS, SUM, OUT)}
    for node in homes.values():
        manager.node_joined(node)
    manager.launch(homes)
    return manager


def test_a_move_is_effective_at_the_epoch_that_it_was_asked_for(manager: Manager) -> None:
    answer, _ = manager.move("sum", {1: SlotSet([3])}, first=9)
    assert isinstance(answer, Accepted)
    assert manager.moves[answer.plan].first == 9
    assert manager.topology.at("sum", 8) == Assignment([0, 0, 0, 0])
    assert manager.topology.at("sum", 9) == Assignment([0, 0, 0, 1])


def test_a_move_that_could_not_be_prepared_in_time_is_refused(manager: Manager) -> None:
    assert manager.soonest("sum") == LEAD + 1
    assert manager.move("sum", {1: SlotSet([3])}, first=LEAD)[0] == Refused(Refusal.TOO_SOON)
    assert isinstance(manager.move("sum", {1: SlotSet([3])}, first=LEAD + 1)[0], Accepted)


def test_later_moves_of_the_operator_take_effect_after_a_prepared_one(manager: Manager) -> None:
    manager.move("sum", {1: SlotSet([3])}, first=9)
    assert manager.move("sum", {1: SlotSet([2])}, first=9)[0] == Refused(Refusal.TOO_SOON)
    answer, _ = manager.move("sum", {1: SlotSet([2])})
    assert isinstance(answer, Accepted)
    assert manager.moves[answer.plan].first == 10


def test_other_operators_need_not_wait_for_a_prepared_move(manager: Manager) -> None:
    manager.move("sum", {1: SlotSet([3])}, first=9)
    assert manager.soonest("pass") == LEAD + 1
