"""The receiving end of a bulk lane: assembles messages from segments, over any number of connections."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from primitives.mapped import MappedFiles
from seep.channels.bulk_bytes import Arriving
from seep.channels.pieces import BYTES
from seep.channels.wire import WireError, encode
from seep.protocol.bulk import PART, BulkInbox, BulkSegment

#: The header of a segment: its label; number, start, length and size; a checksum.
HEADER = struct.Struct("<B7xQQQQI")
#: An acknowledgement, of which there may be several together: the number of a message, and the bytes received.
ACKNOWLEDGED = struct.Struct("<QQ")


class BulkArrivals:
    """The receiving end of one peer's bulk lane. Connections may change and overlap: each byte counts once."""

    def __init__(self, deliver: Callable[[int, Any], None], shelf: MappedFiles | None = None) -> None:
        """`deliver` is called with each message and the version of its writer's view, one at a time."""
        self._deliver, self._shelf = deliver, shelf
        self._inbox = BulkInbox()
        self._arriving: dict[int, Arriving] = {}
        self._lock = threading.Lock()

    def standing(self) -> bytes:
        """Returns how far the messages are received, for the peer that opens a connection."""
        with self._lock:
            highest, positions = self._inbox.standing()
        return bytes(encode([highest, dict(positions)]))

    def take(self, metadata: pa.Buffer, body: pa.RecordBatch | None) -> tuple[BulkSegment, int]:
        """Takes a segment, and delivers the message that it completes; returns how much of that message is received.

        Raises WireError if it is damaged, invalid, or comes after a gap.
        """
        segment, data = _segment(metadata, body)
        with self._lock:
            if self._inbox.receive(segment):
                self._put(segment, data)
            position = self._inbox.position(segment)
        if position < segment.end:
            raise WireError(f"a segment begins at {segment.start} where {position} bytes of its transfer are here")
        return segment, position

    def drop(self) -> None:
        """Drops incomplete messages of a lost peer."""
        with self._lock:
            for arriving in self._arriving.values():
                arriving.drop()
            self._arriving.clear()

    def _put(self, segment: BulkSegment, data: pa.Buffer) -> None:
        try:
            if segment.start == 0:
                self._arriving[segment.number] = Arriving(segment.size, self._shelf)
            arriving = self._arriving[segment.number]
            arriving.write(data)
            if segment.end == segment.size:
                self._deliver(*_message(arriving.message()))
                del self._arriving[segment.number]
        except BaseException:
            self._inbox.restart(segment.number)
            if segment.number in self._arriving:
                self._arriving.pop(segment.number).drop()
            raise


class BulkAcknowledger:
    """Acknowledges segments of one connection: as often as the credit requires, and when a message is complete."""

    def __init__(self, credit: int) -> None:
        self._every = credit // (4 * PART)
        self._owed = 0
        self._positions: dict[int, int] = {}

    def took(self, segment: BulkSegment, position: int) -> bytes | None:
        """Returns the acknowledgement to send after a segment, if any."""
        self._positions[segment.number] = position
        self._owed += segment.length
        if self._owed < self._every and position < segment.size:
            return None
        told = b"".join(ACKNOWLEDGED.pack(*pair) for pair in self._positions.items())
        self._positions, self._owed = {}, 0
        return told


def _segment(metadata: pa.Buffer, body: pa.RecordBatch | None) -> tuple[BulkSegment, pa.Buffer]:
    if metadata.size < HEADER.size or body is None or not body.schema.equals(BYTES):
        raise WireError(f"a segment of state has {metadata.size} bytes before it, and {body and body.num_rows} bytes")
    _, number, start, length, size, checksum = HEADER.unpack_from(metadata)
    data = body.column(0).buffers()[1].slice(body.column(0).offset, body.num_rows)
    if data.size != length or not 0 < start + length <= size or zlib.crc32(data) != checksum:
        raise WireError(f"a segment of {data.size} bytes is damaged: {length} with another checksum were sent")
    return BulkSegment(number, start, length, size), data


def _message(value: Any) -> tuple[int, Any]:
    match value:
        case [int(version), body]:
            return version, body
    raise WireError("a bulk lane carries messages with the version of a view; this one has none")
