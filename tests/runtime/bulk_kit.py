"""Processes that send each other letters and state, for tests. Run as a module: one that answers every letter."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.mapped import MappedFiles
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from seep.channels.bulk import CREDIT
from seep.channels.peers import Peers, PeersReceiver
from seep.channels.port import Address, Port
from seep.channels.security import Security
from seep.protocol.bulk import flow_of
from seep.protocol.messages import Committed, Retrieved, StoreBackup
from seep.protocol.view import Incarnation

#: As nodes have them.
SWITCH_INTERVAL, SHELVED = 0.0005, 32 << 20
OWNER = Incarnation(InstanceId("counter", 0), 1)
MIB = 1 << 20


class Heard(NamedTuple):
    """What a process was told, by whom, and when."""

    peer: str
    body: Any
    at: float


class Talker(PeersReceiver):
    """A process with a port and peers, which keeps what it is told."""

    def __init__(
        self, name: str, security: Security, *, credit: int = CREDIT, shelf: MappedFiles | None = None
    ) -> None:
        self.heard: list[Heard] = []
        self.faults: list[str] = []
        self.unsendable: list[Exception] = []
        self.change = threading.Condition()
        self.port = Port("127.0.0.1", security, self)
        self.peers = Peers(name, security, self, credit=credit, shelf=shelf)

    def states(self) -> list[Any]:
        """The messages that have brought state, in order."""
        return [heard.body for heard in list(self.heard) if flow_of(heard.body) is not None]

    def wait_for_states(self, count: int, seconds: float = 60.0) -> list[Any]:
        with self.change:
            assert self.change.wait_for(lambda: len(self.states()) >= count, seconds), f"{self.states()} {self.faults}"
        return self.states()

    def close(self) -> None:
        self.peers.close()
        self.port.close()

    # -- a Receiver, and a Process

    def on_message(self, message: Any, nbytes: int) -> None: ...

    def on_call(self, peer: str, method: str, body: Any) -> Any: ...

    def on_fault(self, peer: str, text: str) -> None:  # noqa: ARG002
        self.faults.append(text)

    def on_letter(self, peer: str, version: int, body: Any) -> None:  # noqa: ARG002
        with self.change:
            self.heard.append(Heard(peer, body, time.monotonic()))
            self.change.notify_all()

    def on_heartbeat(self, peer: str, body: Any) -> None: ...

    def on_link_broken(self, peer: str, refused: bool) -> None: ...

    def on_link_restored(self, peer: str) -> None: ...

    def on_unsendable(self, peer: str, reason: Exception) -> None:  # noqa: ARG002
        self.unsendable.append(reason)


@contextmanager
def talkers(security: Security, **options: Any) -> Iterator[tuple[Talker, Talker]]:
    """Two that know each other."""
    here, there = Talker("here", security, **options), Talker("there", security, **options)
    here.peers.know("there", there.port.address)
    there.peers.know("here", here.port.address)
    try:
        yield here, there
    finally:
        here.close()
        there.close()


def checkpoint(nbytes: int, index: int = 0, epoch: int = 7) -> Checkpoint:
    """One of about so many bytes of state."""
    keys = np.arange(nbytes // 16) + epoch
    rows = pa.record_batch({"key": keys, "total": keys[::-1]})
    chunk = Chunk("totals", 1, 3, SlotSet.full(3), ("key",), ("key",), rows, rows.select(["key"]).slice(0, 0))
    return Checkpoint(InstanceId("counter", index), 0, 1, epoch, None, SlotSet.full(3), (chunk,), (), 0)


def backup(nbytes: int, index: int = 0, epoch: int = 7) -> StoreBackup:
    return StoreBackup(checkpoint(nbytes, index, epoch))


def restore(nbytes: int, index: int = 1) -> Retrieved:
    return Retrieved(
        Incarnation(InstanceId("counter", index), 2), InstanceId("counter", index), checkpoint(nbytes), None
    )


# -- a process of its own ----------------------------------------------------------------------------------------------


class AnsweringProcess:
    """Another process, which sends every letter back, and for state tells in a letter how much has come."""

    def __init__(self, security: Security, here: Talker, name: str, directory: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.bulk_kit"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([security.token, here.port.address, name, directory]) + "\n")
        self.process.stdin.flush()
        here.peers.know(name, Address("127.0.0.1", int(self.process.stdout.readline())))


@contextmanager
def answering_process(security: Security, here: Talker, name: str = "there") -> Iterator[AnsweringProcess]:
    with tempfile.TemporaryDirectory() as directory:
        process = AnsweringProcess(security, here, name, directory)
        try:
            yield process
        finally:
            process.process.kill()
            process.process.communicate()


class _Answering(Talker):
    def on_letter(self, peer: str, version: int, body: Any) -> None:
        nbytes = (body.checkpoint.nbytes,) if isinstance(body, StoreBackup | Retrieved) else ()
        self.peers.post(peer, version, Committed(OWNER, *nbytes) if nbytes else body)


def _main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    token, address, name, directory = json.loads(sys.stdin.readline())
    talker = _Answering(name, Security(token), shelf=MappedFiles(Path(directory, "shelf"), above=SHELVED))
    talker.peers.know("here", Address(*address))
    print(talker.port.address.port, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    _main()
