"""Pieces: a message of any size as a stream of Flight messages, each with a few bytes and perhaps a batch.

A small message is one piece. A large one has a piece for each of its parts; the part is the only column of a batch,
which Flight sends and receives without a copy. Parts above a limit are divided, and assembled at the receiver.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from seep.channels.wire import WireError, join

#: The schema of streams that carry only pieces.
BYTES = pa.schema({"bytes": pa.uint8()})

_LABEL = struct.Struct("<B7x")
#: Messages of at most this many bytes are one piece.
WHOLE_UP_TO = 32 << 10
#: Longer parts are divided, which bounds the delay of other messages on the same connection.
CUT_AT = 256 << 10
#: The most bytes of a message.
LIMIT = 64 << 30


class PieceHeader(IntEnum):
    """The label of a piece: its first byte."""

    ROWS = 0  #: not a piece of a message, but rows of a typed stream
    WHOLE = 1  #: the message follows
    GOES_ON = 2  #: a part of a part: more follows
    ENDS_PART = 3
    ENDS_MESSAGE = 4
    END = 5  #: the end of the stream; a stream that ends without it is broken
    BULK = 6  #: not a piece of a message, but a segment of the bulk lane


_LABELS = tuple(PieceHeader)


class MessagePiece(NamedTuple):
    """The content of one Flight message."""

    metadata: bytes
    body: pa.RecordBatch | None


def label_of(metadata: pa.Buffer | bytes) -> PieceHeader:
    """Returns the label of a Flight message; raises WireError if it has none."""
    try:
        return _LABELS[memoryview(metadata).cast("B")[0]]  # Arrow's buffers have signed bytes
    except IndexError as reason:
        raise WireError(f"a piece of {len(metadata)} bytes has no known label") from reason


def cut(parts: Sequence[pa.Buffer], alignment: Aligner, cut_at: int = CUT_AT) -> Iterator[MessagePiece]:
    """Yields the pieces of a packed message."""
    if sum(part.size for part in parts) <= WHOLE_UP_TO:
        yield MessagePiece(_LABEL.pack(PieceHeader.WHOLE) + join(parts).to_pybytes(), None)
        return
    for place, part in enumerate(parts):
        for start in range(0, part.size, cut_at):
            piece = part.slice(start, min(cut_at, part.size - start))
            ends = start + piece.size == part.size
            last = ends and place == len(parts) - 1
            label = PieceHeader.ENDS_MESSAGE if last else PieceHeader.ENDS_PART if ends else PieceHeader.GOES_ON
            yield MessagePiece(alignment.pad(_LABEL.pack(label), piece.size), _as_batch(piece))


def _as_batch(piece: pa.Buffer) -> pa.RecordBatch:
    column = pa.UInt8Array.from_buffers(pa.uint8(), piece.size, [None, piece])
    return pa.RecordBatch.from_arrays([column], schema=BYTES)


class Assembly:
    """Assembles the messages of a stream from their pieces."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._parts: list[pa.Buffer] = []
        self._cut: list[pa.Buffer] = []
        self._size = 0

    def add(self, metadata: pa.Buffer, body: pa.RecordBatch | None) -> list[pa.Buffer] | None:
        """Takes a piece; returns the parts of the message that it completes, if any. A whole message is one part."""
        label = label_of(metadata)
        if label is PieceHeader.WHOLE and not self._size:
            return [metadata.slice(_LABEL.size)]
        if (
            label in (PieceHeader.ROWS, PieceHeader.WHOLE, PieceHeader.END, PieceHeader.BULK)
            or body is None
            or not body.schema.equals(BYTES)
        ):
            raise WireError(f"a piece labelled {label.name} is out of place in its stream")
        self._keep(body.column(0).buffers()[1].slice(body.column(0).offset, body.num_rows))
        if label is PieceHeader.GOES_ON:
            return None
        self._parts.append(self._cut[0] if len(self._cut) == 1 else pa.py_buffer(b"".join(self._cut)))
        self._cut = []
        if label is PieceHeader.ENDS_PART:
            return None
        parts, self._parts, self._size = self._parts, [], 0
        return parts

    def _keep(self, piece: pa.Buffer) -> None:
        self._size += piece.size
        if not piece.size or self._size > self._limit:
            raise WireError(f"a message is longer than {self._limit} bytes, or a piece of it is empty")
        self._cut.append(piece)


class Aligner:
    """Pads the metadata of a Flight message so that the buffers of its rows are aligned to 8 bytes.

    In the message, the description of the batch comes first, then the metadata, then the rows. A receiver copies rows
    that are not aligned (Flight may move those of small messages), so a wrong guess costs only the copy.
    """

    def __init__(self, schema: pa.Schema) -> None:
        one_row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
        description = int(
            pa.ipc.read_message(one_row.serialize()).metadata.size
        )  # the same for any number of rows above 0
        self._before = description + _varint(description) + 5  # five bytes of tags, and the length of the metadata

    def pad(self, metadata: bytes, body: int) -> bytes:
        """The metadata, longer by up to seven bytes."""
        return metadata + b"\0" * (-(self._before + len(metadata) + _varint(body)) % 8)


def _varint(number: int) -> int:
    """Returns the bytes of a number in Protocol Buffers."""
    return max(1, -(-number.bit_length() // 7))
