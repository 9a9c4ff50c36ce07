"""The port of a process: an Arrow Flight server on one interface, which receives messages of peers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.flight as flight

from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
from seep.channels.bulk_arrivals import BulkAcknowledger, BulkArrivals
from seep.channels.epoch_rows import RowsReader
from seep.channels.inline_sends import only_read
from seep.channels.pieces import LIMIT, Assembly, PieceHeader, label_of
from seep.channels.security import Security
from seep.channels.sockets import cut_connections
from seep.channels.wire import WireError, decode, pack, unpack
from seep.protocol.courier import LetterFrame
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation

CALL = "seep.call"
#: The first bytes of a stream's server, before the client's port: the stream is open, and the token was right.
GREETING = b"seep "
#: Seconds that `close` waits at most.
_PATIENCE = 5.0
_CUT_AGAIN = 0.01
_KINDS: dict[str, type[SeepError]] = {kind.__name__: kind for kind in (UserError, EnvironmentFault, InternalError)}


class Address(NamedTuple):
    """The address at which a process listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Receiver(Protocol):
    """The handlers of a process for received messages. Called on channel threads; the channel waits meanwhile.

    An exception ends the stream of the message, and is passed to `on_fault`.
    """

    def on_letters_open(self, peer: str, session: int) -> None:
        """A peer's stream of letters begins; `session` counts those of one link, from 1."""
        ...

    def on_frame(self, peer: str, frame: LetterFrame) -> None: ...

    def on_letters_closed(self, peer: str, session: int, reason: str) -> None:
        """A peer's stream of letters has ended; the reason is empty if the peer ended it in order."""
        ...

    def on_stream_open(self, peer: str, sender: Incarnation, receiver: Incarnation, again: bool) -> None:
        """A stream begins. If the link had opened it before (`again`), messages may have been lost in between."""
        ...

    def on_message(self, message: Data, nbytes: int) -> None:
        """A message of a stream, with its size in bytes."""
        ...

    def on_stream_closed(self, peer: str, sender: Incarnation, receiver: Incarnation, clean: bool) -> None:
        """A stream has ended; if `clean`, the sender has ended it, and everything that was sent has arrived."""
        ...

    def on_bulk_open(self, peer: str) -> BulkArrivals:
        """A peer has connected its bulk lane; returns the receiving end."""
        ...

    def on_call(self, peer: str, method: str, body: Any) -> Any:
        """Answers a call; a SeepError is raised again where the call was made."""
        ...

    def on_fault(self, peer: str, text: str) -> None:
        """A message of a peer was refused, or could not be handled. `peer` is empty if it is unknown."""
        ...


class RowExchange(Protocol):
    """The handlers for rows that Spark's tasks and other nodes put and get. Called on channel threads."""

    def on_put(self, opening: Any, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Takes rows, which are complete when the batches end; the result is sent to the sender."""
        ...

    def on_get(self, request: Any) -> flight.RecordBatchStream: ...


class Letters(NamedTuple):
    """The descriptor of a stream of letters."""

    peer: str
    session: int


class BulkConnection(NamedTuple):
    """The descriptor of a connection of the bulk lane."""

    peer: str
    credit: int


class Messages(NamedTuple):
    """The descriptor of a stream from one instance to another."""

    peer: str
    sender: Incarnation
    receiver: Incarnation
    ports: tuple[int, ...]
    again: bool


class Port:
    """Serves until closed, on exactly one interface, on any free port if none is given.

    It accepts only streams of letters, messages and state (`do_exchange`), calls (`do_action`) and, with a `shop`, rows
    for it and from it (`do_put`, `do_get`), and refuses every client without the token.
    """

    def __init__(
        self,
        host: str,
        security: Security,
        receiver: Receiver,
        *,
        port: int = 0,
        limit: int = LIMIT,
        shop: RowExchange | None = None,
    ) -> None:
        self._server = _Server((host, port), security, receiver, limit, shop)
        self.address = Address(host, self._server.port)
        self._closed = False

    def close(self) -> None:
        """Ends all streams and calls at once, and frees the port."""
        if self._closed:
            return
        self._closed = True
        self._server.closing = True
        shutdown = threading.Thread(target=self._server.shutdown, name="seep port shutdown", daemon=True)
        shutdown.start()
        for _ in range(round(_PATIENCE / _CUT_AGAIN)):
            cut_connections(self.address.port)
            shutdown.join(_CUT_AGAIN)
            if not shutdown.is_alive():
                return


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses every call without the token, before reading it."""

    def __init__(self, security: Security) -> None:
        self._security = security

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str | bytes]]) -> None:  # noqa: ARG002
        if not self._security.admits(next(iter(headers.get("authorization", ())), None)):
            raise flight.FlightUnauthenticatedError("the token of this run is missing or wrong")


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self,
        place: tuple[str, int],
        security: Security,
        receiver: Receiver,
        limit: int,
        shop: RowExchange | None,
    ) -> None:
        self._shop = shop
        self._receiver = receiver
        self._limit = limit
        self.closing = False
        try:
            super().__init__(
                place,
                tls_certificates=[(security.certificate, security.key)] if security.encrypted else None,
                verify_client=security.mutual,
                root_certificates=security.certificate if security.mutual else None,
                middleware={"gate": _Gate(security)},
            )
        except (pa.ArrowException, OSError) as reason:
            raise EnvironmentFault(f"cannot listen on {place[0]}:{place[1]}: {reason}") from reason

    # -- calls --------------------------------------------------------------------------------------------------------

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:  # noqa: ARG002
        answer = self._answer(action)
        return iter([flight.Result(part) for part in pack(answer)])

    def _answer(self, action: flight.Action) -> dict[str, Any]:
        peer = ""
        only_read()
        try:
            if action.type != CALL:
                raise WireError(f"there is no action {action.type!r}")
            peer, method, body = _call(decode(action.body))
            return {"answer": self._receiver.on_call(peer, method, body)}
        except WireError as reason:
            self._receiver.on_fault(peer, str(reason))
            raise flight.FlightServerError(str(reason)) from reason
        except SeepError as reason:
            kind = next(name for name, kind in _KINDS.items() if isinstance(reason, kind))
            return {"error": kind, "text": str(reason)}
        except Exception as reason:
            self._receiver.on_fault(peer, f"a call failed: {reason!r}")
            return {"error": InternalError.__name__, "text": f"{type(reason).__name__}: {reason}"}

    # -- rows ---------------------------------------------------------------------------------------------------------

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        if self._shop is None:
            super().do_put(context, descriptor, reader, writer)  # raises the error of a method that does not exist
            return
        only_read()
        try:
            batches = (body for _, body in _chunks(reader) if body is not None)
            writer.write(self._shop.on_put(decode(descriptor.command or b""), batches))
        except Exception as reason:
            raise flight.FlightServerError(f"what was pushed is not kept: {reason}") from reason

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        if self._shop is None:
            return super().do_get(context, ticket)
        only_read()
        try:
            return self._shop.on_get(decode(ticket.ticket))
        except SeepError as reason:
            raise flight.FlightServerError(str(reason)) from reason

    # -- streams ------------------------------------------------------------------------------------------------------

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        peer = ""
        only_read()
        try:
            opening = _opening(descriptor)
            peer = opening.peer
            writer.write_metadata(GREETING + context.peer().encode())
            match opening:
                case Letters():
                    self._letters(opening, reader)
                case Messages():
                    self._messages(opening, reader)
                case BulkConnection():
                    self._bulk(opening, reader, writer)
        except _Broken as reason:
            raise flight.FlightServerError(str(reason)) from reason
        except Exception as reason:
            self._receiver.on_fault(peer, f"a stream was refused: {reason}")
            raise flight.FlightServerError(str(reason)) from reason

    def _letters(self, opening: Letters, reader: flight.MetadataRecordBatchReader) -> None:
        peer, session = opening
        reason = "the stream was refused"
        self._receiver.on_letters_open(peer, session)
        try:
            assembly = Assembly(self._limit)
            for metadata, body in _chunks(reader):
                if (parts := assembly.add(metadata, body)) is not None:
                    for frame in _frames(parts):
                        self._receiver.on_frame(peer, frame)
            reason = ""
        except _Broken as broken:
            reason = str(broken)
            raise
        finally:
            self._receiver.on_letters_closed(peer, session, reason)

    def _messages(self, opening: Messages, reader: flight.MetadataRecordBatchReader) -> None:
        peer, sender, receiver, ports, again = opening
        clean = False
        self._receiver.on_stream_open(peer, sender, receiver, again)
        try:
            rows = RowsReader(sender, receiver, ports)
            nbytes = 0
            for metadata, body in _chunks(reader):
                nbytes += metadata.size + (body.nbytes if body is not None else 0)
                if label_of(metadata) is not PieceHeader.ROWS:
                    raise WireError(f"the stream from {sender} to {receiver} carries rows alone")
                message = rows.add(metadata, body)
                if message is not None:
                    self._receiver.on_message(message, nbytes)
                    nbytes = 0
            clean = True
        finally:
            self._receiver.on_stream_closed(peer, sender, receiver, clean)

    def _bulk(
        self,
        opening: BulkConnection,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        arrivals, acknowledger = self._receiver.on_bulk_open(opening.peer), BulkAcknowledger(opening.credit)
        _tell(writer, arrivals.standing())
        for metadata, body in _chunks(reader):
            if (told := acknowledger.took(*arrivals.take(metadata, body))) is not None:
                _tell(writer, told)


class _Broken(Exception):
    """The connection of a stream is lost."""


def _chunks(reader: flight.MetadataRecordBatchReader) -> Iterator[tuple[pa.Buffer, pa.RecordBatch | None]]:
    """Yields received chunks until the peer sends the end."""
    while True:
        try:
            chunk = reader.read_chunk()
        except (StopIteration, flight.FlightError, OSError) as reason:
            raise _Broken(str(reason) or "the connection is lost") from reason
        except pa.ArrowException as reason:
            raise WireError(f"what arrived is no Arrow data: {reason}") from reason
        metadata = chunk.app_metadata or pa.py_buffer(b"")
        if label_of(metadata) is PieceHeader.END:
            return
        yield metadata, chunk.data


def _tell(writer: flight.MetadataRecordBatchWriter, metadata: bytes) -> None:
    try:
        writer.write_metadata(metadata)
    except (flight.FlightError, pa.ArrowException, OSError) as reason:
        raise _Broken(str(reason) or "the connection is lost") from reason


def _opening(descriptor: flight.FlightDescriptor) -> Letters | Messages | BulkConnection:
    match decode(descriptor.command or b""):
        case ["letters", str(peer), int(session)]:
            return Letters(peer, session)
        case ["messages", str(peer), Incarnation() as sender, Incarnation() as receiver, tuple(ports), bool(again)]:
            return Messages(peer, sender, receiver, ports, again)
        case ["bulk", str(peer), int(credit)]:
            return BulkConnection(peer, credit)
    raise WireError("a stream begins with who opens it, and what for; this one does not")


def _call(content: Any) -> tuple[str, str, Any]:
    match content:
        case [str(peer), str(method), body]:
            return peer, method, body
    raise WireError("a call has a peer, a method and a body; this one has not")


def _frames(parts: list[pa.Buffer]) -> list[LetterFrame]:
    frames = decode(parts[0]) if len(parts) == 1 else unpack(parts)
    if not isinstance(frames, list) or not all(isinstance(frame, LetterFrame) for frame in frames):
        raise WireError("a stream of letters carries frames and nothing else")
    return frames


def answer_of(results: list[pa.Buffer]) -> Any:
    """Returns the result of a call; raises its error."""
    match unpack(results):
        case {"answer": answer}:
            return answer
        case {"error": str(kind), "text": str(text)} if kind in _KINDS:
            raise _KINDS[kind](text)
    raise WireError("the answer to a call is neither an answer nor an error")
