"""A stream: messages from one instance to another, on their own connection and thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from primitives.errors import SeepError
from seep.channels.dial import FAILURES, Direction, Exchange, delays
from seep.channels.epoch_rows import RowsWriter
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation

#: The most bytes of rows that the offering thread sends itself.
SMALL = 64 << 10


class StreamEvents(Protocol):
    """The notices of a stream; called on its thread."""

    def on_stream_broken(self, sender: Incarnation, receiver: Incarnation) -> None:
        """The last messages may be lost. The stream reconnects, and its receiver is notified."""
        ...

    def on_unsendable(self, peer: str, reason: Exception) -> None:
        """A message could not be encoded; it is lost."""
        ...


class InstanceStream:
    """Queues a few messages and sends them in order; `offer` does not wait for room.

    If the stream breaks, queued messages are dropped, and it reconnects until it is closed. The receiver is notified
    (`on_stream_open` with `again`) and has to ask for missing messages.
    """

    def __init__(
        self,
        way: Direction,
        ends: tuple[Incarnation, Incarnation],
        schemas: Mapping[int, pa.Schema],
        events: StreamEvents,
        on_room: Callable[[], None] | None,
        *,
        room: int,
        again: bool,
    ) -> None:
        self._way = way
        self._ends = ends
        self._ports = tuple(schemas)
        self._events = events
        self._on_room = on_room
        self._room = room
        self._again = again
        #: messages that are not sent yet; the one that is being sent is first
        self._waiting: deque[Data] = deque()
        self._wanted = False  #: whether an offer was refused for lack of room
        self._live = False  #: whether messages can be sent now
        self._busy = False  #: whether a message is being sent by the thread that offered it
        self._closing = False
        self._cut = False
        self._ended = threading.Event()
        self._change = threading.Condition()
        self._exchange = Exchange(way)
        self._rows = RowsWriter(schemas)
        self._thread = threading.Thread(target=self._run, name=f"seep stream {ends[0]}->{ends[1]}", daemon=True)
        self._thread.start()

    def offer(self, message: Data) -> bool:
        """Takes a message if there is room; otherwise, `on_room` is called once there is.

        A small message is sent inline if none waits, because waking another thread takes longer than sending it. This
        may block if the receiver's process is stopped, until the link to it is closed.
        """
        with self._change:
            if not self._has_room():
                return False
            if not self._live or self._waiting or self._closing or self._cut or not _is_small(message):
                self._waiting.append(message)
                self._change.notify()
                return True
            self._busy = True
        self._send_at_once(message)
        return True

    def _send_at_once(self, message: Data) -> None:
        broken = False
        try:
            self._send(message)
        except FAILURES:
            broken = True
        with self._change:
            self._busy = False
            self._cut = self._cut or broken
            self._change.notify()

    def has_room(self) -> bool:
        """Whether `offer` would take a message; otherwise, `on_room` is called once it would."""
        with self._change:
            return self._has_room()

    def close(self) -> None:
        """Ends the stream after sending queued messages. Returns at once."""
        with self._change:
            self._closing = True
            self._change.notify()

    def break_off(self) -> None:
        """Treats the stream as broken."""
        with self._change:
            self._cut = True
            self._exchange.cut()
            self._change.notify()

    @property
    def is_open(self) -> bool:
        """Whether its thread is still running."""
        return self._thread.is_alive()

    def ending(self) -> Ending:
        """Closes the stream; returns an object to wait for its end, or to force it."""
        self.close()
        return Ending(self._thread, self._end)

    def _end(self) -> None:
        self._ended.set()
        self.break_off()

    def _has_room(self) -> bool:
        free = len(self._waiting) < self._room and not self._closing
        self._wanted = self._wanted or not free
        return free

    # -- on its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closing)
            is_needed = bool(self._waiting)
        while is_needed and self._open() and not self._send_all():
            self._break()
        self._exchange.release()

    def _open(self) -> bool:
        """Opens the stream, however long it takes; false if it is not needed any more."""
        for delay in delays():
            with self._change:
                self._exchange, self._cut = Exchange(self._way), False
            if self._ended.is_set():
                return False
            try:
                self._exchange.open(
                    ["messages", self._way.me, *self._ends, self._ports, self._again], self._rows.schema
                )
            except FAILURES:
                self._exchange.release()
                self._ended.wait(delay)
            else:
                self._again = True
                with self._change:
                    self._live = not self._cut
                return True
        raise AssertionError("delays never end")

    def _send_all(self) -> bool:
        """Sends until the stream is closed (true) or breaks (false)."""
        try:
            while (message := self._next()) is not None:
                self._send(message)
                self._sent()
            self._exchange.finish()
            self._exchange.wait_for_end()
        except FAILURES:
            return self._closing
        return True

    def _next(self) -> Data | None:
        """Waits for the next message to send; None once the stream is closed."""
        with self._change:
            self._change.wait_for(lambda: not self._busy and (self._waiting or self._closing or self._cut))
            if self._cut:
                raise ConnectionResetError("the link to the receiver is broken")
            return self._waiting[0] if self._waiting else None

    def _send(self, message: Data) -> None:
        try:
            for piece in self._rows.pieces(message):
                self._exchange.send(piece)
        except SeepError as reason:
            self._events.on_unsendable(self._way.peer, reason)

    def _sent(self) -> None:
        with self._change:
            self._waiting.popleft()
        self._tell_room()

    def _break(self) -> None:
        with self._change:
            self._live = False
            self._exchange.cut()
            self._change.wait_for(lambda: not self._busy)
            self._waiting.clear()
        self._exchange.release()
        self._events.on_stream_broken(*self._ends)
        self._tell_room()

    def _tell_room(self) -> None:
        """Calls `on_room` only when half of the room is free, so that threads switch less often."""
        with self._change:
            tell = self._wanted and 2 * len(self._waiting) <= self._room
            self._wanted = self._wanted and not tell
        if tell and self._on_room is not None:
            self._on_room()


def _is_small(message: Data) -> bool:
    batches: list[pa.RecordBatch] = list(message.batches.values())
    if 8 * sum(batch.num_rows * batch.num_columns for batch in batches) > SMALL:
        return False  # avoids `nbytes`, which releases the GIL
    return sum(int(batch.nbytes) for batch in batches if batch.num_rows) <= SMALL


class Ending(NamedTuple):
    """A thread that is ending, and the function that forces its end."""

    thread: threading.Thread | None
    cancel: Callable[[], None]

    def join(self, timeout: float) -> None:
        if self.thread not in (None, threading.current_thread()):
            self.thread.join(max(timeout, 0))
