"""The keeper with real threads, and a provider in memory that fails, hangs and forgets when told to."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.waiting import eventually
from vmpool.events import PoolEvent
from vmpool.keeper import PoolKeeper
from vmpool.pool import Pool
from vmpool.provider import Machine, Provider, ProviderError
from vmpool.registry import Delayed
from vmpool.settings import PoolSettings
from vmpool.vm import VmState


class Memory:
    """A provider that does as it is told."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.gone: set[str] = set()
        self.faults: list[Exception] = []  #: raised by the next calls of `start`
        self.stop_faults: list[Exception] = []
        self.poll_fault: Exception | None = None
        self.hanging: dict[str, threading.Event] = {}
        self.tries = 0
        self.is_closed = False

    def start(self, name: str) -> Machine:
        self.tries += 1
        if self.faults:
            raise self.faults.pop(0)
        if name in self.hanging:
            self.hanging[name].wait(30.0)
        self.running.add(name)
        return Machine(name, name)

    def stop(self, machine: Machine) -> None:
        if self.stop_faults:
            raise self.stop_faults.pop(0)
        self.running.discard(machine.name)

    def lost(self, machines: Collection[Machine]) -> set[str]:
        if self.poll_fault:
            raise self.poll_fault
        return self.gone & {machine.name for machine in machines}

    def close(self) -> None:
        self.is_closed = True


class Run:
    """What uses the pool: its nodes join as soon as they are ordered."""

    def __init__(self, provider: Provider, **settings: Any) -> None:
        self.notes: list[PoolEvent] = []
        self.orders: list[str] = []
        self.cancelled: list[str] = []
        self.used: set[str] = set()
        self.spark_fault: Exception | None = None
        self.keeper = PoolKeeper(
            Pool(PoolSettings(**({"retry": 0.001} | settings))),
            provider,
            order=self._order,
            cancel=self._cancel,
            used=lambda: frozenset(self.used),
            tell=lambda note: self.notes.append(note),
            every=0.01,
            poll=0.01,
        )

    def kinds(self) -> list[str]:
        return [note.kind for note in self.notes]

    def said(self, kind: str) -> str:
        return "\n".join(note.detail for note in self.notes if note.kind == kind)

    def _order(self, count: int) -> list[str]:
        if self.spark_fault:
            raise self.spark_fault
        orders = [f"order-{len(self.orders) + number}" for number in range(count)]
        self.orders += orders
        for order in orders:
            self.keeper.joined(f"node of {order}", order, "127.0.0.1")  # even before the keeper knows the order
        return orders

    def _cancel(self, order: str) -> None:
        self.cancelled.append(order)
        raise ConnectionError("Spark has gone")


@contextmanager
def running(provider: Provider, **settings: Any) -> Iterator[Run]:
    run = Run(provider, **settings)
    run.keeper.start()
    try:
        yield run
    finally:
        run.keeper.close(5.0)


def test_a_pool_fills_is_used_and_fills_again() -> None:
    with running(Memory(), size=2, reserve=1) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 2)
        [node] = run.keeper.available()
        run.used.add(node)
        assert eventually(lambda: len(run.keeper.available()) == 1)
        counts = run.keeper.counts()
        assert (counts[VmState.USED], counts[VmState.WARM]) == (1, 2)


def test_what_is_wanted_comes_and_closing_stops_all_of_it() -> None:
    provider = Memory()
    with running(provider, size=1) as run:
        run.keeper.want(3)
        assert eventually(lambda: len(run.keeper.available()) == 3)
        run.used.update(run.keeper.warm())
        assert run.keeper.close(5.0)
    assert provider.running == set()
    assert provider.is_closed
    assert set(run.cancelled) == set(run.orders)
    assert all(seconds >= 0 for seconds in run.keeper.vm_seconds().values())
    assert len(run.keeper.vm_seconds()) == 4


@pytest.mark.parametrize("fault", [ProviderError("no capacity"), ZeroDivisionError("a bug"), OSError("no network")])
def test_a_provider_that_fails_is_tried_again(fault: Exception) -> None:
    provider = Memory()
    provider.faults = [fault, fault]
    with running(provider, size=1) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 1)
        assert str(fault) in run.said("provider failed")
        assert provider.tries == 3


def test_a_provider_that_fails_for_good_is_left_alone() -> None:
    provider = Memory()
    provider.faults = [ProviderError("the quota is used up", again=False)]
    with running(provider, size=1) as run:
        assert eventually(lambda: "provider failed" in run.kinds())
        run.keeper.want(0)
        assert provider.tries == 1
        run.keeper.want(1)
        assert eventually(lambda: len(run.keeper.warm()) == 2)


def test_a_start_that_hangs_holds_up_nobody() -> None:
    provider = Memory()
    provider.hanging["vm-1"] = threading.Event()
    with running(provider, size=2) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 1)
        assert run.keeper.counts()[VmState.ORDERED] == 1
        provider.hanging["vm-1"].set()
        assert eventually(lambda: len(run.keeper.warm()) == 2)


def test_a_vm_that_comes_only_after_the_end_is_stopped_too() -> None:
    provider = Memory()
    provider.hanging["vm-1"] = threading.Event()
    with running(provider, size=1) as run:
        assert eventually(lambda: provider.tries == 1)
        assert not run.keeper.close(0.01)
        provider.hanging["vm-1"].set()
        assert eventually(lambda: len(run.keeper.vm_seconds()) == 1)
        assert eventually(lambda: run.keeper.close())
        assert provider.running == set()


def test_a_vm_that_the_provider_has_lost_is_replaced() -> None:
    provider = Memory()
    with running(provider, size=1) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 1)
        provider.gone.add("vm-1")
        assert eventually(lambda: [run.keeper.vm_of(node) for node in run.keeper.warm()] == ["vm-2"])
        assert "vm lost" in run.kinds()


def test_a_vm_of_which_a_node_had_notice_is_replaced() -> None:
    with running(Memory(), size=1) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 1)
        [node] = run.keeper.warm()
        run.used.add(node)
        run.keeper.leaving(node)
        run.keeper.leaving("no such node")
        assert eventually(lambda: len(run.keeper.warm()) == 1)
        run.used.clear()
        assert eventually(lambda: "vm released" in run.kinds())


def test_a_node_that_is_lost_or_over_is_replaced() -> None:
    with running(Memory(), size=2) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 2)
        first, second = run.keeper.warm()
        run.keeper.node_lost(first)
        run.keeper.order_ended(second.removeprefix("node of "), "it crashed")
        assert eventually(lambda: len(set(run.keeper.warm()) - {first, second}) == 2)


def test_a_provider_that_cannot_say_what_is_lost_is_told_of_once_and_asked_again() -> None:
    provider = Memory()
    provider.poll_fault = ProviderError("the API does not answer")
    with running(provider, size=1) as run:
        assert eventually(lambda: "it does not say which VMs are lost" in run.said("provider failed"))
        provider.poll_fault = None
        provider.gone.add("vm-1")
        assert eventually(lambda: "vm lost" in run.kinds())
        assert run.kinds().count("provider failed") == 1


def test_a_stop_that_fails_is_tried_again_until_the_vm_is_gone() -> None:
    provider = Memory()
    with running(provider, size=1) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 1)
        provider.stop_faults = [ProviderError("throttled")]
        assert run.keeper.close(5.0)
        assert provider.running == set()
        assert "throttled" in run.said("provider failed")


def test_a_provider_whose_close_fails_is_told_with_what_to_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Memory()
    monkeypatch.setattr(provider, "close", lambda: 1 / 0)
    with running(provider, size=1) as run:
        assert not run.keeper.close(5.0)
        assert "look for VMs that are left" in run.said("provider failed")
        monkeypatch.undo()


def test_a_spark_that_takes_no_orders_is_asked_again() -> None:
    run = Run(Memory(), size=1)
    run.spark_fault = ConnectionError("Spark has gone")
    run.keeper.start()
    assert eventually(lambda: "ConnectionError: Spark has gone" in run.said("provider failed"))
    run.spark_fault = None
    assert eventually(lambda: len(run.keeper.warm()) == 1)
    assert run.keeper.close(5.0)


def test_a_simulated_delay_is_broken_off_when_the_pool_closes() -> None:
    provider = Memory()
    with running(Delayed(provider, 3600.0), size=2) as run:
        assert eventually(lambda: run.keeper.counts()[VmState.ORDERED] == 2)
        assert run.keeper.close(5.0)
    assert provider.is_closed
    assert provider.tries == 0


def test_a_delayed_provider_is_asked_after_the_delay_and_passes_on_all_else() -> None:
    provider = Memory()
    delayed = Delayed(provider, 0.001)
    machine = delayed.start("vm-1")
    assert provider.running == {"vm-1"}
    provider.gone.add("vm-1")
    assert delayed.lost([machine]) == {"vm-1"}
    delayed.stop(machine)
    assert provider.running == set()


def test_a_provider_that_starts_another_vm_than_was_ordered_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Memory()
    monkeypatch.setattr(provider, "start", lambda _: Machine("another", "another"))
    with running(provider, size=1) as run:
        assert eventually(lambda: "has started 'another', and 'vm-1' was ordered" in run.said("provider failed"))


def test_a_run_that_fails_to_answer_gets_its_vms_given_back_all_the_same() -> None:
    provider = Memory()
    with running(provider, size=2) as run:
        assert eventually(lambda: len(run.keeper.warm()) == 2)
        run.used = None  # type: ignore[assignment]  # so that asking for it fails
        run.notes = None  # type: ignore[assignment]
        run.keeper.want(0)
        assert run.keeper.close(5.0)
    assert provider.running == set()
