"""The bulk lane between two processes: state, on its own connection and thread, separate from the letters.

The unacknowledged bytes are limited by the credit. When the connection breaks, it is opened again with back-off, the
receiver says how far it is, and bytes that it has are not sent again.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from primitives.errors import SeepError
from seep.channels.bulk_arrivals import ACKNOWLEDGED, HEADER
from seep.channels.bulk_bytes import BulkBytes
from seep.channels.dial import FAILURES, Direction, Exchange, delays
from seep.channels.pieces import BYTES, Aligner, MessagePiece, PieceHeader
from seep.channels.wire import WireError, decode
from seep.protocol.bulk import BulkFlow, BulkMessage, BulkOutbox, BulkSegment, BulkStanding, state_bytes

#: Bytes of a segment, which bounds the delay of other messages on the same network.
SEGMENT = 256 << 10
#: Unacknowledged bytes to one peer, unless the run's options say otherwise; and the minimum.
CREDIT, LEAST_CREDIT = 16 << 20, 4 * SEGMENT
#: Seconds between two segments of a lane that gives way to others.
_GIVES_WAY = 0.005


class BulkPrecedence:
    """Among the lanes of one process: those with nothing urgent send slowly as long as another has something urgent."""

    def __init__(self) -> None:
        #: the peers with urgent messages in progress
        self._urgent: set[str] = set()
        self._calm = threading.Event()
        self._calm.set()
        self._lock = threading.Lock()

    def note(self, peer: str, is_urgent: bool) -> None:
        """Whether the lane to a peer has something urgent."""
        with self._lock:
            (self._urgent.add if is_urgent else self._urgent.discard)(peer)
            (self._calm.clear if self._urgent else self._calm.set)()

    def give_way(self, peer: str) -> None:
        """Before a segment to a peer: waits for a moment if only others are urgent."""
        if peer not in self._urgent:
            self._calm.wait(_GIVES_WAY)


class _Outgoing:
    """A message that is laid out as bytes when it is sent."""

    def __init__(self, version: int, body: Any) -> None:
        self._message: Any = [version, body]
        self._bytes: BulkBytes | None = None

    def open(self) -> int:
        """Lays it out; returns its size."""
        self._bytes = BulkBytes(self._message)
        self._message = None
        return self._bytes.size

    def cut(self, segment: BulkSegment) -> pa.Buffer:
        assert self._bytes is not None
        return self._bytes.cut(segment.start, segment.length)


class BulkLane:
    """One process's end of the lane to a peer: takes messages that carry state, and never blocks the caller."""

    def __init__(
        self,
        way: Direction,
        on_unsendable: Callable[[str, Exception], None],
        credit: int = CREDIT,
        precedence: BulkPrecedence | None = None,
    ) -> None:
        self._way, self._on_unsendable, self._credit = way, on_unsendable, credit
        self._precedence = precedence or BulkPrecedence()
        self._outbox = BulkOutbox[_Outgoing](credit, SEGMENT)
        self._change = threading.Condition()  #: held by who uses the outbox
        self._exchange = Exchange(way)
        self._aligner = Aligner(BYTES)
        self._broken = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        #: until the next attempts to connect; begun anew when the peer has acknowledged something
        self._delays = delays()
        self.bytes_sent = 0  #: with all that was sent again

    def post(self, flow: BulkFlow, version: int, body: Any) -> None:
        """Sends a message; it arrives as long as both processes exist."""
        with self._change:
            self._outbox.add(flow, _Outgoing(version, body), state_bytes(body))
            self._note_change()
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name=f"seep bulk to {self._way.peer}", daemon=True)
                self._thread.start()

    def under_way(self) -> Counter[str]:
        """Returns the bytes that have not arrived, by purpose."""
        found = Counter[str]()
        with self._change:
            for transfer in self._outbox.under_way():
                found[transfer.flow.kind.value] += transfer.left
        return found

    def break_off(self) -> None:
        """Treats the connection as broken."""
        with self._change:
            self._broken = True
            self._exchange.cut()
            self._change.notify_all()

    def close(self) -> None:
        """Ends its thread and connection; messages that have not arrived are lost."""
        self._ended.set()
        self.break_off()
        self._precedence.note(self._way.peer, False)
        if self._thread not in (None, threading.current_thread()):
            self._thread.join(1.0)

    def _note_change(self) -> None:
        self._precedence.note(self._way.peer, self._outbox.is_urgent and not self._ended.is_set())
        self._change.notify_all()

    # -- on its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._has_work() and self._connect():
            self._carry()
            self._ended.wait(next(self._delays))
        self._exchange.release()

    def _has_work(self) -> bool:
        """Waits until there is something to send; false if the lane is closed."""
        with self._change:
            self._change.wait_for(lambda: self._ended.is_set() or any(True for _ in self._outbox.under_way()))
        return not self._ended.is_set()

    def _connect(self) -> bool:
        """Opens the connection, however long it takes; false if the lane is closed."""
        for delay in self._delays:
            with self._change:
                self._exchange, self._broken = Exchange(self._way), False
            if self._ended.is_set():
                return False
            try:
                self._exchange.open(["bulk", self._way.me, self._credit], BYTES)
                standing = _standing(decode(self._exchange.hear()))
            except (*FAILURES, SeepError, StopIteration):
                self._exchange.release()
                self._ended.wait(delay)
            else:
                with self._change:
                    self._outbox.resume(standing)
                return True
        raise AssertionError("delays never end")

    def _carry(self) -> None:
        """Sends until the connection breaks or the lane is closed."""
        watch = threading.Thread(
            target=self._watch, args=(self._exchange,), name=f"seep watch on {self._way.peer}", daemon=True
        )
        watch.start()
        try:
            while (transfer := self._next()) is not None:
                if transfer.size is not None or self._open(transfer):
                    self._send(transfer)
        except FAILURES:
            pass
        self._exchange.cut()
        watch.join()  # before the release: the library must not be asked to read by two threads at once
        self._exchange.release()

    def _next(self) -> BulkMessage[_Outgoing] | None:
        """Waits for a message to send a segment of; None if the connection is broken, or the lane is closed."""
        with self._change:
            chosen = self._change.wait_for(lambda: self._broken or self._ended.is_set() or self._outbox.choose())
        return chosen if isinstance(chosen, BulkMessage) else None

    def _open(self, transfer: BulkMessage[_Outgoing]) -> bool:
        try:
            size = transfer.content.open()
        except SeepError as reason:
            with self._change:
                self._outbox.drop(transfer)
            self._on_unsendable(self._way.peer, reason)
            return False
        with self._change:
            self._outbox.open(transfer, size)
        return True

    def _send(self, transfer: BulkMessage[_Outgoing]) -> None:
        self._precedence.give_way(self._way.peer)
        with self._change:
            segment = self._outbox.next(transfer)
        data = transfer.content.cut(segment)
        header = HEADER.pack(PieceHeader.BULK, *segment, zlib.crc32(data))
        column = pa.UInt8Array.from_buffers(pa.uint8(), data.size, [None, data])
        batch = pa.RecordBatch.from_arrays([column], schema=BYTES)
        self._exchange.send(MessagePiece(self._aligner.pad(header, data.size), batch))
        self.bytes_sent += data.size

    def _watch(self, exchange: Exchange) -> None:
        """Reads acknowledgements until the connection ends."""
        with suppress(*FAILURES, StopIteration):
            while True:
                told = ACKNOWLEDGED.iter_unpack(exchange.hear())
                with self._change:
                    for number, position in told:
                        self._outbox.acknowledge(number, position)
                    self._delays = delays()
                    self._note_change()
        with self._change:
            self._broken = self._broken or exchange is self._exchange
            self._change.notify_all()


def _standing(value: Any) -> BulkStanding:
    match value:
        case [int(highest), dict(positions)]:
            return BulkStanding(highest, positions)
    raise WireError("a bulk lane is opened with how far the receiver has come; this one was not")
