"""Changes that wait for VMs: what the pool is asked for, and what is told."""

from __future__ import annotations

from seep.control.commands import Command, Tell, WantNodes
from seep.control.orders import Orders
from seep.control.vm_needs import VMNeeds
from tests.control.staging import Shell


def wanted(commands: list[Command]) -> int:
    """What the pool was asked for last."""
    return [command.nodes for command in commands if isinstance(command, WantNodes)][-1]


def test_the_pool_is_asked_for_what_all_changes_need_together() -> None:
    vm_needs = VMNeeds(Orders())
    assert not vm_needs.is_there(Shell(free=0).facts(), "counter", 2, "asked for")
    vm_needs.expect("map", 1)
    assert wanted(vm_needs.orders.taken()) == 3


def test_a_change_that_has_its_nodes_leaves_what_others_wait_for() -> None:
    vm_needs, facts = VMNeeds(Orders()), Shell(free=1).facts()
    assert not vm_needs.is_there(facts, "counter", 2, "asked for")
    assert vm_needs.is_there(facts, "map", 1, "asked for")
    assert wanted(vm_needs.orders.taken()) == 2


def test_two_changes_of_one_step_do_not_take_the_same_node() -> None:
    vm_needs, facts = VMNeeds(Orders()), Shell(free=1).facts()
    assert vm_needs.is_there(facts, "counter", 1, "asked for")
    assert not vm_needs.is_there(facts, "map", 1, "asked for")
    vm_needs.begin_step()
    assert vm_needs.is_there(facts, "map", 1, "asked for"), "who has taken one says so by then"


def test_what_is_not_needed_any_more_is_not_asked_for() -> None:
    vm_needs = VMNeeds(Orders())
    vm_needs.is_there(Shell(free=0).facts(), "counter", 2, "asked for")
    vm_needs.forget("counter")
    assert wanted(vm_needs.orders.taken()) == 0


def test_a_wait_is_told_once_and_getting_ready_not_at_all() -> None:
    vm_needs, facts = VMNeeds(Orders()), Shell(free=0).facts()
    vm_needs.expect("counter", 2)
    for _ in range(3):
        vm_needs.is_there(facts, "counter", 2, "asked for")
    told = [str(command.event) for command in vm_needs.orders.taken() if isinstance(command, Tell)]
    assert told == ["waiting for VMs counter 2 needed: asked for"]
