"""Both ends of channels for tests: what they hear is recorded, and can be waited for. Run as a module: a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from primitives.errors import EnvironmentFault, InternalError, UserError
from seep.channels.bulk_arrivals import BulkArrivals
from seep.channels.links import Link
from seep.channels.port import Address, Port
from seep.channels.security import Security
from seep.protocol.courier import LetterFrame
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation

#: Seconds after which what a test waits for will not come any more.
PATIENCE = 20.0
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})
ERRORS = {"user": UserError, "environment": EnvironmentFault, "internal": InternalError}


class Recorder:
    """A `Receiver`, and the `LinkEvents`, of a test: keeps everything, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self._change = threading.Condition()
        self.on_restoring: Callable[[str], None] = str
        self.hold = threading.Event()  #: while it is clear, messages of streams are not taken
        self.hold.set()
        self.arrivals = BulkArrivals(lambda version, body: self.note("state", version, body))

    def note(self, *what: Any) -> None:
        with self._change:
            self.heard.append(what)
            self._change.notify_all()

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        """What was heard of one kind."""
        return [what[1:] for what in list(self.heard) if what[0] == kind]

    def wait(self, kind: str, count: int = 1) -> list[tuple[Any, ...]]:
        """Waits until something was heard so many times, and returns it."""
        with self._change:
            if not self._change.wait_for(lambda: len(self.of(kind)) >= count, PATIENCE):
                raise AssertionError(f"{count} × {kind!r} was waited for; heard was {self.heard[-20:]}")
            return self.of(kind)

    # -- Receiver

    def on_letters_open(self, peer: str, session: int) -> None:
        self.note("letters open", peer, session)

    def on_frame(self, peer: str, frame: LetterFrame) -> None:
        if frame.body == "fail":
            raise InternalError("a letter that cannot be handled")
        self.note("frame", peer, frame)

    def on_letters_closed(self, peer: str, session: int, reason: str) -> None:
        self.note("letters closed", peer, session, reason)

    def on_message(self, message: Data, nbytes: int) -> None:
        self.hold.wait(PATIENCE)
        self.note("message", message, nbytes)

    def on_stream_open(self, peer: str, sender: Incarnation, receiver: Incarnation, again: bool) -> None:
        self.note("stream open", peer, sender, receiver, again)

    def on_stream_closed(self, peer: str, sender: Incarnation, receiver: Incarnation, clean: bool) -> None:
        self.note("stream closed", peer, sender, receiver, clean)

    def on_bulk_open(self, peer: str) -> BulkArrivals:
        self.note("bulk open", peer)
        return self.arrivals

    def on_call(self, peer: str, method: str, body: Any) -> Any:
        self.note("call", peer, method, body)
        if method in ERRORS:
            raise ERRORS[method](body)
        if method == "bug":
            raise KeyError(body)
        if method == "hold":
            self.hold.wait(PATIENCE)
        return body

    def on_fault(self, peer: str, text: str) -> None:
        self.note("fault", peer, text)

    # -- LinkEvents

    def on_broken(self, peer: str, refused: bool) -> None:
        self.note("broken", peer, refused)

    def on_restored(self, peer: str) -> None:
        self.on_restoring(peer)
        self.note("restored", peer)

    def on_stream_broken(self, sender: Incarnation, receiver: Incarnation) -> None:
        self.note("stream broken", sender, receiver)

    def on_unsendable(self, peer: str, reason: Exception) -> None:
        self.note("unsendable", peer, str(reason))


@contextmanager
def port(recorder: Recorder, security: Security, **options: Any) -> Iterator[Port]:
    opened = Port("127.0.0.1", security, recorder, **options)
    try:
        yield opened
    finally:
        recorder.hold.set()
        opened.close()


@contextmanager
def link(events: Recorder, address: Address, security: Security, **options: Any) -> Iterator[Link]:
    opened = Link("me", "peer", address, security, events, **options)
    try:
        yield opened
    finally:
        opened.close()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Waits for something that nobody tells."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"it never came about that {what}"
        time.sleep(0.005)


def open_sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for name in os.listdir("/dev/fd"):
        try:
            count += os.readlink(f"/dev/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return count


# -- a process ---------------------------------------------------------------------------------------------------------


class PeerProcess:
    """Another process with a port: counts what it is sent, sends frames back, answers `count` calls."""

    def __init__(self, security: Security, back: Address | None = None, port: int = 0) -> None:
        secrets = [
            security.token,
            *(text and text.decode() for text in (security.certificate, security.key)),
            security.name,
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.peers_kit"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([secrets, back, port]) + "\n")
        self._process.stdin.flush()
        self.address = Address("127.0.0.1", int(self._process.stdout.readline()))
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def peer_process(security: Security, back: Address | None = None, port: int = 0) -> Iterator[PeerProcess]:
    process = PeerProcess(security, back, port)
    try:
        yield process
    finally:
        process.end()


class _Counting(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.messages = 0
        self.frames = 0
        self.misaligned = 0
        self.back: Link | None = None

    def on_frame(self, _peer: str, frame: LetterFrame) -> None:
        self.frames += 1
        if self.back is not None:
            self.back.send(frame)

    def on_message(self, message: Data, _nbytes: int) -> None:
        self.messages += 1
        arrays = (column.to_numpy() for rows in message.batches.values() for column in rows.columns)
        self.misaligned += not all(array.flags.aligned for array in arrays)

    def on_call(self, _peer: str, _method: str, _body: Any) -> Any:
        return [self.messages, self.frames, self.misaligned, time.process_time()]


def _main() -> None:
    (token, certificate, key, name), back, number = json.loads(sys.stdin.readline())
    security = Security(token, certificate and certificate.encode(), key and key.encode(), name)
    recorder = _Counting()
    opened = Port("127.0.0.1", security, recorder, port=number)
    if back is not None:
        recorder.back = Link("peer", "me", Address(*back), security, recorder)
    print(opened.address.port, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    _main()
