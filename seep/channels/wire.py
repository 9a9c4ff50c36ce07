"""The wire format: encodes every value that processes send each other; never code, never pickle.

A message is a head and any number of buffers. The head is msgpack with the checksums of everything; record batches
(also those of chunks) are Arrow IPC streams in separate buffers, written once and read in place. Large buffers in a
message (the files of chunks) are sent unchanged.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.channels.wire_types import TAG_OF, TYPES, BatchPlace, KeptBytes

_MAGIC = b"SPW1"
_PREFIX = struct.Struct("<4sIIQ")  # magic, checksum of the rest of the head, number of buffers, bytes of msgpack
_CHECKED_FROM = 8
_ENTRY = struct.Struct("<QI")  # size and checksum of each buffer
_ALIGNMENT = 64
#: The initial size of the packer's buffer; the default would cost more than most messages.
_SMALL_MESSAGE = 1024
#: Buffers of at most this many bytes are part of the head.
_SMALL_BUFFER = 4096
#: A tag in msgpack: an extension without content, first in the list of a tagged value's fields.
_MARKS = [msgpack.ExtType(code, b"") for code in range(len(TYPES))]
#: The alignment of numbers in a batch that is read in place: the widest has 8 bytes.
_READ_ALIGNMENT = 8


class WireError(EnvironmentFault):
    """Received bytes are not a message, or not a complete one."""


def pack(value: Any) -> list[pa.Buffer]:
    """Encodes a value as a head and buffers; each batch is copied once, and large buffers are not copied."""
    body, parts = collected(value, lambda batch: [_write_batch(batch)])
    buffers = [buffer for (buffer,) in parts]
    table = b"".join(_ENTRY.pack(buffer.size, zlib.crc32(buffer)) for buffer in buffers)
    head = _PREFIX.pack(_MAGIC, 0, len(buffers), len(body)) + table + body
    checksum = zlib.crc32(memoryview(head)[_CHECKED_FROM:])
    return [pa.py_buffer(head[:4] + checksum.to_bytes(4, "little") + head[_CHECKED_FROM:]), *buffers]


def collected(value: Any, write: Callable[[pa.RecordBatch], list[pa.Buffer]]) -> tuple[bytes, list[list[pa.Buffer]]]:
    """Returns the value as msgpack, and separately each written batch, and each large buffer."""
    parts: list[list[pa.Buffer]] = []

    def tagged(item: Any) -> Any:
        if isinstance(item, pa.RecordBatch):
            parts.append(write(item))
            return [_MARKS[TAG_OF[BatchPlace]], len(parts) - 1]
        if isinstance(item, pa.Buffer) and item.size > _SMALL_BUFFER:
            parts.append([item])
            return [_MARKS[TAG_OF[KeptBytes]], len(parts) - 1]
        return _tagged(item)

    try:
        packer = msgpack.Packer(
            default=tagged, strict_types=True, unicode_errors="surrogatepass", buf_size=_SMALL_MESSAGE
        )
        return packer.pack(value), parts
    except SeepError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as reason:
        raise UserError(f"a {type(value).__name__} cannot be sent to another process: {reason}") from reason


def unpack(parts: Sequence[pa.Buffer]) -> Any:
    """Decodes the result of `pack`; batches are views of the parts. Raises WireError for anything else."""
    head, *buffers = parts
    return _value(head, _table(head), buffers)


def encode(value: Any) -> pa.Buffer:
    """Encodes a value as one buffer, for `decode`.

    >>> decode(encode({"slots": (1, 2), "name": "count[0]"}))
    {'slots': (1, 2), 'name': 'count[0]'}
    """
    return join(pack(value))


def decode(data: pa.Buffer | bytes) -> Any:
    """Decodes the result of `encode`; batches are views of `data`. Raises WireError for anything else."""
    data = pa.py_buffer(data)
    table = _table(data)
    start = _PREFIX.size + _ENTRY.size * len(table) + _PREFIX.unpack_from(data)[3]
    parts = [data.slice(0, start)]
    for size, _ in table:
        start = aligned(start)
        if start + size > data.size:
            raise WireError(f"a message is cut off after {data.size} bytes")
        parts.append(data.slice(start, size))
        start += size
    if start != data.size:
        raise WireError(f"a message of {start} bytes is followed by {data.size - start} that do not belong to it")
    return _value(parts[0], table, parts[1:])


def join(parts: Sequence[pa.Buffer]) -> pa.Buffer:
    """Joins the parts of a message to one buffer."""
    if len(parts) == 1:
        return parts[0]
    pieces: list[Any] = []
    length = 0
    for part in parts:
        pieces += [b"\0" * (aligned(length) - length), part]
        length = aligned(length) + part.size
    return pa.py_buffer(b"".join(pieces))


def aligned(length: int) -> int:
    """Returns the aligned start of a buffer that follows `length` bytes."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _value(head: pa.Buffer, table: Sequence[tuple[int, int]], buffers: Sequence[pa.Buffer]) -> Any:
    if len(table) != len(buffers):
        raise WireError(f"a message came with {len(buffers)} buffers where {len(table)} belong to it")
    for (size, checksum), buffer in zip(table, buffers, strict=True):
        if buffer.size != size or zlib.crc32(buffer) != checksum:
            raise WireError(f"a buffer of {buffer.size} bytes is damaged: {size} with another checksum were sent")
    return valued(head.slice(_PREFIX.size + _ENTRY.size * len(table)), buffers)


def valued(body: pa.Buffer, buffers: Sequence[pa.Buffer]) -> Any:
    """Returns the value from the result of `collected`."""
    try:
        return _Reader(buffers).read(body)
    except WireError:
        raise
    except Exception as reason:  # any error of a constructor with wrong content
        raise WireError(f"a message of {body.size} bytes makes no sense: {reason!r}") from reason


# -- heads -------------------------------------------------------------------------------------------------------------


def _table(head: pa.Buffer) -> list[tuple[int, int]]:
    """Checks a head, which may be followed by other bytes; returns size and checksum of each buffer."""
    if head.size < _PREFIX.size:
        raise WireError(f"{head.size} bytes are no message; the shortest has {_PREFIX.size}")
    magic, checksum, count, length = _PREFIX.unpack_from(head)
    size = _PREFIX.size + _ENTRY.size * count + length
    if magic != _MAGIC or size > head.size:
        raise WireError(f"{head.size} bytes are no message: they begin with {head.slice(0, 8).to_pybytes()!r}")
    if zlib.crc32(memoryview(head)[_CHECKED_FROM:size]) != checksum:
        raise WireError(f"the head of a message is damaged: the checksum of its {size} bytes differs")
    table = memoryview(head)[_PREFIX.size : _PREFIX.size + _ENTRY.size * count]
    return [(entry[0], entry[1]) for entry in _ENTRY.iter_unpack(table)]


def _tagged(item: Any) -> Any:
    """Returns what msgpack writes for a value of another type."""
    code = TAG_OF.get(type(item))
    if code is not None:
        return [_MARKS[code], *TYPES[code].fields(item)]
    match item:
        case pa.Buffer():
            return item.to_pybytes()
        case np.integer() | np.floating() | np.bool_():
            return item.item()
        case Mapping():
            return dict(item)
        case str():  # enumerations that are text
            return str(item)
    raise UserError(
        f"{item!r:.200} cannot be sent to another process: it is a {type(item).__qualname__}; "
        "plain numbers, text, bytes, lists, tuples, dicts and Arrow record batches can"
    )


class _Mark(NamedTuple):
    """A tag, while a message is read."""

    code: int


_READ_MARKS = [_Mark(code) for code in range(len(TYPES))]


class _Reader:
    """Reads the msgpack of one message."""

    def __init__(self, buffers: Sequence[pa.Buffer]) -> None:
        self._buffers = buffers
        #: the number of marks that are not yet the first item of a list
        self._loose = 0

    def read(self, body: pa.Buffer) -> Any:
        value = msgpack.unpackb(
            memoryview(body),
            ext_hook=self._mark,
            list_hook=self._untagged,
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
        if self._loose:
            raise WireError("a message has a tag without fields")
        return value

    def _mark(self, code: int, content: bytes) -> _Mark:
        if content or not 0 <= code < len(TYPES):
            raise WireError(f"a message holds a value with the unknown tag {code}")
        self._loose += 1
        return _READ_MARKS[code]

    def _untagged(self, items: list[Any]) -> Any:
        if not items or type(items[0]) is not _Mark:
            return items
        self._loose -= 1
        made = TYPES[items[0].code].make(items[1:])
        match made:
            case BatchPlace(place):
                return _read_batch(self._buffers[place])
            case KeptBytes(place):
                return self._buffers[place]
        return made


# -- batches -----------------------------------------------------------------------------------------------------------


def _write_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """Writes an Arrow IPC stream of one batch to a buffer of exactly its size, so that every byte is copied once."""
    measure = pa.MockOutputStream()
    _stream_to(measure, batch)
    buffer = pa.allocate_buffer(measure.size())
    _stream_to(pa.FixedSizeBufferWriter(buffer), batch)
    return buffer


def _stream_to(sink: Any, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


def _read_batch(buffer: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(_readable_in_place(buffer)) as stream:
        (batch,) = stream
    batch.validate()
    return batch


def _readable_in_place(buffer: pa.Buffer) -> pa.Buffer:
    """Returns the buffer, or a copy of it if its numbers are not aligned for reading in place."""
    if buffer.address % _READ_ALIGNMENT == 0:
        return buffer
    copy = pa.allocate_buffer(buffer.size)
    memoryview(copy)[:] = buffer
    return copy
