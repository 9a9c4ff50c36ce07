"""A message of the bulk lane as a sequence of bytes, of which any range can be read without making the whole.

Small values are at the beginning; each record batch (as an Arrow IPC stream) and each large buffer follows, aligned for
the reader. The sent bytes are slices of the state itself; received bytes are read in place.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from typing import Any

import pyarrow as pa

from primitives.mapped import MappedFile, MappedFiles
from seep.channels.pieces import LIMIT
from seep.channels.wire import WireError, aligned, collected, valued

_MAGIC = b"SPB1"
_PREFIX = struct.Struct("<4sIQ")  # magic, number of parts, bytes of msgpack
_SIZE = struct.Struct("<Q")  # size of each part


class BulkBytes:
    """A message laid out as bytes.

    >>> state = BulkBytes({"state": pa.py_buffer(b"x" * 10_000)})
    >>> arriving = Arriving(state.size)
    >>> for start in range(0, state.size, 999):
    ...     arriving.write(state.cut(start, min(999, state.size - start)))
    >>> arriving.message()["state"].size
    10000
    """

    def __init__(self, message: Any) -> None:
        body, parts = collected(message, _pieces)
        sizes = [sum(piece.size for piece in part) for part in parts]
        table = b"".join(_SIZE.pack(size) for size in sizes)
        #: without gaps
        self._pieces = [pa.py_buffer(_PREFIX.pack(_MAGIC, len(parts), len(body)) + table + body)]
        at = self._pieces[0].size
        for part, size in zip(parts, sizes, strict=True):
            self._pieces += [pa.py_buffer(bytes(aligned(at) - at)), *part]
            at = aligned(at) + size
        self._pieces = [piece for piece in self._pieces if piece.size]
        #: the start of each part
        self._starts = [0]
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + piece.size)
        self.size = self._starts.pop()

    def cut(self, start: int, length: int) -> pa.Buffer:
        """Returns a range of bytes: a slice if it lies in one buffer, else a copy."""
        found = []
        for place in range(bisect_right(self._starts, start) - 1, len(self._pieces)):
            begin = self._starts[place]
            if begin >= start + length:
                break
            first = max(start - begin, 0)
            found.append(
                self._pieces[place].slice(first, min(start + length - begin, self._pieces[place].size) - first)
            )
        return found[0] if len(found) == 1 else pa.py_buffer(b"".join(found))


class Arriving:
    """A message that is being received: each batch and buffer is assembled separately, large ones on a shelf."""

    def __init__(self, size: int, shelf: MappedFiles | None = None) -> None:
        if not _PREFIX.size <= size <= LIMIT:
            raise WireError(f"a message has {_PREFIX.size} to {LIMIT} bytes, not {size}")
        self._size, self._shelf = size, shelf
        self._head = MappedFile(_PREFIX.size)
        self._count = -1  #: the number of parts; unknown at first
        self._parts: list[MappedFile] = []
        #: the known areas that are still to come: how many bytes, and where they go, if anywhere
        self._areas: deque[tuple[int, MappedFile | None]] = deque([(_PREFIX.size, self._head)])

    def write(self, data: pa.Buffer) -> None:
        """Takes the next bytes; raises WireError if they cannot belong to a message."""
        while data.size:
            if not self._areas:
                raise WireError(f"a message goes on after all that belongs to it: {data.size} bytes are left")
            left, area = self._areas.popleft()
            taken = data.slice(0, min(left, data.size))
            if area is not None:
                area.write(taken)
            data = data.slice(taken.size)
            if left > taken.size:
                self._areas.appendleft((left - taken.size, area))
            elif area is self._head:
                self._read_head()

    def message(self) -> Any:
        """Returns the complete message; batches and buffers are read in place. Raises WireError if it is invalid."""
        if self._areas:
            raise WireError(
                f"a message of {self._size} bytes is cut off: {sum(left for left, _ in self._areas)} are missing"
            )
        return valued(self._head.whole().slice(_SIZE.size * self._count), [part.whole() for part in self._parts])

    def drop(self) -> None:
        """Drops the received parts of an incomplete message."""
        for part in self._parts:
            part.drop()

    def _read_head(self) -> None:
        if self._count < 0:
            magic, self._count, length = _PREFIX.unpack_from(self._head.whole())
            if magic != _MAGIC or _PREFIX.size + _SIZE.size * self._count + length > self._size:
                raise WireError(f"what has come is no message: it begins with {self._head.whole().to_pybytes()[:8]!r}")
            self._head = MappedFile(_SIZE.size * self._count + length)
            self._areas.append((_SIZE.size * self._count + length, self._head))
        else:
            self._expect_parts(self._head.whole())

    def _expect_parts(self, head: pa.Buffer) -> None:
        at = _PREFIX.size + head.size
        sizes = [size for (size,) in _SIZE.iter_unpack(head.slice(0, _SIZE.size * self._count))]
        if sum(sizes) > self._size:
            raise WireError(f"a message of {self._size} bytes cannot have parts of {sum(sizes)}")
        for size in sizes:
            part = MappedFile(size) if self._shelf is None else self._shelf.filling(size)
            self._parts.append(part)
            self._areas += [area for area in ((aligned(at) - at, None), (size, part)) if area[0]]
            at = aligned(at) + size


def _pieces(batch: pa.RecordBatch) -> list[pa.Buffer]:
    """Returns an Arrow IPC stream of one batch, as the batch's buffers and the bytes between them."""
    sink = _Collector()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.pieces


class _Collector:
    """A file that collects what is written to it, without copying buffers."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[pa.Buffer] = []

    def write(self, data: pa.Buffer | bytes) -> int:
        self.pieces.append(pa.py_buffer(data))
        return len(data)

    def writable(self) -> bool:
        return True

    def flush(self) -> None: ...

    def close(self) -> None: ...
