"""The pool, told what happens: what it orders, keeps, replaces, gives back, and says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vmpool.world import World
from vmpool.actions import CancelOrder, OrderNodes, Start, Stop
from vmpool.pool import GRACE, Pool
from vmpool.provider import Machine
from vmpool.settings import PoolSettings, Sizing
from vmpool.vm import VmState


def world(*, hosted: bool = False, **settings: Any) -> World:
    return World(PoolSettings(**settings), hosted=hosted)


def settled(*, hosted: bool = False, **settings: Any) -> World:
    found = world(hosted=hosted, **settings)
    found.settle()
    return found


def launched(count: int, **settings: Any) -> World:
    """A pool of which so many nodes are in use, and that is full again."""
    found = world(**settings)
    found.pool.want(count)
    found.settle()
    found.use(*found.warm[:count])
    found.pool.want(0)
    found.settle()
    found.notes.clear()
    return found


# -- filling ----------------------------------------------------------------------------------------------------------


def test_an_empty_pool_orders_its_size_and_then_the_nodes_on_each_vm() -> None:
    it = world(size=2, nodes_per_vm=3)
    assert [action for action in it.step() if isinstance(action, Start)] == [Start("vm-1"), Start("vm-2")]
    it.start("vm-2")
    assert OrderNodes("vm-2", 3) in it.step()
    assert it.step() == []
    assert it.count(VmState.ORDERED) == it.count(VmState.BOOTING) == 1


def test_a_vm_is_ready_when_its_last_node_has_joined_and_says_how_long_that_took() -> None:
    it = world(size=1, nodes_per_vm=2)
    it.step()
    it.now = 90.0
    it.start("vm-1")
    it.step()
    first, second = it.expected
    it.run_node(first)
    it.step()
    assert it.told("vm ready") == []
    it.now = 92.0
    it.run_node(second)
    it.step()
    [ready] = it.told("vm ready")
    assert (ready.vm, ready.seconds) == ("vm-1", 92.0)


def test_another_vm_is_ordered_as_soon_as_a_warm_one_is_used() -> None:
    it = settled(size=1)
    [node] = it.warm
    it.use(node)
    assert Start("vm-2") in it.step()
    assert it.warm == []
    it.settle()
    assert len(it.warm) == 1


def test_the_launch_gets_what_it_wants_beyond_the_reserve() -> None:
    it = world(size=1, reserve=1)
    it.pool.want(4)
    it.settle()
    assert len(it.available) == 4
    assert len(it.warm) == 5


def test_what_is_wanted_is_ordered_once_and_not_on_top_of_what_is_coming() -> None:
    it = settled(size=2, reserve=1)
    it.pool.want(3)
    it.step()
    it.step()
    assert len(it.starting) == 2
    assert it.pool.target == 2


def test_scale_out_never_takes_the_reserve_and_recovery_may() -> None:
    it = settled(size=3, reserve=2)
    assert len(it.available) == 1
    assert len(it.warm) == 3
    it.use(*it.available)
    assert it.available == []
    assert len(it.warm) == 2


def test_the_reserve_is_kept_even_if_the_size_is_less() -> None:
    assert len(settled(size=0, reserve=2).warm) == 2


def test_free_nodes_of_a_vm_in_use_are_offered_first_and_are_no_reserve() -> None:
    it = settled(size=1, reserve=1, nodes_per_vm=2)
    first, second = it.warm
    it.use(first)
    it.settle()
    assert it.available == [second]
    assert len(it.warm) == 3
    it.pool.want(1)
    it.step()
    assert it.starting == {}, "the free node is enough"


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_an_exhausted_pool_says_so_once_per_episode_and_what_would_help() -> None:
    it = launched(2, size=1, max_vms=3)
    it.use(*it.warm)
    for _ in range(5):
        it.step(1.0)
    [note] = it.told("pool exhausted")
    assert "max_vms is 3 (3 used): raise pool.max_vms" in note.detail
    assert it.starting == {}

    it.free(next(iter(it.used)))
    it.step()
    it.use(*it.warm)
    it.step()
    assert len(it.told("pool exhausted")) == 2


def test_a_plan_that_waits_for_vms_that_may_be_ordered_finds_no_exhausted_pool() -> None:
    it = launched(1, size=1)
    it.use(*it.warm)
    it.pool.want(3)
    it.settle()
    assert it.told("pool exhausted") == []
    assert len(it.warm) >= 3


def test_a_vm_on_its_way_out_is_not_held_against_the_bound() -> None:
    it = launched(1, size=1, max_vms=2)
    [warm] = it.warm
    it.kill(warm)
    it.step()
    assert it.told("pool exhausted") == []
    it.settle()
    assert len(it.warm) == 1


# -- failures of the provider -----------------------------------------------------------------------------------------


def test_a_failed_order_is_tried_again_under_its_name_after_times_that_double() -> None:
    it = world(size=1, retry=1.0, retry_most=4.0)
    it.step()
    tries = []
    for _ in range(60):
        for name in list(it.starting):
            tries.append((it.now, name))
            it.fail(name)
        it.step(0.25)
    assert [at for at, _ in tries] == [0.0, 1.0, 3.0, 7.0, 11.0]
    assert {name for _, name in tries} == {"vm-1"}
    assert "there is no capacity; the next try is in 1 s" in it.told("provider failed")[0].detail


def test_orders_that_fail_together_count_as_one_failure() -> None:
    it = world(size=3, retry=1.0)
    it.step()
    for name in list(it.starting):
        it.fail(name)
    it.step()
    assert len(it.told("provider failed")) == 1
    it.step(1.0)
    assert len(it.starting) == 3


def test_a_hopeless_order_is_tried_again_only_when_something_has_changed() -> None:
    it = launched(1, size=1)
    it.use(*it.warm)
    it.step()
    it.fail("vm-3", again=False)
    it.step(3600.0)
    assert it.starting == {}
    [note] = it.told("provider failed")
    assert "no VM is ordered until one is given back or a plan needs more" in note.detail

    it.pool.want(1)
    it.step()
    assert list(it.starting) == ["vm-3", "vm-4"]


def test_a_success_makes_the_next_failure_the_first() -> None:
    it = world(size=1, retry=1.0)
    for _ in range(3):
        it.step(10.0)
        it.fail("vm-1")
    it.settle(20.0)
    it.use(*it.warm)
    it.step()
    it.fail("vm-2")
    it.step()
    assert it.told("provider failed")[-1].detail.endswith("in 1 s")


def test_a_slow_provider_is_waited_for_and_does_not_get_the_same_order_twice() -> None:
    it = world(size=2)
    it.step()
    for _ in range(20):
        it.step(30.0)
    assert list(it.starting) == ["vm-1", "vm-2"]
    it.start("vm-2")
    it.step()
    it.run_nodes()
    assert len(it.warm) == 1


def test_nodes_that_do_not_start_are_ordered_again_with_the_same_patience() -> None:
    it = world(size=1, retry=1.0)
    it.step()
    it.start("vm-1")
    it.step()
    [order] = it.expected
    it.end(order)
    assert not any(isinstance(action, OrderNodes) for action in it.step(0.5))
    assert "a node on it did not start: it crashed" in it.told("provider failed")[0].detail
    assert OrderNodes("vm-1", 1) in it.step(0.5)


def test_a_spark_that_takes_no_orders_is_asked_again_later() -> None:
    pool = Pool(PoolSettings(size=1, retry=1.0))
    pool.step(set(), 0.0)
    pool.started(Machine("vm-1", "vm-1"), 0.0)
    assert OrderNodes("vm-1", 1) in pool.step(set(), 0.0)
    pool.nodes_refused("vm-1", "Spark was stopped", 0.0)
    assert OrderNodes("vm-1", 1) not in pool.step(set(), 0.9)
    assert OrderNodes("vm-1", 1) in pool.step(set(), 1.0)


def test_a_vm_that_cannot_be_stopped_still_counts_and_is_tried_again() -> None:
    it = settled(size=1, retry=1.0, max_vms=1)
    it.kill(*it.warm)
    it.step()
    [name] = it.stopping
    it.stopping.clear()
    it.pool.stop_failed(name, "the API does not answer", it.now)
    it.step(0.5)
    assert it.stopping == []
    assert it.starting == {}
    it.step(0.5)
    assert it.stopping == [name]
    assert "the next try to stop it is in 1 s" in it.told("provider failed")[0].detail


def test_a_provider_that_does_not_say_what_is_lost_is_told_of_once() -> None:
    it = settled(size=1)
    for _ in range(3):
        it.pool.unheard("no route")
    it.step()
    assert len(it.told("provider failed")) == 1
    it.pool.lost((), it.now)
    it.pool.unheard("no route")
    it.step()
    assert len(it.told("provider failed")) == 2


# -- VMs that die -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosted", [False, True])
def test_a_vm_that_dies_while_idle_is_replaced(hosted: bool) -> None:
    it = settled(hosted=hosted, size=1)
    [node] = it.warm
    it.kill(node)
    assert it.warm == []
    actions = it.step()
    assert Stop(Machine("vm-1", "vm-1", "host of vm-1" if hosted else None)) in actions
    assert Start("vm-2") in actions
    assert [note.vm for note in it.told("vm lost")] == ["vm-1"]
    it.settle()
    assert len(it.warm) == 1


def test_a_vm_that_the_provider_gives_up_is_offered_to_nobody_and_replaced_at_once() -> None:
    it = settled(hosted=True, size=1)
    it.vanish("vm-1")
    it.poll()
    assert it.warm == []
    assert Start("vm-2") in it.step()
    it.settle()
    assert it.lifetimes.keys() == {"vm-1"}
    assert len(it.told("vm lost")) == 1


def test_a_vm_that_dies_at_the_moment_it_is_handed_out_is_replaced_and_not_stopped_under_its_user() -> None:
    it = settled(hosted=True, size=1, reserve=0)
    [node] = it.available
    it.vanish("vm-1")
    it.poll()
    it.use(node)  # the run took it before it could know
    assert Start("vm-2") in it.step(10 * GRACE)
    assert it.stopping == []
    it.kill(node)
    it.step()
    assert it.stopping == ["vm-1"]
    it.settle()
    assert len(it.warm) == 1


def test_a_vm_that_has_nodes_left_gets_the_missing_one_again() -> None:
    it = settled(size=1, nodes_per_vm=2)
    first, second = it.warm
    it.kill(first)
    assert OrderNodes("vm-1", 1) in it.step()
    assert it.warm == [second]
    it.settle()
    assert len(it.warm) == 2
    assert it.lifetimes == {}


def test_a_node_that_spark_tries_again_is_waited_for() -> None:
    it = settled(size=1, nodes_per_vm=2)
    it.kill(it.warm[0], again=True)
    assert it.step() == []
    it.run_nodes()
    assert len(it.warm) == 2
    assert len(it.told("vm ready")) == 1


def test_the_orders_of_a_lost_vm_are_cancelled_so_that_its_nodes_come_nowhere_else() -> None:
    it = settled(hosted=True, size=1)
    [node] = it.warm
    order, _ = it.nodes[node]
    it.kill(node, again=True)
    assert it.step()[0] == CancelOrder(order)


# -- who is where -----------------------------------------------------------------------------------------------------


def test_nodes_that_land_on_each_others_vms_make_both_ready() -> None:
    it = world(hosted=True, size=2)
    it.step()
    for name in list(it.starting):
        it.start(name)
    it.step()
    first, second = it.expected
    it.expected.clear()
    it.join("a", first, "vm-2")
    it.join("b", second, "vm-1")
    assert (it.pool.vm_of("a"), it.pool.vm_of("b")) == ("vm-2", "vm-1")
    assert it.step()[0].kind == "vm ready"  # type: ignore[union-attr]
    assert it.count(VmState.WARM) == 2


def test_a_node_on_a_machine_that_the_pool_did_not_start_serves_and_its_vm_is_never_stopped_or_paid() -> None:
    it = settled(hosted=True, size=1, idle=5.0)
    it.use(*it.warm)
    it.step()
    it.start("vm-2")
    it.step()
    [order] = it.expected
    it.expected.clear()
    it.pool.joined("stray", order, "10.0.0.9", it.now)
    assert it.pool.vm_of("stray") == "10.0.0.9"
    assert it.available == []
    assert it.warm == ["stray"]
    it.settle(30.0)
    assert it.warm == ["stray"], "the VM of the pool's own was the surplus"
    assert "10.0.0.9" not in it.pool.vm_seconds(it.now)
    it.pool.node_lost("stray", it.now)
    assert CancelOrder(order) in it.step()
    it.settle()
    assert len(it.warm) == 1


def test_a_node_that_joins_before_its_order_is_known_is_taken_when_it_is() -> None:
    pool = Pool(PoolSettings(size=1))
    pool.step(set(), 0.0)
    pool.started(Machine("vm-1", "vm-1"), 0.0)
    assert OrderNodes("vm-1", 1) in pool.step(set(), 0.0)
    pool.joined("quick", "order", "127.0.0.1", 0.0)
    assert CancelOrder("order") not in pool.step(set(), 0.0)
    pool.nodes_ordered("vm-1", ["order"])
    assert pool.warm(set()) == ["quick"]


def test_an_order_that_ends_before_it_is_known_is_placed_again() -> None:
    pool = Pool(PoolSettings(size=1, retry=1.0))
    pool.step(set(), 0.0)
    pool.started(Machine("vm-1", "vm-1"), 0.0)
    assert OrderNodes("vm-1", 1) in pool.step(set(), 0.0)
    pool.order_ended("order", "Spark was stopped", 0.0)
    pool.nodes_ordered("vm-1", ["order"])
    assert OrderNodes("vm-1", 1) in pool.step(set(), 1.0)


def test_the_end_of_an_order_is_the_end_of_its_node_whoever_says_so_first() -> None:
    it = settled(size=1)
    [node] = it.warm
    it.pool.order_ended(it.nodes[node][0], "executor 1 was lost", it.now)
    assert it.warm == []
    assert Start("vm-2") in it.step()
    assert "executor 1 was lost" in it.told("vm lost")[0].detail


def test_a_node_of_nobody_is_cancelled() -> None:
    it = settled(size=1)
    it.pool.joined("late", "order of a VM long gone", "127.0.0.1", it.now)
    assert it.step() == [CancelOrder("order of a VM long gone")]


def test_orders_that_are_known_only_after_their_vm_has_gone_are_cancelled() -> None:
    pool = Pool(PoolSettings(size=1))
    pool.step(set(), 0.0)
    pool.started(Machine("vm-1", "vm-1"), 0.0)
    pool.step(set(), 0.0)
    pool.lost(["vm-1"], 0.0)
    pool.step(set(), 0.0)
    pool.nodes_ordered("vm-1", ["order"])
    assert CancelOrder("order") in pool.step(set(), 0.0)


# -- giving back ------------------------------------------------------------------------------------------------------


def test_a_vm_that_is_not_needed_is_given_back_after_the_idle_time_and_not_before() -> None:
    it = launched(1, size=1, idle=60.0)
    it.free(*it.used)
    it.step()
    it.step(59.0)
    assert it.stopping == []
    assert it.count(VmState.WARM) == 2
    it.step(1.0)
    assert it.count(VmState.WARM) == 1
    it.step(GRACE)
    assert len(it.stopping) == 1
    [note] = it.told("vm released")
    assert "not needed for 60 s" in note.detail


def test_idle_time_begins_anew_when_the_vm_was_needed_in_between() -> None:
    it = launched(1, size=1, idle=60.0)
    it.free(*it.used)
    it.step()
    it.pool.want(1)
    it.step(59.0)
    it.pool.want(0)
    it.step(2.0)
    it.step(59.0)
    assert it.count(VmState.WARM) == 2


def test_a_node_that_is_taken_while_its_vm_is_being_given_back_keeps_it() -> None:
    it = launched(1, size=1, idle=60.0)
    it.free(*it.used)
    it.step()
    before = it.warm
    it.step(60.0)
    [taken] = set(before) - set(it.warm)
    it.use(taken)
    it.step(GRACE)
    assert it.stopping == []
    assert it.count(VmState.USED) == 1


def test_an_interrupted_vm_is_replaced_at_once_and_stopped_when_nothing_is_on_it() -> None:
    it = launched(1, size=1)
    [node] = it.used
    it.notice("vm-1")
    it.step()
    it.step(60.0)
    assert it.stopping == []
    it.free(node)
    it.step()
    assert it.stopping == ["vm-1"]
    assert "takes it back" in it.told("vm released")[0].detail


def test_an_interrupted_warm_vm_is_offered_no_more() -> None:
    it = settled(size=1)
    it.notice("vm-1")
    assert it.warm == []
    assert Start("vm-2") in it.step()


# -- adaptive size ----------------------------------------------------------------------------------------------------


def test_an_adaptive_pool_grows_while_vms_are_taken_and_shrinks_after() -> None:
    it = World(PoolSettings(size=1, sizing=Sizing.ADAPTIVE, max_size=4, idle=10.0), delay=20.0)
    it.pool.want(1)
    it.settle(30.0)
    it.use(it.warm[0])
    it.pool.want(0)
    it.step()
    assert it.pool.target == 1, "the launch says nothing about scaling out"

    for count in (2, 3):
        it.pool.want(count)
        it.settle(25.0)
        it.use(*it.available[:count])
        it.pool.want(0)
        it.step()
    assert it.pool.target == 2, "five in a minute, each of which takes 20 s, are 1.7 on their way"
    it.settle(25.0)
    assert it.count(VmState.WARM) == 2

    it.settle(120.0)
    assert it.pool.target == 1
    assert it.count(VmState.WARM) == 1
    details = [note.detail for note in it.told("pool resized")]
    assert details == ["2 warm VMs are kept, 1 were", "1 warm VMs are kept, 2 were"]


def test_an_adaptive_pool_never_goes_below_the_reserve() -> None:
    it = settled(size=0, reserve=2, sizing=Sizing.ADAPTIVE)
    it.settle(300.0)
    assert len(it.warm) == 2


# -- cost and the end -------------------------------------------------------------------------------------------------


def test_a_vm_costs_from_its_order_until_it_is_stopped_and_one_that_failed_costs_nothing() -> None:
    it = world(size=2)
    it.step()
    it.now = 10.0
    it.start("vm-1")
    it.fail("vm-2")
    assert it.pool.vm_seconds(12.0) == {"vm-1": 12.0}
    it.close()
    it.step()
    it.now = 20.0
    it.stop("vm-1")
    assert it.pool.vm_seconds(99.0) == {"vm-1": 20.0}
    assert sum(it.pool.vm_seconds(99.0).values()) == 20.0


def test_closing_stops_all_vms_in_use_too_and_those_that_come_late() -> None:
    it = launched(1, size=1)
    it.use(*it.warm)
    it.step()
    it.close()
    it.step()
    assert set(it.stopping) == {"vm-1", "vm-2"}
    assert not it.pool.is_empty
    it.settle()
    assert it.pool.is_empty
    assert set(it.lifetimes) == {"vm-1", "vm-2", "vm-3"}
    assert it.step() == []
