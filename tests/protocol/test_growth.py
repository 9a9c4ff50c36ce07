"""A manager and nodes that have seen thousands of instances and nodes come and go keep nothing of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set

import pytest

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Accepted, Refusal, Refused
from seep.protocol.messages import StartInstance, StopInstance, ViewChanged
from seep.protocol.node import Node
from seep.protocol.view import MANAGER, Incarnation, Seat, View
from tests.protocol.staging import ALL, BATCHES, SUM, Operators, life, view_of
from tests.protocol.test_manager import HOME, Desk
from tests.protocol.test_node import TOPOLOGY, backup, begin

#: What has few values, however long a run is.
FIXED = (str, bytes, int, float, SlotSet, InstanceId, Incarnation)

#: What caches may have more: far less than one value for each that has come and gone.
SOME = 50


def weight(found: object) -> int:
    """How many values can be reached from one, each as often as it is kept."""
    seen: set[int] = set()
    left, count = deque([found]), 0
    while left:
        value = left.pop()
        count += 1
        if id(value) in seen or isinstance(value, FIXED) or callable(value):
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            left.extend([*value.keys(), *value.values()])
        elif isinstance(value, list | tuple | Set | deque):
            left.extend(value)
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        left.extend(getattr(value, name) for name in slots if hasattr(value, name))
        left.extend(getattr(value, "__dict__", {}).values())
    return count


def move_on(desk: Desk, index: int) -> None:
    """All slots of an operator go to a new instance, and the old one retires."""
    answer, _ = desk.manager.move("sum", {index: ALL})
    assert isinstance(answer, Accepted)
    desk.acknowledge()
    for _ in range(4):
        desk.tick()
        desk.read(desk.manager.ticked)
        desk.settle(desk.manager.ticked)
        desk.acknowledge()
    desk.manager.validate()


def test_thousands_of_retired_instances_leave_nothing_behind_in_the_manager() -> None:
    desk = Desk(spare=["spare node"])
    for index in range(1, 50):
        move_on(desk, index)
    before = weight(desk.manager)
    for index in range(50, 2_050):
        move_on(desk, index)
    assert [i for i in desk.manager.placement if i.operator == "sum"] == [InstanceId("sum", 2_049)]
    assert len(desk.manager.topology.history["sum"]) < 5
    assert weight(desk.manager) <= before + SOME
    assert desk.manager.fresh_index("sum") == 2_050
    assert desk.manager.move("sum", {7: ALL})[0] == Refused(Refusal.EMPTIED)


def lose_and_replace(manager: Manager, number: int) -> None:
    manager.node_joined(f"n{number}", f"vm{number}")
    manager.node_lost(f"n{number - 1}")
    for node in manager.nodes:
        manager.roster.acknowledged(node, manager.version)


def test_thousands_of_lost_nodes_leave_nothing_behind_in_the_manager() -> None:
    desk = Desk()
    for number in range(50):
        lose_and_replace(desk.manager, number)
    before = weight(desk.manager)
    for number in range(50, 3_000):
        lose_and_replace(desk.manager, number)
    desk.manager.validate()
    assert weight(desk.manager) <= before + SOME
    assert set(desk.manager.nodes) == {*HOME.values(), "n2999"}


def host_for_a_while(node: Node[object], index: int) -> None:
    """An instance of the operator lives on the node for some views, and then is no more."""
    instance = InstanceId("sum", index)
    there = view_of(TOPOLOGY, 2 * index + 1, {SUM: Seat("elsewhere", index), instance: Seat("here", 0)})
    node.receive(MANAGER, 0, ViewChanged(there, (StartInstance(life(instance), begin(SUM).origin, 0),)))
    node.receive("elsewhere", 1, backup(index))
    node.receive(MANAGER, 0, StopInstance(life(instance)))
    node.receive(MANAGER, 0, ViewChanged(gone(there, instance)))
    node.validate()


def gone(view: View, instance: InstanceId) -> View:
    placement = {other: seat for other, seat in view.placement.items() if other != instance}
    return View(view.version + 1, view.topology, placement, view.nodes)


def test_thousands_of_instances_that_a_node_has_hosted_leave_nothing_behind() -> None:
    node: Node[object] = Node("here", Operators(), BATCHES)
    for index in range(1, 50):
        host_for_a_while(node, index)
    before = weight(node)
    for index in range(50, 3_000):
        host_for_a_while(node, index)
    assert weight(node) <= before + SOME


@pytest.mark.parametrize("index", [0, 3])
def test_an_index_below_one_that_was_used_counts_as_used(index: int) -> None:
    desk = Desk(spare=["spare node"])
    move_on(desk, 4)
    assert desk.manager.fresh_index("sum") == 5
    assert desk.manager.move("sum", {index: ALL})[0] == Refused(Refusal.EMPTIED)
