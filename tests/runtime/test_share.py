"""A CPU share: how long the instances of a small VM are paused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.node.share import CpuShare, NoShare
from seep.node.usage import stolen_seconds


class Machine:
    """A clock and a process's CPU time, both under the test's control; sleeping lets only the clock go on."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds

    def share(self, cores: float, credit: float = 0.0) -> CpuShare:
        return CpuShare(cores, credit, lambda: self.now, lambda: self.used, self.sleep)


@given(cores=st.floats(0.05, 0.9), work=st.lists(st.floats(0.0001, 0.3), min_size=20, max_size=200))
def test_a_process_that_always_has_work_gets_its_share_and_no_more(cores: float, work: list[float]) -> None:
    machine = Machine()
    share = machine.share(cores)
    for seconds in work:
        machine.work(seconds)
        share.pace()
    assert machine.used <= cores * machine.now + 0.1 * cores + 1e-9
    assert machine.used >= cores * (machine.now - 0.05 - len(work) * 0.0005) - 1e-9


@given(cores=st.floats(0.1, 0.9), load=st.floats(0.1, 0.9))
def test_a_process_that_needs_less_than_its_share_is_not_paused(cores: float, load: float) -> None:
    machine = Machine()
    share = machine.share(cores)
    for _ in range(100):
        machine.sleep(0.02)
        before = machine.now
        machine.work(0.02 * load * cores)
        share.pace()
        assert machine.now - before <= 0.02 * load * cores + 1e-9


def test_idle_time_is_not_saved_up_for_long() -> None:
    machine = Machine()
    share = machine.share(0.2)
    machine.sleep(100)
    share.pace()
    machine.work(1.0)
    began = machine.now
    share.pace()
    assert machine.now - began == pytest.approx((1.0 - 0.1 * 0.2 - 1.0 * 0.2) / 0.2, abs=0.051)


@given(cores=st.floats(0.05, 0.9), work=st.lists(st.floats(0.001, 2.0), min_size=1, max_size=20))
def test_what_is_paid_for_grows_by_no_more_than_the_share(cores: float, work: list[float]) -> None:
    machine = Machine()
    share = machine.share(cores)
    for seconds in work:
        before, at = share.paid(), machine.now
        machine.work(seconds)
        assert share.paid() - before <= cores * (machine.now - at) + 0.1 * cores + 1e-9
        share.pace()
        assert share.paid() == machine.used


def test_the_credit_of_a_new_vm_is_given_once() -> None:
    machine = Machine()
    share = machine.share(0.1, credit=0.5)
    machine.work(0.5)
    share.pace()
    assert machine.now == 0.5
    machine.work(0.5)
    share.pace()
    assert machine.now >= 1.0 + (0.5 - 0.1 * 1.0) / 0.1 - 0.051


def test_without_a_share_nothing_is_paused() -> None:
    share = NoShare()
    sum(range(100_000))
    began = time.process_time()
    share.pace()
    assert share.cores == 1.0
    assert time.process_time() - began < 1.0


def test_linux_tells_how_long_a_thread_waited_for_a_core() -> None:
    assert stolen_seconds() >= 0.0
    assert stolen_seconds(thread=2**22 + 1) == 0.0
