"""The manager's process: its event loop owns what changes, and all others see values that stay as they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
from primitives.slots import SlotSet
from seep.channels.letters import NodeReady
from seep.driver import queries
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.driver.node_register import NodeRecord
from seep.protocol.cuts import CutPart
from seep.protocol.messages import Persisted
from seep.protocol.view import MANAGER
from tests.runtime.bulk_kit import OWNER, Talker, checkpoint
from tests.runtime.driver_kit import managing, register
from tests.waiting import eventually


class Hearing(RunListener):
    """Notes what it is told, and on which thread."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.threads: set[str] = set()

    def _note(self, word: str) -> None:
        self.told.append(word)
        self.threads.add(threading.current_thread().name)

    def registered(self, record: NodeRecord) -> None:
        self._note(f"registered {record.name}")

    def joined(self, record: NodeRecord) -> None:
        self._note(f"joined {record.name}")

    def lost(self, record: NodeRecord, silent: bool) -> None:  # noqa: ARG002
        self._note(f"lost {record.name}")

    def over(self) -> None:
        self._note("over")


@pytest.fixture
def hearing() -> Hearing:
    return Hearing()


@pytest.fixture
def process(hearing: Hearing) -> Iterator[ManagerProcess]:
    with managing(hearing) as process:
        yield process


def test_nodes_register_on_the_event_loop_whatever_thread_they_call_on(
    process: ManagerProcess, hearing: Hearing
) -> None:
    with ThreadPoolExecutor(4) as threads:
        names = list(threads.map(lambda number: register(process, number), range(50)))
    assert sorted(hearing.told) == sorted(f"registered {name}" for name in names)
    assert hearing.threads == {"seep manager"}
    assert process.nodes.keys() == set(names)


def test_what_others_have_seen_of_the_nodes_stays_as_it_was(process: ManagerProcess) -> None:
    first = register(process)
    before = process.nodes
    second = register(process)
    assert (list(before), list(process.nodes)) == ([first], [first, second])


def test_a_node_joins_and_is_lost_on_the_event_loop(process: ManagerProcess, hearing: Hearing) -> None:
    name = register(process)
    process.on_letter(name, 0, NodeReady(name))
    assert eventually(lambda: f"joined {name}" in hearing.told)
    process.task_ended("order 0", "it was killed")
    assert eventually(lambda: f"lost {name}" in hearing.told)
    assert process.live_nodes() == frozenset()
    assert hearing.threads == {"seep manager"}


def test_of_several_failures_the_first_is_the_reason_and_listeners_hear_once_of_the_end(
    process: ManagerProcess, hearing: Hearing
) -> None:
    reasons: list[SeepError] = [EnvironmentFault(f"reason {number}") for number in range(20)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(process.fail, reasons))
    assert process.failure in reasons
    assert process.ended.is_set()
    assert [event.why for event in process.events.of("failed")] == [str(process.failure)]
    assert eventually(lambda: "over" in hearing.told)
    process.fail(EnvironmentFault("later"))
    process.close()
    assert hearing.told.count("over") == 1
    assert process.failure in reasons


def test_parts_of_a_run_serve_calls_by_name(process: ManagerProcess) -> None:
    assert process.on_call("n1", "greet", {"name": "n1"}) == {"greeting": "hello n1"}
    with pytest.raises(UserError, match="the manager does not know the call 'sing' of n1"):
        process.on_call("n1", "sing", {})


def test_who_wants_to_listen_after_the_start_is_refused(process: ManagerProcess) -> None:
    with pytest.raises(InternalError, match="must say so before it is started"):
        process.subscribe(RunListener())


def test_a_query_to_a_loop_that_is_held_up_ends_and_says_by_what(process: ManagerProcess) -> None:
    begun, free = threading.Event(), threading.Event()

    def hold_up() -> None:
        begun.set()
        free.wait(60.0)

    process.after(0.0, hold_up)
    assert begun.wait(60.0)
    try:
        with pytest.raises(EnvironmentFault, match=r"'live nodes' within 0.05 s; it has been at 'hold up' for"):
            process.on_loop(partial(queries.live_nodes, process.manager), 0.05)
    finally:
        free.set()


def test_a_run_that_is_closed_is_asked_as_before(process: ManagerProcess, hearing: Hearing) -> None:
    name = register(process)
    process.close()
    assert hearing.told == [f"registered {name}", "over"]
    assert process.live_nodes() == frozenset()
    assert process.final_epoch() is None
    late = register(process)
    assert list(process.nodes) == [name, late]


def test_state_from_a_process_that_is_no_node_is_dropped_without_a_word(process: ManagerProcess) -> None:
    """A node that was given up may go on sending for a while."""
    stranger = Talker("stranger", process.peers._security)
    try:
        stranger.peers.know(MANAGER, process.address)
        stranger.peers.post(MANAGER, 0, Persisted(OWNER, 1, CutPart(SlotSet([1]), None, checkpoint(1000).state)))
        assert eventually(lambda: stranger.peers.transfers() == ())
        assert list(process.events) == []
    finally:
        stranger.close()
