"""The pool under anything that may happen, in any order: laws that hold at every step, and in the long run."""

from __future__ import annotations

import math

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.vmpool.world import World
from vmpool.settings import PoolSettings, Sizing
from vmpool.vm import VmState

#: Longer than any back-off, idle time and horizon together.
LONG, TICK = 120.0, 2.0

SETTINGS = st.builds(
    lambda most_beyond, **fields: PoolSettings(
        **fields, max_size=fields["size"] + 2, max_vms=None if most_beyond is None else 1 + most_beyond
    ),
    size=st.integers(0, 3),
    reserve=st.integers(0, 2),
    nodes_per_vm=st.integers(1, 3),
    most_beyond=st.none() | st.integers(0, 5),
    sizing=st.sampled_from(Sizing),
    idle=st.just(20.0),
    retry=st.just(1.0),
    retry_most=st.just(8.0),
)


class AnyWorld(RuleBasedStateMachine):
    """`World` itself asserts that no VM in use is stopped and that there are never more than `max_vms`."""

    @initialize(pool=SETTINGS, hosted=st.booleans())
    def begin(self, pool: PoolSettings, hosted: bool) -> None:
        self.world = World(pool, hosted=hosted)

    # -- what may happen ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.step(seconds)

    @rule()
    def a_moment_comes_to_rest(self) -> None:
        """What a step causes may cause a second and a third, and then there is nothing to do or to say."""
        for _ in range(3):
            self.world.step()
        assert self.world.step() == []

    @precondition(lambda self: self.world.starting)
    @rule(data=st.data())
    def a_vm_starts(self, data: st.DataObject) -> None:
        self.world.start(data.draw(st.sampled_from(sorted(self.world.starting))))

    @precondition(lambda self: self.world.starting)
    @rule(data=st.data(), again=st.booleans())
    def a_start_fails(self, data: st.DataObject, again: bool) -> None:
        self.world.fail(data.draw(st.sampled_from(sorted(self.world.starting))), again=again)

    @precondition(lambda self: self.world.stopping)
    @rule(data=st.data())
    def a_vm_has_stopped(self, data: st.DataObject) -> None:
        self.world.stop(data.draw(st.sampled_from(self.world.stopping)))

    @precondition(lambda self: self.world.stopping)
    @rule(data=st.data())
    def a_stop_fails(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.world.stopping))
        self.world.stopping.remove(name)
        self.world.pool.stop_failed(name, "no answer", self.world.now)

    @precondition(lambda self: self.world.expected)
    @rule(data=st.data())
    def spark_runs_a_node(self, data: st.DataObject) -> None:
        self.world.run_node(data.draw(st.sampled_from(sorted(self.world.expected))))

    @precondition(lambda self: self.world.expected)
    @rule(data=st.data())
    def a_node_does_not_start(self, data: st.DataObject) -> None:
        self.world.end(data.draw(st.sampled_from(sorted(self.world.expected))))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), again=st.booleans())
    def a_node_dies(self, data: st.DataObject, again: bool) -> None:
        self.world.kill(data.draw(st.sampled_from(sorted(self.world.nodes))), again=again)

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def a_vm_vanishes(self, data: st.DataObject) -> None:
        self.world.vanish(data.draw(st.sampled_from(sorted(self.world.running))))

    @rule()
    def the_provider_is_asked(self) -> None:
        self.world.poll()

    @precondition(lambda self: self.world.running)
    @rule(data=st.data())
    def a_vm_has_notice(self, data: st.DataObject) -> None:
        self.world.notice(data.draw(st.sampled_from(sorted(self.world.running))))

    @rule(count=st.integers(0, 4))
    def a_plan_wants_nodes(self, count: int) -> None:
        self.world.pool.want(count)

    @rule(recovery=st.booleans())
    def a_node_is_taken(self, recovery: bool) -> None:
        self.world.use(*(self.world.warm if recovery else self.world.available)[:1])

    @precondition(lambda self: self.world.used)
    @rule(data=st.data())
    def a_node_is_given_back(self, data: st.DataObject) -> None:
        self.world.free(data.draw(st.sampled_from(sorted(self.world.used))))

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def only_living_free_nodes_are_offered_and_of_them_scale_out_gets_the_fewer(self) -> None:
        warm, available = self.world.warm, self.world.available
        assert len(set(warm)) == len(warm)
        assert set(available) <= set(warm) <= self.world.nodes.keys() - self.world.used

    @invariant()
    def a_vm_costs_what_it_lived(self) -> None:
        lived = sum(self.world.lifetimes.values())
        lives = sum(self.world.now - since for since in self.world.running.values())
        assert sum(self.world.pool.vm_seconds(self.world.now).values()) == pytest.approx(lived + lives)

    @invariant()
    def every_vm_that_there_is_is_counted_once(self) -> None:
        there = len(self.world.starting) + len(self.world.running)
        assert sum(self.world.pool.counts(self.world.used).values()) == there

    def teardown(self) -> None:
        """In the long run the pool is as full as it should be, repeats nothing, and leaves nothing.

        That is, once no VM is used that is gone or has notice: what moves state away from it is not the pool's.
        """
        if not hasattr(self, "world"):
            return
        self._check_recovers()
        self._check_is_calm()
        self._check_ends()

    def _check_recovers(self) -> None:
        it = self.world
        it.pool.want(0)
        it.pool.want(1)  # as that is more, it also lifts what had failed for good
        it.settle(LONG, tick=TICK)
        for name in (it.vanished | it.leaving) & it.running.keys():
            it.free(*it.on(name))
        for name in it.vanished & it.running.keys():
            for node in it.on(name):
                it.kill(node)
        it.poll()
        it.settle(LONG, tick=TICK)
        it.pool.want(0)
        it.settle(LONG, tick=TICK)
        if it.settings.max_vms is None or len(it.running) < it.settings.max_vms:
            assert it.count(VmState.WARM) == it.pool.target

    def _check_is_calm(self) -> None:
        it = self.world
        assert it.expected == {}, "an order too many waits for ever"
        assert it.step(1.0) == []
        assert len(it.nodes) == it.settings.nodes_per_vm * it.count(VmState.WARM, VmState.USED)
        assert it.pool.target >= max(it.settings.size, it.settings.reserve)
        assert math.ceil(len(it.used) / it.settings.nodes_per_vm) <= it.count(VmState.USED)

    def _check_ends(self) -> None:
        it = self.world
        it.close()
        it.settle(LONG, tick=TICK)
        assert it.pool.is_empty
        assert [*it.starting, *it.running, *it.stopping, *it.nodes, *it.expected] == []


TestAnyWorld = AnyWorld.TestCase
#: A world that fails is told as it is: to make it smaller takes minutes.
TestAnyWorld.settings = settings(phases=set(Phase) - {Phase.shrink})
