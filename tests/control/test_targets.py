"""Targets: what people may ask slots to come to, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from primitives.errors import UserError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.control.targets import away_from, goal_of, handed_over, passed_on
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.state import ManagerSettings
from seep.record.facts import query_facts
from tests.protocol.staging import GRAPH, SLOT_BITS, node_of


@pytest.fixture
def manager() -> Manager:
    """sum[0] owns slots 0 and 1, sum[1] slots 2 and 3."""
    manager = Manager(GRAPH, {"sum": 2}, ManagerSettings(lead=0))
    homes = {instance: node_of(instance) for instance in manager.topology.all_instances()}
    for node in homes.values():
        manager.node_joined(node)
    manager.launch(homes)
    return manager


def parts(manager: Manager, target: Any) -> dict[int, SlotSet]:
    return {index: slots for index, slots in goal_of("sum", target, SLOT_BITS)(query_facts(manager)).items() if slots}


def test_a_number_of_instances_moves_as_few_slots_as_will_do(manager: Manager) -> None:
    assert parts(manager, 1) == {0: SlotSet([2, 3])}
    assert [len(slots) for slots in parts(manager, 3).values()] == [1]


def test_an_assignment_moves_what_is_elsewhere(manager: Manager) -> None:
    assert parts(manager, Assignment([0, 1, 1, 2])) == {1: SlotSet([1]), 2: SlotSet([3])}


def test_slots_are_given_by_number_or_name_of_the_instance(manager: Manager) -> None:
    assert parts(manager, {1: [0]}) == parts(manager, {"sum[1]": SlotSet([0])}) == {1: SlotSet([0])}


def test_a_goal_of_ones_own_is_asked_as_it_is(manager: Manager) -> None:
    assert parts(manager, passed_on("sum")) == {0: SlotSet([2, 3]), 1: SlotSet([0, 1])}


def test_all_slots_of_an_instance_are_handed_over_to_a_new_one(manager: Manager) -> None:
    assert handed_over("sum", 1)(query_facts(manager)) == {2: SlotSet([2, 3])}
    assert handed_over("sum", None)(query_facts(manager)) == {2: SlotSet([0, 1])}


def test_every_owner_on_a_node_is_replaced_by_a_new_one(manager: Manager) -> None:
    assert away_from("sum", node_of(InstanceId("sum", 1)), {})(query_facts(manager)) == {2: SlotSet([2, 3])}
    assert away_from("sum", "a node without any", {})(query_facts(manager)) == {}


def test_slots_that_come_to_a_node_that_is_left_go_to_the_same_heir(manager: Manager) -> None:
    goal = away_from("sum", node_of(InstanceId("sum", 1)), {})
    assert goal(query_facts(manager)) == {2: SlotSet([2, 3])}
    manager.move("sum", {2: SlotSet([3])})
    assert goal(query_facts(manager)) == {2: SlotSet([2])}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("three", "'three' is no target for sum; give a number of instances, an Assignment, or slots by instance"),
        (Assignment([0, 1]), "sum has 4 slots, and the assignment is of 2"),
        ({1: [4]}, "sum has slots 0 to 3; there is no slot 4"),
        ({1: [2], 2: [2, 3]}, "slot 2 of sum cannot go to two instances"),
        ({"pass[1]": [2]}, r"'pass\[1\]' is no instance of sum; write its number, or sum\[0\]"),
        (5, "cannot have 5 instances"),
        (0, "cannot have 0 instances"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_by_name(manager: Manager, target: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parts(manager, target)


def test_an_instance_that_has_given_up_its_slots_is_no_target(manager: Manager) -> None:
    manager.move("sum", {0: SlotSet([2, 3])})
    with pytest.raises(UserError, match=r"sum\[1\] has given up all its slots .* a new one from sum\[2\] on"):
        parts(manager, {1: [0]})
    with pytest.raises(UserError, match=r"sum\[1\] owns no slots; those that do: sum\[0\]"):
        handed_over("sum", 1)(query_facts(manager))


def test_slots_of_a_single_instance_cannot_all_change_their_owner(manager: Manager) -> None:
    manager.move("sum", {0: SlotSet([2, 3])})
    with pytest.raises(UserError, match="sum has one instance"):
        passed_on("sum")(query_facts(manager))
