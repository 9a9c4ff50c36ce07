"""Rows on a typed stream: an epoch's data between two instances, usually as one Flight message."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from primitives.errors import InternalError
from primitives.spill import pack_batches, unpack_batches
from seep.channels.pieces import Aligner, MessagePiece, PieceHeader
from seep.channels.wire import WireError
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation

_HEADER = struct.Struct("<B?6xqqd")  # label, whether more rows of the epoch follow, epoch, watermark, created
#: More bytes of rows are sent as several Flight messages, because a single one cannot have 2 GB.
MOST_AT_ONCE = 256 << 20
#: Below this size, copying rows costs less than aligning them.
_SMALL = 8 << 10


class RowsWriter:
    """Converts data messages to Flight messages: with the port's schema, or with a column for each of several ports."""

    def __init__(self, schemas: Mapping[int, pa.Schema], most_at_once: int = MOST_AT_ONCE) -> None:
        self._empty = {port: _no_rows(schema) for port, schema in schemas.items()}
        self._most_at_once = most_at_once
        self.schema: pa.Schema = self._as_one(dict(self._empty)).schema
        self._aligner = Aligner(self.schema)

    def pieces(self, message: Data) -> Iterator[MessagePiece]:
        """Yields the Flight messages for a data message; no row is copied."""
        rounds = _rounds({port: rows for port, rows in message.batches.items() if rows.num_rows}, self._most_at_once)
        for at, batches in enumerate(rounds, 1):
            more = at < len(rounds)
            header = _HEADER.pack(PieceHeader.ROWS, more, message.epoch, message.watermark, message.created)
            yield self._piece(header, batches)

    def _piece(self, header: bytes, batches: Mapping[int, pa.RecordBatch]) -> MessagePiece:
        if not batches:
            return MessagePiece(header, None)
        rows = self._as_one(batches)
        nbytes = rows.nbytes
        return MessagePiece(self._aligner.pad(header, nbytes) if nbytes >= _SMALL else header, rows)

    def _as_one(self, batches: Mapping[int, pa.RecordBatch]) -> pa.RecordBatch:
        for port, rows in batches.items():
            if port not in self._empty or not rows.schema.equals(self._empty[port].schema):
                expected = self._empty[port].schema if port in self._empty else "nothing"
                raise InternalError(f"port {port} takes {expected}, and was sent {rows.schema}")
        if len(self._empty) == 1:
            return next(iter(batches.values()))
        return pack_batches({str(port): batches.get(port, empty) for port, empty in self._empty.items()}, {})


class RowsReader:
    """Assembles data messages; their batches are views of the received buffers."""

    def __init__(self, sender: Incarnation, receiver: Incarnation, ports: tuple[int, ...]) -> None:
        self._sender = sender
        self._receiver = receiver
        self._ports = ports
        self._earlier: dict[int, list[pa.RecordBatch]] = {}

    def add(self, metadata: pa.Buffer, rows: pa.RecordBatch | None) -> Data | None:
        """Takes a Flight message; returns the data message that it completes, if any."""
        header = _header(metadata)
        for port, batch in self._by_port(rows).items():
            self._earlier.setdefault(port, []).append(_aligned(batch))
        if header.more:
            return None
        batches = {
            port: parts[0] if len(parts) == 1 else pa.concat_batches(parts) for port, parts in self._earlier.items()
        }
        self._earlier = {}
        return Data(self._sender, self._receiver, header.epoch, batches, header.watermark, header.created)

    def _by_port(self, rows: pa.RecordBatch | None) -> dict[int, pa.RecordBatch]:
        if rows is None or not rows.num_rows:
            return {}
        if len(self._ports) == 1:
            return {self._ports[0]: rows}
        unpacked, _ = unpack_batches(rows)
        return {int(port): batch for port, batch in unpacked.items() if batch.num_rows}


class _Header(NamedTuple):
    label: int
    more: bool
    epoch: int
    watermark: int
    created: float


def _header(metadata: pa.Buffer) -> _Header:
    if metadata.size < _HEADER.size:
        raise WireError(f"the header of rows has {_HEADER.size} bytes, not {metadata.size}")
    return _Header(*_HEADER.unpack_from(metadata))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _rounds(batches: Mapping[int, pa.RecordBatch], most: int) -> list[dict[int, pa.RecordBatch]]:
    """Divides batches into rounds, so that each slice has at most about `most` bytes."""
    rounds: list[dict[int, pa.RecordBatch]] = [{}]
    for port, rows in batches.items():
        count = min(rows.nbytes // most + 1, rows.num_rows)
        length = -(-rows.num_rows // count)
        for at in range(count):
            if at == len(rounds):
                rounds.append({})
            rounds[at][port] = rows.slice(at * length, length)
    return rounds


def _aligned(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch on buffers aligned to 8 bytes: for others, NumPy and Numba take slow paths.

    All buffers of a message are at multiples of 8 from the first one, so checking one is enough.
    """
    for column in rows.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                return rows if buffer.address % 8 == 0 else pa.concat_batches([rows, rows.slice(0, 0)])
    return rows
