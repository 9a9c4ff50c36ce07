"""Spans: strings and binaries as two words each; those longer than 12 bytes have their bytes in a separate heap.

The first word holds the length (low 32 bits) and the first 4 bytes. The second word holds the next 8 bytes, or the
place of a long span in the heap. So equal short spans are equal words, and most others differ in the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.kernels import kernel
from primitives.state.columnar.fixed import read_only
from primitives.state.columnar.intrinsics import pointer
from primitives.state.columnar.memory import Region

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Integer: TypeAlias = "int | np.integer[Any]"  # in compiled code, always 64 bits

USED, GARBAGE = 0, 1

_INLINE = 12
_LENGTH = np.uint64(0xFFFFFFFF)
_UPPER = np.uint64(32)


class Spans(NamedTuple):
    """A column of spans: two adjacent words in each row of a table."""

    words: Words
    width: int  #: words in a row of the table
    head: int  #: index of the span's first word


class Heap:
    """The bytes of long spans, one after the other; bytes of removed spans are garbage until the heap is rewritten."""

    __slots__ = ("counts", "region")

    def __init__(self) -> None:
        self.region: Region[np.uint8] = Region(np.uint8)
        self.counts = np.zeros(2, np.int64)  #: number of bytes USED, and of GARBAGE among them

    def reserve(self, more: int) -> None:
        """Makes room for this many more bytes."""
        self.region.reserve(int(self.counts[USED]) + more)

    @property
    def wasteful(self) -> bool:
        """Whether more than half of it is garbage, so that it should be rewritten."""
        return bool(self.counts[GARBAGE] > max(self.counts[USED] // 2, 1 << 16))

    def rewrite(self, columns: Sequence[Spans], rows: Ints) -> None:
        """Copies the used bytes only; `columns` and `rows` are those of all spans that exist."""
        old = self.region.array
        self.region, self.counts = Region(np.uint8), np.array([0, 0])
        self.reserve(len(old))  # memory is used only when it is written
        for column in columns:
            _move(column, rows, old, self.region.array, self.counts)


def starts_and_bytes(array: pa.Array) -> tuple[Ints, Bytes]:
    """Returns the start of each value of a string or binary array, with the end of the last; and the bytes between."""
    array = array.cast(pa.large_binary())
    if not len(array):
        return read_only(np.zeros(1, np.int64)), read_only(np.empty(0, np.uint8))
    _, buffer, data = array.buffers()
    starts = np.frombuffer(buffer, np.int64)[array.offset :][: len(array) + 1]
    return read_only(starts), read_only(np.frombuffer(data or b"", np.uint8)[starts[0] : starts[-1]])


def spans_to_arrow(kind: pa.DataType, column: Spans, rows: Ints, heap: Heap, valid: pa.Buffer | None) -> pa.Array:
    """Returns the spans of rows as an array of a string or binary type."""
    starts = np.empty(len(rows) + 1, np.int64)
    _measure(column, rows, starts)
    data = np.empty(starts[-1], np.uint8)
    _copy(column, rows, heap.region.array, starts, data)
    if kind in (pa.string(), pa.binary()):
        if starts[-1] >= 2**31:
            raise UserError(f"{starts[-1]} bytes are too many for one array of type {kind}; declare large_{kind}")
        starts = starts.astype(np.int32)
    return pa.Array.from_buffers(kind, len(rows), [valid, pa.py_buffer(starts), pa.py_buffer(data)])


# --- compiled ---------------------------------------------------------------------------------------------------------


@kernel
def encode(starts: Ints, data: Bytes, shift: int, column: Spans) -> None:
    """Writes the values of `starts_and_bytes` as spans, long ones with their place in `data` plus `shift`."""
    words, there = pointer(column.words), pointer(data)
    for row in range(len(starts) - 1):
        start, length = starts[row] - starts[0], starts[row + 1] - starts[row]
        at = row * column.width + column.head
        words[at] = np.uint64(length) | _pack(there, start, min(length, 4)) << _UPPER
        is_long = length > _INLINE
        words[at + 1] = np.uint64(start + shift) if is_long else _pack(there, start + 4, max(length - 4, 0))


@kernel
def store(column: Spans, rows: Ints, values: Words, data: Bytes, heap: Bytes, counts: Ints) -> None:
    """Overwrites the spans of rows with those of a batch, in order."""
    words, source, bytes_in, bytes_out = pointer(column.words), pointer(values), pointer(data), pointer(heap)
    for row in range(len(rows)):
        at = rows[row] * column.width + column.head
        counts[GARBAGE] += _long_length(words, at)
        copy_span(words, at, source, 2 * row, bytes_in, bytes_out, counts)


@kernel
def release(column: Spans, rows: Ints, counts: Ints) -> None:
    """Counts the bytes of spans that are about to be overwritten as garbage."""
    words = pointer(column.words)
    for row in rows:
        counts[GARBAGE] += _long_length(words, row * column.width + column.head)


@kernel
def _measure(column: Spans, rows: Ints, starts: Ints) -> None:
    words = pointer(column.words)
    starts[0] = 0
    for at in range(len(rows)):
        starts[at + 1] = starts[at] + np.int64(words[rows[at] * column.width + column.head] & _LENGTH)


@kernel
def _copy(column: Spans, rows: Ints, heap: Bytes, starts: Ints, data: Bytes) -> None:
    words, source, target = pointer(column.words), pointer(heap), pointer(data)
    for row in range(len(rows)):
        at = rows[row] * column.width + column.head
        start, end = starts[row], starts[row + 1]
        if end - start > _INLINE:
            _copy_bytes(source, np.int64(words[at + 1]), target, start, end - start)
        else:
            _unpack(words[at] >> _UPPER, target, start, min(start + 4, end))
            _unpack(words[at + 1], target, start + 4, end)


@kernel
def _move(column: Spans, rows: Ints, old: Bytes, new: Bytes, counts: Ints) -> None:
    words, source, target = pointer(column.words), pointer(old), pointer(new)
    for row in rows:
        at = row * column.width + column.head
        length = _long_length(words, at)
        if length:
            _copy_bytes(source, np.int64(words[at + 1]), target, counts[USED], length)
            words[at + 1] = counts[USED]
            counts[USED] += length


# The functions below expect pointers in place of arrays.


@kernel
def copy_span(
    words: Words, at: Integer, values: Words, source: Integer, data: Bytes, heap: Bytes, counts: Ints
) -> None:
    """Copies one span from a batch, its bytes from `data` to the end of `heap` if it is long."""
    words[at] = values[source]
    words[at + 1] = values[source + 1]
    length = _long_length(values, source)
    if length:
        _copy_bytes(data, np.int64(values[source + 1]), heap, counts[USED], length)
        words[at + 1] = counts[USED]
        counts[USED] += length


@kernel
def same_span(words: Words, at: Integer, heap: Bytes, others: Words, other: Integer, data: Bytes) -> bool:
    """Whether a span of the state, at `at`, equals one of a batch, at `other`."""
    if words[at] != others[other]:
        return False
    length = _long_length(words, at)
    if not length:
        return bool(words[at + 1] == others[other + 1])
    mine, its, same = np.int64(words[at + 1]), np.int64(others[other + 1]), 0
    while same < length and heap[mine + same] == data[its + same]:
        same += 1
    return bool(same == length)


@kernel
def _long_length(words: Words, at: Integer) -> Integer:
    """Returns the number of the span's bytes in the heap."""
    length = np.int64(words[at] & _LENGTH)
    return length if length > _INLINE else 0


@kernel
def _pack(data: Bytes, start: Integer, length: Integer) -> np.uint64:
    word = np.uint64(0)
    for byte in range(length):
        word |= np.uint64(data[start + byte]) << np.uint64(8 * byte)
    return word


@kernel
def _unpack(word: np.uint64, data: Bytes, start: Integer, end: Integer) -> None:
    for at in range(start, end):
        data[at] = np.uint8(word >> np.uint64(8 * (at - start)))


@kernel
def _copy_bytes(source: Bytes, start: Integer, target: Bytes, at: Integer, length: Integer) -> None:
    for byte in range(length):
        target[at + byte] = source[start + byte]
