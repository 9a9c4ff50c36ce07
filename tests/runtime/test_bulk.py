"""The bulk lane over real sockets: beside the letters, with connections that are cut, and peers that stop or end."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from primitives.errors import UserError
from primitives.mapped import MappedFiles
from seep.channels.bulk import SEGMENT, BulkPrecedence
from seep.channels.bulk_arrivals import HEADER, BulkArrivals
from seep.channels.pieces import BYTES, PieceHeader
from seep.channels.security import Security
from seep.channels.sockets import cut_connections
from seep.channels.wire import WireError
from seep.driver.options import RunOptions
from seep.protocol.messages import Committed, StateMoved, Tick
from tests.runtime.bulk_kit import (
    MIB,
    OWNER,
    SWITCH_INTERVAL,
    Talker,
    answering_process,
    backup,
    restore,
    talkers,
)
from tests.runtime.peers_kit import open_sockets, wait_until

CREDIT = 4 * MIB


@pytest.fixture(params=["plain", "tls"])
def security(request: pytest.FixtureRequest) -> Security:
    return Security.with_tls() if request.param == "tls" else Security.open()


def sent_to(here: Talker, name: str) -> int:
    """Bytes of state that were put on the way to a peer, again and again if need be."""
    lane = here.peers._peers[name].bulk
    assert lane is not None
    return lane.bytes_sent


def test_state_arrives_as_it_was_with_the_letters_that_were_sent_after_it_before_it(security: Security) -> None:
    message = backup(128 * MIB)
    with talkers(security) as (here, there):
        here.peers.post("there", 3, Tick(OWNER, 0, False))
        wait_until(lambda: len(there.heard) == 1, "letters get through")
        here.peers.post("there", 3, message)
        for epoch in range(1, 20):
            here.peers.post("there", 3, Tick(OWNER, epoch, False))
        assert there.wait_for_states(1) == [message]
        assert [heard.body.epoch for heard in there.heard if isinstance(heard.body, Tick)] == list(range(20))
        assert there.heard[-1].body == message, "the letters do not wait for it"
        wait_until(lambda: here.peers.transfers() == (), "all of it is acknowledged")


def test_a_connection_that_breaks_costs_only_what_was_under_way(security: Security) -> None:
    message, cuts = backup(96 * MIB), 0
    with talkers(security, credit=CREDIT) as (here, there):
        here.peers.post("there", 1, message)
        for part in (1, 2, 3):
            wait_until(lambda part=part: here.peers.transfers()[0].nbytes < (4 - part) * 24 * MIB, "a quarter is there")
            cut_connections(there.port.address.port)
            cuts += 1
        assert there.wait_for_states(1) == [message]
        assert message.checkpoint.nbytes <= sent_to(here, "there") <= message.checkpoint.nbytes + (cuts + 1) * CREDIT
        assert here.faults == there.faults == []


def test_messages_of_many_instances_arrive_once_and_each_in_its_order_though_connections_are_cut() -> None:
    over = threading.Event()
    with talkers(Security.open(), credit=4 * SEGMENT) as (here, there):

        def cut() -> None:
            chance = random.Random(1)
            while not over.wait(chance.random() * 0.1):
                cut_connections(there.port.address.port)

        cutter = threading.Thread(target=cut)
        cutter.start()
        sizes = random.Random(2)
        for epoch in range(100):
            here.peers.post("there", 1, backup(sizes.choice((100, 10_000, 2 * MIB)), epoch % 7, epoch))
        arrived = there.wait_for_states(100)
        over.set()
        cutter.join()
    epochs = [message.checkpoint.epoch for message in arrived]
    assert sorted(epochs) == list(range(100))
    for index in range(7):
        assert [epoch for epoch in epochs if epoch % 7 == index] == list(range(index, 100, 7))


def test_what_a_successor_waits_for_arrives_before_a_backup_that_was_sent_first() -> None:
    with talkers(Security.open(), credit=CREDIT) as (here, there):
        here.peers.post("there", 1, backup(128 * MIB))
        here.peers.post("there", 1, restore(8 * MIB))
        assert there.wait_for_states(2)[0] == restore(8 * MIB)


def test_a_lane_gives_way_while_another_of_the_process_has_something_urgent() -> None:
    precedence = BulkPrecedence()
    precedence.note("successor", True)
    began = time.monotonic()
    precedence.give_way("successor")
    precedence.give_way("holder")
    assert time.monotonic() - began >= 0.005, "the holder can wait"
    precedence.note("successor", False)
    assert precedence._calm.is_set(), "nobody waits for anything any more"


def test_what_a_successor_on_another_node_waits_for_is_not_held_up_by_a_backup() -> None:
    security = Security.open()
    with talkers(security, credit=CREDIT) as (here, there):
        third = Talker("third", security)
        try:
            here.peers.know("third", third.port.address)
            here.peers.post("there", 1, backup(256 * MIB))
            here.peers.post("third", 1, restore(MIB))
            third.wait_for_states(1)
            assert there.states() == []
            there.wait_for_states(1)
        finally:
            third.close()


def test_to_a_process_that_is_stopped_no_more_is_sent_than_it_has_room_for() -> None:
    security = Security.open()
    here = Talker("here", security, credit=CREDIT)
    try:
        with answering_process(security, here) as there:
            here.peers.post("there", 1, Tick(OWNER, 1, False))
            wait_until(lambda: len(here.heard) == 1, "it answers")
            here.peers.post("there", 1, backup(64 * MIB))
            wait_until(lambda: sent_to(here, "there") > 0, "it has begun")
            there.process.send_signal(signal.SIGSTOP)
            sent = -1
            while sent != sent_to(here, "there"):
                sent = sent_to(here, "there")
                time.sleep(0.2)
            ((_, kind, left),) = here.peers.transfers()
            assert kind == "backup"
            assert left > 0
            assert sent <= 64 * MIB + SEGMENT - left + CREDIT
            there.process.send_signal(signal.SIGCONT)
            wait_until(lambda: len(here.heard) == 2, "it has all of it")
            assert here.heard[1].body == Committed(OWNER, backup(64 * MIB).checkpoint.nbytes)
    finally:
        here.close()


def test_a_message_that_cannot_be_sent_is_told_and_the_others_go_on() -> None:
    with talkers(Security.open()) as (here, there):
        here.peers.post("there", 1, StateMoved(OWNER, OWNER, 3, None, (object(),)))
        here.peers.post("there", 1, backup(1000))
        assert there.wait_for_states(1) == [backup(1000)]
        assert "it is a object" in str(here.unsendable[0])


def test_of_a_peer_that_is_gone_no_thread_and_no_file_is_left(tmp_path: Path) -> None:
    shelf = MappedFiles(tmp_path / "shelf", above=MIB)
    with talkers(Security.open(), credit=CREDIT, shelf=shelf) as (here, there):
        here.peers.post("there", 1, backup(256 * MIB))
        wait_until(lambda: any(shelf.directory.iterdir()), "some of it is there")
        here.peers.forget("there")
        there.peers.forget("here")
        here.peers.post("there", 1, backup(100))
        assert here.peers.transfers() == ()
        assert list(shelf.directory.iterdir()) == []
        assert [t.name for t in threading.enumerate() if t.name.startswith("seep bulk")] == []
        assert there.states() == []


def test_nothing_is_left_after_lanes_are_closed(security: Security) -> None:
    def round_trip() -> None:
        with talkers(security) as (here, there):
            here.peers.post("there", 1, backup(3 * MIB))
            there.peers.post("here", 1, backup(3 * MIB))
            there.wait_for_states(1)
            here.wait_for_states(1)

    round_trip()  # the library keeps some threads and files of its own
    threads, sockets = set(threading.enumerate()), open_sockets()
    for _ in range(3):
        round_trip()
    assert [thread.name for thread in set(threading.enumerate()) - threads if "Dummy" not in thread.name] == []
    wait_until(lambda: open_sockets() <= sockets, "no socket is left")


def test_a_credit_that_is_too_small_for_a_few_segments_is_refused() -> None:
    with pytest.raises(UserError, match="'bulk_credit' is 1000; it must be at least 1048576"):
        RunOptions(bulk_credit=1000)
    assert RunOptions().bulk_credit == 16 * MIB


# -- segments that are wrong -------------------------------------------------------------------------------------------


def segment(
    number: int, start: int, size: int, data: bytes, checksum: int | None = None
) -> tuple[pa.Buffer, pa.RecordBatch]:
    header = HEADER.pack(
        PieceHeader.BULK, number, start, len(data), size, zlib.crc32(data) if checksum is None else checksum
    )
    column = pa.UInt8Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])
    return pa.py_buffer(header), pa.RecordBatch.from_arrays([column], schema=BYTES)


def test_a_segment_that_is_damaged_or_comes_after_a_gap_is_refused_and_counts_as_not_here() -> None:
    arrivals = BulkArrivals(lambda *_: None)
    with pytest.raises(WireError, match="damaged"):
        arrivals.take(*segment(1, 0, 100, b"x" * 10, checksum=7))
    with pytest.raises(WireError, match="damaged"):
        arrivals.take(*segment(1, 95, 100, b"x" * 10))
    with pytest.raises(WireError, match="0 bytes of its transfer are here"):
        arrivals.take(*segment(1, 50, 100, b"x" * 10))
    with pytest.raises(WireError, match="no message"):
        arrivals.take(*segment(1, 0, 100, b"x" * 50))
    with pytest.raises(WireError, match="0 bytes of its transfer are here"):
        arrivals.take(*segment(1, 50, 100, b"x" * 10))
    with pytest.raises(WireError, match="a segment of state has"):
        arrivals.take(pa.py_buffer(b"short"), None)


# -- beside letters ----------------------------------------------------------------------------------------------------


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads give way as quickly as those of nodes do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    yield
    sys.setswitchinterval(before)


def round_trips(here: Talker, while_true: Iterator[bool]) -> np.ndarray:
    """Milliseconds that a letter to the other process and its answer take, over and over."""
    taken: list[float] = []
    for _ in while_true:
        tick, began = Tick(OWNER, len(here.heard), False), time.monotonic()
        here.peers.post("there", 1, tick)
        with here.change:
            assert here.change.wait_for(lambda tick=tick: tick in (heard.body for heard in here.heard[-2:]), 60)
        taken.append(1_000 * (time.monotonic() - began))
        time.sleep(0.002)
    return np.array(taken)


def beside_a_checkpoint(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds of letters there and back, without state under way and beside a checkpoint of so many bytes."""
    security = Security.open()
    here = Talker("here", security)
    try:
        with answering_process(security, here):
            round_trips(here, iter([True] * 50))
            alone = round_trips(here, iter([True] * 300))
            here.peers.post("there", 1, backup(size))
            beside = round_trips(here, (True for _ in iter(lambda: bool(here.peers.transfers()), False)))
            assert len(beside) >= 20, "the checkpoint was not under way for long enough to see anything"
            return alone, beside
    finally:
        here.close()


@pytest.mark.usefixtures("quick_switches")
def test_letters_do_not_wait_for_a_large_checkpoint_that_is_under_way() -> None:
    """Not for a tenth of it, one behind the other; on one lane, the first of them would wait for all of it."""
    _, beside = beside_a_checkpoint(256 * MIB)
    assert np.median(beside) < np.sum(beside) / 10


@pytest.mark.acceptance
@pytest.mark.usefixtures("quick_switches")
def test_a_checkpoint_of_2_gib_that_is_under_way_delays_no_letter_by_more_than_50_ms() -> None:
    """In 99 of 100 cases, and for the way there and back together; on a machine with nothing else to do."""
    alone, beside = beside_a_checkpoint(2048 * MIB)
    assert np.percentile(beside, 99) - np.percentile(alone, 99) < 50
