"""Client connections to the port of another process, a separate one for each stream."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.flight as flight

from seep.channels.pieces import MessagePiece, PieceHeader
from seep.channels.port import GREETING, Address
from seep.channels.security import Security
from seep.channels.sockets import cut_connections
from seep.channels.wire import encode

#: The errors that the library raises when a connection or the server fails.
FAILURES = (flight.FlightError, pa.ArrowException, OSError)

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # nodes talk directly, whatever proxy the environment names
    ("grpc.min_reconnect_backoff_ms", 2000),  # how long one attempt to connect may take
    ("grpc.http2.write_buffer_size", 1 << 20),
]
_FIRST_DELAY, _LONGEST_DELAY = 0.01, 1.0


class Direction(NamedTuple):
    """The two ends of a connection, with the address and the security."""

    me: str
    peer: str
    address: Address
    security: Security


def client_of(address: Address, security: Security) -> flight.FlightClient:
    """Returns a client on its own connection, which is made on first use."""
    make = flight.Location.for_grpc_tls if security.encrypted else flight.Location.for_grpc_tcp
    return flight.FlightClient(
        make(address.host, address.port),
        tls_root_certs=security.certificate,
        cert_chain=security.certificate if security.mutual else None,
        private_key=security.key if security.mutual else None,
        override_hostname=security.name,
        generic_options=_OPTIONS,
    )


class Exchange:
    """One open stream to a port. One thread opens it and sends; another may listen; any thread may cut it."""

    def __init__(self, way: Direction) -> None:
        self._way = way
        self._reader: Any = None
        self._writer: Any = None
        self._cancelled = False
        self._port: int | None = None  #: the local port of the connection, as seen by the other end
        self._lock = threading.Lock()

    def open(self, opening: Any, schema: pa.Schema) -> None:
        """Connects and waits until the port has accepted the stream."""
        client = client_of(self._way.address, self._way.security)
        options = flight.FlightCallOptions(headers=[self._way.security.header])
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(encode(opening).to_pybytes()), options)
        with self._lock:
            self._writer, self._reader = writer, reader
            if self._cancelled:
                reader.cancel()
        self._port = self._greeted(next(reader).app_metadata)
        writer.begin(schema)

    def _greeted(self, greeting: pa.Buffer | None) -> int | None:
        text = greeting.to_pybytes() if greeting is not None else b""
        if not text.startswith(GREETING):
            raise ConnectionError(f"what listens at {self._way.address} is not a process of this run")
        port = text.rpartition(b":")[2]
        return int(port) if port.isdigit() else None

    def send(self, piece: MessagePiece) -> None:
        """Sends a piece; waits while the receiver does not take earlier ones."""
        if piece.body is None:
            self._writer.write_metadata(piece.metadata)
        else:
            self._writer.write_with_metadata(piece.body, piece.metadata)

    def finish(self) -> None:
        """Sends the end of the stream; the port then ends the stream.

        (The writer's own `done_writing` must not be used: the library calls it when the listening thread sees the end,
        and two concurrent calls abort the process.)
        """
        self._writer.write_metadata(bytes([PieceHeader.END]))

    def wait_for_end(self) -> None:
        """Waits until the other end has taken everything and ends the stream; raises if the stream breaks."""
        with contextlib.suppress(StopIteration):
            while True:
                self._reader.read_chunk()

    def hear(self) -> pa.Buffer:
        """Returns the next message of the other end; raises if the stream breaks, or StopIteration if it ends."""
        return self._reader.read_chunk().app_metadata

    def cut(self) -> None:
        """Ends the stream at once, even while it waits for a peer; a waiting thread gets an error."""
        self._cancel()
        if self._port is not None:
            cut_connections(self._port)

    def _cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._reader is not None:
                self._reader.cancel()

    def release(self) -> None:
        """Closes the connection. For the sending thread, after the listening thread has ended."""
        self._cancel()
        with self._lock:
            writer, self._reader, self._writer = self._writer, None, None
        with contextlib.suppress(*FAILURES):
            if writer is not None:
                writer.close()


#: A separate generator, so that Python's own, which a program may have seeded, is not used.
_CHANCE = random.Random()


def delays() -> Iterator[float]:
    """Yields seconds to wait between attempts to reconnect: growing, and random, so that peers do not synchronise."""
    delay = _FIRST_DELAY
    while True:
        yield delay * _CHANCE.uniform(0.5, 1.0)
        delay = min(delay * 2, _LONGEST_DELAY)
