"""Writes an Arrow column as one string of bytes with Arrow's own buffers, and joins several such strings.

A *layout* defines the bytes. `values` are numbers of a fixed width, one after the other. `bits` are eight to a byte.
`spans` are the ends of values (counted from the start of the first, 4 or 8 bytes each) and then the values. If any
value is null, a bit for each value follows, which is 1 if it is not null. The layout `arrow`, for all other types, is
an Arrow IPC stream of a batch with the one column. All is little-endian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats.avro_file import Piece
from primitives.errors import Damaged

Pieces: TypeAlias = Sequence[memoryview]
Counts: TypeAlias = Sequence[int]


class ColumnLayout(NamedTuple):
    """The way in which columns of some types are written, and joined from pieces with known numbers of rows."""

    name: str
    write: Callable[[pa.Array], list[Piece]]
    read: Callable[[pa.DataType, Pieces, Counts], pa.Array]


def layout_of(kind: pa.DataType) -> ColumnLayout:
    """Returns the layout of a type.

    >>> [layout_of(kind).name for kind in (pa.timestamp("us"), pa.bool_(), pa.string(), pa.list_(pa.int8()))]
    ['values', 'bits', 'spans', 'arrow']
    """
    if pa.types.is_boolean(kind):
        return _BITS
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _VALUES
    return _SPANS if _has_spans(kind) else _ARROW


def write_column(column: pa.Array) -> list[Piece]:
    """Returns the bytes of a column, in parts; those of fixed width and of text are not copied."""
    return layout_of(column.type).write(column) if len(column) else []


def read_column(kind: pa.DataType, pieces: Pieces, counts: Counts) -> pa.Array:
    """Joins pieces that `write_column` wrote, with `counts` rows each; costs one copy of each."""
    pieces, counts = _with_rows(pieces, counts)
    return layout_of(kind).read(kind, pieces, counts) if pieces else pa.array([], kind)


def _with_rows(pieces: Pieces, counts: Counts) -> tuple[Pieces, Counts]:
    if any(len(piece) for piece, count in zip(pieces, counts, strict=True) if not count):
        raise Damaged("a column without rows has bytes")
    return [piece for piece, count in zip(pieces, counts, strict=True) if count], [n for n in counts if n]


# --- common to layouts ------------------------------------------------------------------------------------------------


def _cut(pieces: Pieces, lengths: Sequence[int]) -> tuple[Pieces, Pieces]:
    """Cuts each piece after `lengths` bytes; returns the beginnings and the rests."""
    for piece, length in zip(pieces, lengths, strict=True):
        if not 0 <= length <= len(piece):
            raise Damaged(f"a column has {len(piece)} bytes where {length} belong")
    heads = [piece[:length] for piece, length in zip(pieces, lengths, strict=True)]
    return heads, [piece[length:] for piece, length in zip(pieces, lengths, strict=True)]


def _joined(pieces: Pieces) -> NDArray[np.uint8]:
    """Returns the bytes of all pieces in new memory, which is aligned for any type."""
    return np.concatenate([np.frombuffer(piece, np.uint8) for piece in pieces])


def _packed(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(mask, bitorder="little")


def _unpacked(piece: memoryview, count: int) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(piece, np.uint8), count=count, bitorder="little")


def _bytes_of_bits(counts: Counts) -> list[int]:
    return [(count + 7) // 8 for count in counts]


def _write_validity(column: pa.Array) -> list[Piece]:
    if not column.null_count:
        return []
    return [_packed(column.is_valid().to_numpy(zero_copy_only=False)).data]


def _read_validity(pieces: Pieces, counts: Counts) -> pa.Buffer | None:
    """Returns the bitmap at the end of the pieces; pieces without one have no nulls."""
    if not any(map(len, pieces)):
        return None
    valid = []
    for piece, count, length in zip(pieces, counts, _bytes_of_bits(counts), strict=True):
        if len(piece) not in (0, length):
            raise Damaged(f"a column of {count} rows has {len(piece)} bytes to say which are null")
        valid.append(_unpacked(piece, count) if len(piece) else np.ones(count, np.uint8))
    return pa.py_buffer(_packed(np.concatenate(valid).view(np.bool_)))


# --- values -----------------------------------------------------------------------------------------------------------


def _write_values(column: pa.Array) -> list[Piece]:
    width = column.type.bit_width // 8
    start, end = width * column.offset, width * (column.offset + len(column))
    return [memoryview(column.buffers()[1])[start:end], *_write_validity(column)]


def _read_values(kind: pa.DataType, pieces: Pieces, counts: Counts) -> pa.Array:
    width = kind.bit_width // 8
    values, rest = _cut(pieces, [width * count for count in counts])
    return pa.Array.from_buffers(kind, sum(counts), [_read_validity(rest, counts), pa.py_buffer(_joined(values))])


# --- bits -------------------------------------------------------------------------------------------------------------


def _write_bits(column: pa.Array) -> list[Piece]:
    bits = column.fill_null(False).to_numpy(zero_copy_only=False)
    return [_packed(bits).data, *_write_validity(column)]


def _read_bits(kind: pa.DataType, pieces: Pieces, counts: Counts) -> pa.Array:
    packed, rest = _cut(pieces, _bytes_of_bits(counts))
    bits = np.concatenate(list(map(_unpacked, packed, counts)))
    values = pa.py_buffer(_packed(bits.view(np.bool_)))
    return pa.Array.from_buffers(kind, len(bits), [_read_validity(rest, counts), values])


# --- spans ------------------------------------------------------------------------------------------------------------


def _has_spans(kind: pa.DataType) -> bool:
    return _stored(kind) in _OFFSETS


def _stored(kind: pa.DataType) -> pa.DataType:
    """Returns the type whose buffers are stored; not a view type, whose buffers all parts of a batch share."""
    return _OF_VIEWS.get(kind, kind)


_OFFSETS: dict[pa.DataType, type[np.signedinteger[Any]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
_OF_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def _write_spans(column: pa.Array) -> list[Piece]:
    column = column.cast(_stored(column.type))
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, _OFFSETS[column.type])[column.offset :][: len(column) + 1]
    first, last = bounds[[0, -1]].tolist()
    ends = bounds[1:] - bounds[0] if first else bounds[1:]
    return [ends.data.cast("B"), memoryview(data or b"")[first:last], *_write_validity(column)]


def _read_spans(kind: pa.DataType, pieces: Pieces, counts: Counts) -> pa.Array:
    stored = _stored(kind)
    width = np.dtype(_OFFSETS[stored]).itemsize
    ends, rest = _cut(pieces, [width * count for count in counts])
    offsets, sizes = _offsets(_joined(ends).view(_OFFSETS[stored]), counts)
    values, rest = _cut(rest, sizes)
    buffers = [_read_validity(rest, counts), pa.py_buffer(offsets), pa.py_buffer(_joined(values))]
    return pa.Array.from_buffers(stored, sum(counts), buffers).cast(kind)


def _offsets(ends: NDArray[Any], counts: Counts) -> tuple[NDArray[Any], list[int]]:
    """Returns Arrow's offsets of all values, and the bytes of each piece, given the ends of values in each piece."""
    sizes = ends[np.cumsum(counts) - 1].tolist()
    befores = np.cumsum([0, *sizes])
    if befores[-1] > np.iinfo(ends.dtype).max:
        raise Damaged(f"a column has {befores[-1]} bytes of text, more than its type allows; read fewer slots at once")
    offsets = np.zeros(len(ends) + 1, ends.dtype)
    np.add(ends, np.repeat(befores[:-1].astype(ends.dtype), counts), out=offsets[1:])
    if (offsets[1:] < offsets[:-1]).any():
        raise Damaged("a column has values that end before they begin")
    return offsets, sizes


# --- arrow ------------------------------------------------------------------------------------------------------------


def _write_arrow(column: pa.Array) -> list[Piece]:
    batch = pa.record_batch([_with_own_dictionary(column)], names=["column"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return [memoryview(sink.getvalue())]


def _with_own_dictionary(column: pa.Array) -> pa.Array:
    """Returns the column with a dictionary of its own values, which may be fewer than those of the batch."""
    if not pa.types.is_dictionary(column.type):
        return column
    return column.dictionary_decode().dictionary_encode().cast(column.type)


def _read_arrow(kind: pa.DataType, pieces: Pieces, counts: Counts) -> pa.Array:
    try:
        return pa.concat_arrays(list(map(_read_stream, repeat(kind), pieces, counts)))
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as reason:
        raise Damaged(f"a column of type {kind} cannot be read: {reason}") from reason


def _read_stream(kind: pa.DataType, piece: memoryview, count: int) -> pa.Array:
    with pa.ipc.open_stream(pa.py_buffer(bytes(piece))) as stream:  # copied, to align it
        (batch,) = stream
    if len(batch) != count or batch.schema.types != [kind]:
        raise Damaged(f"a column holds {len(batch)} rows of {batch.schema.types} instead of {count} of {kind}")
    column = batch.column(0)
    column.validate(full=True)  # validated, because Arrow's behaviour on damaged bytes is undefined
    return column


_VALUES = ColumnLayout("values", _write_values, _read_values)
_BITS = ColumnLayout("bits", _write_bits, _read_bits)
_SPANS = ColumnLayout("spans", _write_spans, _read_spans)
_ARROW = ColumnLayout("arrow", _write_arrow, _read_arrow)
