"""The fleet on a real local Spark: nodes come, die, are cancelled and stopped, and the driver hears of each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark import InheritableThread

from primitives.errors import EnvironmentFault, UserError
from seep.spark import fleet
from seep.spark.address import driver_host, driver_interface
from seep.spark.capacity import capacity
from seep.spark.fleet import Fleet, OrderEnded
from seep.spark.preflight import PreflightVerdict, before_start, of_session
from seep.spark.reason import CANCELLED, WORKER_GONE
from seep.spark.session import Host, open_session
from tests.spark.beacons import Beacon, await_beacon, beacon, tell
from tests.waiting import eventually


@dataclass
class Nodes:
    """A fleet of beacons, and what it told."""

    host: Host
    directory: Path
    ended: dict[str, tuple[str | None, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.host.context, beacon(), str(self.directory), query="test", on_ended=self._hear)

    def _hear(self, ended: OrderEnded) -> None:
        self.ended[ended.order] = (ended.reason, time.monotonic())

    def start(self, count: int) -> dict[str, Beacon]:
        """Nodes that have come and registered."""
        orders = self.fleet.start(count)
        found = {order: await_beacon(self.directory, order) for order in orders}
        for order, node in found.items():
            self.fleet.registered(order, node.process)
        return found

    def hears_of(self, order: str, within: float) -> str | None:
        """The reason why the order ended; fails if that is not told in time."""
        assert eventually(lambda: order in self.ended, within)
        return self.ended[order][0]


@pytest.fixture
def nodes(host: Host, tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(host, tmp_path)
    yield nodes
    assert nodes.fleet.stop() == ()


def test_every_node_is_a_process_of_its_own(nodes: Nodes) -> None:
    found = nodes.start(3)
    assert len({node.process.pid for node in found.values()} | {os.getpid()}) == 4
    assert all(node.process.alive() for node in found.values())


def test_a_node_that_is_killed_is_told_of_at_once_and_says_why(nodes: Nodes) -> None:
    victim, other = nodes.start(2).items()
    victim[1].process.kill()
    assert nodes.hears_of(victim[0], within=60.0) == WORKER_GONE
    assert other[1].process.alive()
    assert other[0] not in nodes.ended


def test_a_node_that_raises_is_told_of_with_its_error_on_one_line(nodes: Nodes) -> None:
    [order] = nodes.start(1)
    tell(nodes.directory, order, "raise")
    assert nodes.hears_of(order, within=60.0) == "ValueError: told to raise"
    with pytest.raises(EnvironmentFault, match="ValueError: told to raise"):
        nodes.fleet.check()


def test_a_node_whose_main_function_returns_takes_its_process_with_it(nodes: Nodes) -> None:
    [(order, node)] = nodes.start(1).items()
    tell(nodes.directory, order, "return")
    assert nodes.hears_of(order, within=60.0) is None
    assert eventually(lambda: not node.process.alive(), 60.0)


def test_cancel_ends_even_a_stopped_node(nodes: Nodes) -> None:
    [(order, node)] = nodes.start(1).items()
    os.kill(node.process.pid, signal.SIGSTOP)
    nodes.fleet.cancel(order)
    assert nodes.hears_of(order, within=60.0) == CANCELLED
    assert eventually(lambda: not node.process.alive(), 60.0)
    nodes.fleet.check()  # what was cancelled did not fail


def test_an_order_that_is_cancelled_before_its_node_registers_is_ended_by_spark_or_when_it_does(nodes: Nodes) -> None:
    [order] = nodes.fleet.start(1)
    node = await_beacon(nodes.directory, order)
    nodes.fleet.cancel(order)
    nodes.fleet.registered(order, node.process)
    assert eventually(lambda: not node.process.alive(), 60.0)


def test_nodes_that_are_cancelled_while_they_start_take_no_other_with_them(nodes: Nodes) -> None:
    """Spark takes a task that is interrupted just then for a dead daemon, and ends all nodes of that executor."""
    [(kept, node)] = nodes.start(1).items()
    for milliseconds in range(60):
        [order] = nodes.fleet.start(1)
        time.sleep(milliseconds / 1000)
        nodes.fleet.cancel(order)
    assert node.process.alive()
    assert kept not in nodes.ended


def test_tasks_of_others_that_are_interrupted_while_they_start_take_no_node_with_them(nodes: Nodes) -> None:
    [(kept, node)] = nodes.start(1).items()
    context = nodes.host.context

    def work() -> None:
        context.setJobGroup("of others", "interrupted", interruptOnCancel=True)
        with suppress(Exception):
            context.parallelize([None], 1).mapPartitions(lambda _: ()).collect()

    for milliseconds in range(10, 50, 5):
        job = InheritableThread(target=work)
        job.start()
        time.sleep(milliseconds / 1000)
        context.cancelJobGroup("of others")
        job.join()
    assert node.process.alive()
    assert kept not in nodes.ended


def test_stop_returns_when_no_node_is_left_registered_or_not(host: Host, tmp_path: Path) -> None:
    nodes = Nodes(host, tmp_path)
    known = list(nodes.start(2).values())
    [order] = nodes.fleet.start(1)
    stranger = await_beacon(tmp_path, order)
    assert nodes.fleet.stop() == ()
    assert not any(node.process.alive() for node in known)
    assert eventually(lambda: not stranger.process.alive(), 60.0), "of one that never registered, Spark's word counts"
    assert len(nodes.ended) == 3


def test_a_stopped_fleet_starts_nothing(host: Host, tmp_path: Path) -> None:
    nodes = Nodes(host, tmp_path)
    nodes.fleet.stop()
    assert nodes.fleet.start(2) == ()


def test_nodes_take_task_slots_and_give_them_back(nodes: Nodes) -> None:
    assert eventually(lambda: capacity(nodes.host.context).busy == 0, 60.0)  # those of other tests are given back
    nodes.start(2)
    assert eventually(lambda: capacity(nodes.host.context).busy == 2, 60.0)
    nodes.fleet.stop()
    assert eventually(lambda: capacity(nodes.host.context).busy == 0, 60.0)


def test_a_local_session_stays_within_the_machine(host: Host) -> None:
    assert (driver_host(host.context), driver_interface(host.context)) == ("127.0.0.1", "127.0.0.1")


def test_a_session_with_room_passes_all_checks(host: Host) -> None:
    checks = list(of_session(host.context, 4, settled=60.0))  # a local session is all there
    assert {check.verdict for check in checks} == {PreflightVerdict.OK}
    looked_at = [check.name for check in (*before_start(4), *checks)]
    assert sorted(looked_at) == sorted({*looked_at, "port"}), "each once"


def test_a_session_without_room_says_how_much_there_is(host: Host) -> None:
    [slots] = [check for check in of_session(host.context, 10_000, wait=0.0) if check.name == "task slots"]
    assert slots.verdict is PreflightVerdict.FAIL
    assert "64 task slots" in slots.text
    assert "--nodes" in slots.text


def test_a_given_session_is_left_running(host: Host) -> None:
    with open_session(host.context) as given:
        assert given.context is host.context
    assert host.context.parallelize([1], 1).count() == 1


def test_a_second_session_beside_a_running_one_is_refused(host: Host) -> None:
    with pytest.raises(UserError, match="pass it with spark="):
        open_session(None)
    with pytest.raises(UserError, match="not both"):
        open_session(host.context, master="local[2]")


def test_of_orders_that_ended_long_ago_nothing_is_kept(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_ENDED", 1)
    orders = []
    for _ in range(3):
        [(order, node)] = nodes.start(1).items()
        nodes.fleet.cancel(order)
        assert nodes.hears_of(order, within=60.0) == CANCELLED
        assert eventually(lambda node=node: not node.process.alive(), 60.0)  # type: ignore[misc]
        orders.append(order)

    def is_forgotten() -> bool:
        nodes.fleet._forget_old()
        return orders[0] not in nodes.fleet._jobs

    assert eventually(is_forgotten, 60.0)
    [last] = nodes.start(1)
    assert {orders[2], last} <= nodes.fleet._jobs.keys()
    nodes.fleet.cancel(orders[0])
    assert len({*orders, last}) == 4
