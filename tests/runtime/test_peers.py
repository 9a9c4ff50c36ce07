"""Letters between two processes' worth of peers over real sockets, with connections that are cut all the time."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pyarrow as pa

from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from seep.channels.peers import Peers, PeersReceiver
from seep.channels.port import Address, Port
from seep.channels.security import Security
from seep.channels.sockets import cut_connections
from seep.protocol.messages import StoreBackup, Tick
from seep.protocol.view import Incarnation
from seep.record.reports import BulkTransfer
from tests.runtime.peers_kit import wait_until

SOURCE = Incarnation(InstanceId("numbers", 0), 0)
LETTERS = 20_000


class Process(PeersReceiver):
    """Has a port and peers, and keeps what it is told."""

    def __init__(self, name: str, security: Security) -> None:
        self.heard: list[int] = []
        self.states: list[tuple[int, object]] = []
        self.faults: list[object] = []
        self.restored = 0
        self.port = Port("127.0.0.1", security, self)
        self.peers = Peers(name, security, self)

    def on_message(self, message: Any, nbytes: int) -> None: ...

    def on_call(self, peer: str, method: str, body: Any) -> Any: ...

    def on_fault(self, peer: str, text: str) -> None: ...

    def on_letter(self, peer: str, version: int, body: Any) -> None:  # noqa: ARG002
        if isinstance(body, Tick):
            self.heard.append(body.epoch)
        else:
            self.states.append((version, body))

    def on_heartbeat(self, peer: str, body: Any) -> None: ...

    def on_link_broken(self, peer: str, refused: bool) -> None: ...

    def on_link_restored(self, peer: str) -> None:  # noqa: ARG002
        self.restored += 1

    def on_unsendable(self, peer: str, reason: Exception) -> None:  # noqa: ARG002
        self.faults.append(reason)

    def close(self) -> None:
        self.peers.close()
        self.port.close()


def test_letters_of_several_threads_arrive_once_and_in_order_though_connections_are_cut() -> None:
    """Small letters are sent by the threads that post them, beside the link's own thread."""
    security = Security.open()
    here, there = Process("here", security), Process("there", security)
    here.peers.know("there", there.port.address)
    there.peers.know("here", here.port.address)
    turn, over = threading.Lock(), threading.Event()
    posted = 0

    def post() -> None:
        nonlocal posted
        while True:
            with turn:
                if posted == LETTERS:
                    return
                posted += 1
                here.peers.post("there", 0, Tick(SOURCE, posted, False))

    def cut() -> None:
        chance = random.Random(1)
        while not over.wait(chance.random() * 0.05):
            cut_connections(there.port.address.port)

    threads = [threading.Thread(target=post) for _ in range(3)]
    cutter = threading.Thread(target=cut)
    for thread in (*threads, cutter):
        thread.start()
    for thread in threads:
        thread.join(60)
    over.set()
    cutter.join()
    deadline = time.monotonic() + 30
    while len(there.heard) < LETTERS and time.monotonic() < deadline:
        there.peers.acknowledge()
        time.sleep(0.01)
    here.close()
    there.close()
    assert there.heard == list(range(1, LETTERS + 1))
    assert here.faults == there.faults == []
    assert here.restored > 0, "nothing was cut: the test shows nothing"


def test_of_thousands_of_peers_that_are_gone_little_is_kept() -> None:
    process = Process("here", Security.open())
    for number in range(3_000):
        process.peers.know(f"n{number}", process.port.address)
        process.peers.forget(f"n{number}")
        process.peers.post(f"n{number}", 0, Tick(SOURCE, 1, False))
        process.peers.heartbeat(f"n{number}")
    assert process.peers.link("n2999") is None
    assert len(process.peers._peers) == 0
    assert len(process.peers._gone) == 1_000
    process.close()


def test_a_backup_is_told_as_under_way_until_the_peer_has_it() -> None:
    security = Security.open()
    here, there = Process("here", security), Process("there", security)
    address, nobody = there.port.address, Address("127.0.0.1", 1)
    rows = pa.record_batch({"key": [1, 2], "total": [3, 4]})
    chunk = Chunk("totals", 1, 3, SlotSet.full(3), ("key",), ("key",), rows, rows.select(["key"]).slice(0, 0))
    backup = Checkpoint(SOURCE.instance, 0, 1, 7, None, SlotSet.full(3), (chunk,), (), 0)
    try:
        here.peers.know("there", nobody)
        here.peers.post("there", 1, Tick(SOURCE, 1, False))
        assert here.peers.transfers() == (), "a letter without state is none"
        here.peers.post("there", 1, StoreBackup(backup))
        assert here.peers.transfers() == (BulkTransfer("there", "backup", backup.nbytes),)
        assert backup.nbytes > 0
        here.peers.forget("there")
        assert here.peers.transfers() == ()
        here.peers.know("peer", address)
        here.peers.post("peer", 1, StoreBackup(backup))
        wait_until(lambda: here.peers.transfers() == (), "the peer has it")
        assert there.states == [(1, StoreBackup(backup))]
    finally:
        here.close()
        there.close()
