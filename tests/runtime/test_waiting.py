"""Plans that wait for VMs: what the pool is asked for, and what is told."""

from __future__ import annotations

import time

from seep.record.log import EventLog
from seep.runtime.waiting import Room


class Nodes:
    """A pool that remembers what it was asked for."""

    def __init__(self, free: int = 0) -> None:
        self.free, self.wanted = free, 0

    def available(self) -> list[str]:
        return [f"n{number}" for number in range(self.free)]

    def want(self, count: int) -> None:
        self.wanted = count


def test_the_pool_is_asked_for_what_all_plans_need_together() -> None:
    nodes = Nodes()
    room = Room(nodes, EventLog(time.monotonic))
    assert not room.is_there("counter", 2, "asked for")
    room.expect("map", 1)
    assert nodes.wanted == 3


def test_a_plan_that_has_its_nodes_leaves_what_others_wait_for() -> None:
    nodes = Nodes(free=1)
    room = Room(nodes, EventLog(time.monotonic))
    assert not room.is_there("counter", 2, "asked for")
    assert room.is_there("map", 1, "asked for")
    assert nodes.wanted == 2


def test_what_is_not_needed_any_more_is_not_asked_for() -> None:
    nodes = Nodes()
    room = Room(nodes, EventLog(time.monotonic))
    room.is_there("counter", 2, "asked for")
    room.forget("counter")
    assert nodes.wanted == 0


def test_a_wait_is_told_once_and_getting_ready_not_at_all() -> None:
    events = EventLog(time.monotonic)
    room = Room(Nodes(), events)
    room.expect("counter", 2)
    assert len(events) == 0
    for _ in range(3):
        room.is_there("counter", 2, "asked for")
    assert [str(event) for event in events] == ["waiting for VMs counter 2 needed: asked for"]
