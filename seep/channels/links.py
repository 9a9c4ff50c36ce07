"""Links: the connection from this process to one other, for letters, streams of messages, and calls.

Sending never waits for the network: every stream has a thread that encodes and sends. A broken link reconnects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from primitives.errors import EnvironmentFault, SeepError
from seep.channels.dial import FAILURES, Direction, Exchange, client_of, delays
from seep.channels.inline_sends import is_small, may_send
from seep.channels.pieces import BYTES, Aligner, cut
from seep.channels.port import CALL, Address, answer_of
from seep.channels.recent import Recent
from seep.channels.security import Security
from seep.channels.sockets import is_refused
from seep.channels.stream import Ending, InstanceStream, StreamEvents
from seep.channels.wire import encode, pack
from seep.protocol.courier import LetterFrame
from seep.protocol.view import Incarnation

__all__ = ["InstanceStream", "Link", "LinkEvents", "NoLinkEvents"]

#: The most waiting frames that are sent together.
_TOGETHER = 64
#: The most bytes of inline sends without a message from the peer: less than the network buffers take while the peer's
#: process is stopped, so that the calling thread does not wait for it.
_ON_CREDIT = 32 << 10
#: The number of pairs of instances that are remembered to have had a stream.
_KNOWN = 4096


class LinkEvents(StreamEvents, Protocol):
    """The notices of links; called on their threads."""

    def on_broken(self, peer: str, refused: bool) -> None:
        """Letters do not arrive. Called when a link breaks (or cannot be made), and once more when the connection is
        first refused by the peer's host (`refused`): then the process has ended."""
        ...

    def on_restored(self, peer: str) -> None:
        """Letters arrive again. Frames sent from now on arrive in order, those sent in this call first."""
        ...


class NoLinkEvents:
    """Ignores the events of a link that is only made for a call: the caller sees its failure."""

    def on_broken(self, peer: str, refused: bool) -> None: ...

    def on_restored(self, peer: str) -> None: ...

    def on_stream_broken(self, sender: Incarnation, receiver: Incarnation) -> None: ...

    def on_unsendable(self, peer: str, reason: Exception) -> None:
        raise EnvironmentFault(f"{peer} cannot be told: {reason}")


class Link:
    """The connection to one peer. It connects on first use.

    Frames are sent in order while the link is up. When it breaks, frames that are not sent yet are dropped, and so are
    all that are given to it until it is back; `on_restored` is called before any frame is sent again, to send the
    courier's `again`. So no frame is ever sent after one that was given later.
    """

    def __init__(
        self, me: str, peer: str, address: Address, security: Security, events: LinkEvents, *, room: int = 32
    ) -> None:
        self.me = me
        self.peer = peer
        self.address = address
        self._way = Direction(me, peer, address, security)
        self._events = events
        self._room = room
        self._lock = threading.Lock()
        self._calls: flight.FlightClient | None = None
        self._streams: list[InstanceStream] = []
        #: pairs of instances whose stream was opened before
        self._known = Recent[tuple[Incarnation, Incarnation]](_KNOWN)
        #: frames to send; None only wakes the thread
        self._queue: SimpleQueue[LetterFrame | None] = SimpleQueue()
        self._order = threading.Lock()  #: held while a frame is queued or sent, so that none overtakes another
        self._pending = 0  #: frames in the queue, or taken from it and not sent yet
        self._live = False  #: whether the stream of letters is open
        self._credit = _ON_CREDIT
        self._accepts = True  #: false while the link is broken
        self._refused = False  #: whether `on_broken` has reported that no process listens
        self._closing = False
        self._ended = threading.Event()
        self._session = 0
        self._exchange = Exchange(self._way)
        self._aligner = Aligner(BYTES)
        self._thread: threading.Thread | None = None

    # -- sending and calling ------------------------------------------------------------------------------------------

    def send(self, frame: LetterFrame) -> None:
        """Sends a frame if the link is up; never waits.

        A small frame is sent inline if none waits, because waking another thread takes longer than sending it.
        """
        with self._order:
            with self._lock:
                if not self._accepts or self._closing:
                    return
                at_once = self._live and not self._pending and self._credit > 0 and may_send() and is_small(frame)
                if not at_once:
                    self._enqueue(frame)
            if at_once:
                self._send_at_once(frame)

    def heard(self) -> None:
        """Records a message of the peer: its process is not stopped."""
        self._credit = _ON_CREDIT

    def _enqueue(self, frame: LetterFrame) -> None:
        self._pending += 1
        self._queue.put(frame)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"seep link to {self.peer}", daemon=True)
            self._thread.start()

    def _send_at_once(self, frame: LetterFrame) -> None:
        try:
            parts = pack([frame])
            self._credit -= sum(part.size for part in parts)
            for piece in cut(parts, self._aligner):
                self._exchange.send(piece)
        except FAILURES:
            self._exchange.cut()  # the link's thread notices this
        except SeepError as reason:
            self._events.on_unsendable(self.peer, reason)

    def call(self, method: str, body: Any, timeout: float = 30.0) -> Any:
        """Calls the peer's `on_call` and returns its answer, or raises its error (as one of the three kinds).

        Raises EnvironmentFault also if the peer cannot be reached, or does not answer within `timeout` seconds.
        """
        options = flight.FlightCallOptions(timeout=timeout, headers=[self._way.security.header])
        action = flight.Action(CALL, encode([self.me, method, body]))
        client = self._client()
        try:
            results = [result.body for result in client.do_action(action, options)]
        except FAILURES as reason:
            with self._lock:
                self._calls = None  # the next call connects anew, at once
            raise EnvironmentFault(f"{self.peer} at {self.address} did not answer {method!r}: {reason}") from reason
        return answer_of(results)

    def stream(
        self,
        sender: Incarnation,
        receiver: Incarnation,
        schemas: Mapping[int, pa.Schema],
        on_room: Callable[[], None] | None = None,
    ) -> InstanceStream:
        """Opens a stream between two instances; `schemas` has the columns of each input port of the receiver."""
        ends = sender, receiver
        with self._lock:
            again = ends in self._known
            stream = InstanceStream(self._way, ends, schemas, self._events, on_room, room=self._room, again=again)
            self._known.add(ends)
            self._streams = [*(other for other in self._streams if other.is_open), stream]
        if self._closing:
            stream.close()
        return stream

    def close(self, grace: float = 0.5) -> None:
        """Sends queued frames, for `grace` seconds at most, and ends all threads and connections."""
        with self._lock:
            self._closing = True
            self._queue.put(None)
            ending = [Ending(self._thread, self._end), *(stream.ending() for stream in self._streams)]
        deadline = time.monotonic() + grace
        for one in ending:
            one.join(deadline - time.monotonic())
        for one in ending:
            one.cancel()
        for one in ending:
            one.join(1.0)
        self._calls = None

    # -- on its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._connect() and not self._carry():
            self._break(refused=False)
        self._exchange.release()

    def _connect(self) -> bool:
        """Opens the stream of letters, however long it takes; false if the link is closed."""
        for delay in delays():
            self._session += 1
            self._exchange = Exchange(self._way)
            if self._ended.is_set() or (self._closing and not self._accepts):
                return False
            try:
                self._exchange.open(["letters", self.me, self._session], BYTES)
            except (*FAILURES, SeepError):
                self._exchange.release()
                self._break(is_refused(*self.address))
                self._ended.wait(delay)
            else:
                self._restore()
                return True
        raise AssertionError("delays never end")

    def _carry(self) -> bool:
        """Sends frames until the link is closed (true) or breaks (false)."""
        broken = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(self._exchange, broken), name=f"seep watch on {self.peer}", daemon=True
        )
        watch.start()
        try:
            while not broken.is_set():
                frames = self._take()
                self._send_all(frames)
                with self._lock:
                    self._pending -= len(frames)
                if self._closing and self._queue.empty():
                    with self._order:  # no other thread is sending
                        self._exchange.finish()
                    watch.join()
                    return True
        except FAILURES:
            pass
        with self._lock:
            self._live = False
        self._exchange.cut()  # a sending thread gets an error
        watch.join()  # before the release: the library must not be asked to read by two threads at once
        with self._order:  # no other thread may be sending
            self._exchange.release()
        return self._ended.is_set()

    def _watch(self, exchange: Exchange, broken: threading.Event) -> None:
        """Notices that the stream has ended while nothing is sent on it."""
        with suppress(*FAILURES):
            exchange.wait_for_end()
        broken.set()
        self._queue.put(None)

    def _take(self) -> list[LetterFrame]:
        """Waits for frames; returns those that wait, up to a limit."""
        taken = [self._queue.get()]
        with suppress(Empty):
            while len(taken) < _TOGETHER:
                taken.append(self._queue.get_nowait())
        return [frame for frame in taken if frame is not None]

    def _send_all(self, frames: list[LetterFrame]) -> None:
        if not frames:
            return
        try:
            parts = pack(frames)
        except SeepError as reason:
            if len(frames) == 1:
                self._events.on_unsendable(self.peer, reason)
                return
            for frame in frames:
                self._send_all([frame])
            return
        for piece in cut(parts, self._aligner):
            self._exchange.send(piece)

    def _break(self, refused: bool) -> None:
        with self._lock:
            tell = self._accepts or (refused and not self._refused)
            streams = list(self._streams) if self._accepts else []
            self._accepts = self._live = False
            self._pending = 0
            self._refused = self._refused or refused
            with suppress(Empty):
                while True:
                    self._queue.get_nowait()
        for stream in streams:
            stream.break_off()
        if tell:
            self._events.on_broken(self.peer, refused)

    def _restore(self) -> None:
        with self._lock:
            was_broken = not self._accepts
            self._accepts = self._live = True
            self._refused = False
        if was_broken:
            self._events.on_restored(self.peer)

    def _end(self) -> None:
        self._ended.set()
        self._exchange.cut()

    def _client(self) -> flight.FlightClient:
        with self._lock:
            if self._calls is None:
                self._calls = client_of(self.address, self._way.security)
            return self._calls
