"""RowCodec: encodes rows of a container as key and value bytes, so that a slot is a range of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.state.columnar.fixed import from_numbers, is_span, null_mask, storage_type, to_numbers, validity, zeroed
from primitives.state.keys import normal_floats

#: Above every key: the byte after the hash is never 255.
_END = b"\xff" * 9


class RowCodec:
    """Key bytes begin with the hash of the columns that decide the slot, high bits first; the key columns follow.

    >>> codec = RowCodec(pa.schema({"id": pa.int64()}), pa.schema({"n": pa.int32()}), slot_keys=1)
    >>> keys = codec.keys([pa.array([7])])
    >>> begin, end = codec.bounds(0, 255, slot_bits=8)
    >>> codec.key_columns(keys)[0].to_pylist(), begin <= keys[0] < end
    ([7], True)
    """

    def __init__(self, keys: pa.Schema, values: pa.Schema, slot_keys: int) -> None:
        self._slot_keys = slot_keys
        self._keys = PackedRows(keys.types, prefix=8)
        self._values = PackedRows(values.types)

    def hashes(self, columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
        """Returns the hashes that decide the slots of keys and the order of rows."""
        return hash_keys(columns[: self._slot_keys])

    def keys(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Returns key columns as bytes; equal keys are equal bytes."""
        columns = [normal_floats(column) if pa.types.is_floating(column.type) else column for column in columns]
        hashes = self.hashes(columns).astype(">u8")
        return self._keys.pack(columns, hashes.view(np.uint8).reshape(-1, 8))

    def key_columns(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """The inverse of `keys`."""
        return self._keys.unpack(keys)

    def values(self, columns: Sequence[pa.Array], rows: int) -> list[bytes]:
        """Returns value columns as bytes."""
        return self._values.pack(columns, np.empty((rows, 0), np.uint8))

    def value_columns(self, values: Sequence[bytes]) -> list[pa.Array]:
        """The inverse of `values`."""
        return self._values.unpack(values)

    @staticmethod
    def bounds(first: int, last: int, slot_bits: int) -> tuple[bytes, bytes]:
        """Returns the lowest key of slots from `first` to `last`, and a bound above all their keys."""
        begin, end = (slot << 64 - slot_bits for slot in (first, last + 1))
        return begin.to_bytes(8, "big") if begin else b"", end.to_bytes(8, "big") if end < 1 << 64 else _END


Bytes = NDArray[np.uint8]

_LENGTH = np.dtype("<u4")


class PackedRows:
    """Packs columns of numbers, bools, times, dates, strings and binaries row by row; equal rows are equal bytes.

    A row has `prefix` given bytes, a bit for each column that is null (after one that is 0, so that this byte is never
    255), the numbers, the lengths of the spans, and the spans.

    >>> packed = PackedRows([pa.int16(), pa.string()])
    >>> rows = packed.pack([pa.array([1, None], pa.int16()), pa.array(["ab", "c"])])
    >>> rows[0], [column.to_pylist() for column in packed.unpack(rows)]
    (b'\\x00\\x01\\x00\\x02\\x00\\x00\\x00ab', [[1, None], ['ab', 'c']])
    """

    def __init__(self, kinds: Sequence[pa.DataType], prefix: int = 0) -> None:
        self._kinds = tuple(kinds)
        self._spans = [at for at, kind in enumerate(kinds) if is_span(kind)]
        self._numbers = {at: _storage(kind) for at, kind in enumerate(kinds) if not is_span(kind)}
        self._prefix = prefix
        self._mask_end = prefix + len(kinds) // 8 + 1
        self._lengths = self._mask_end + sum(kind.itemsize for kind in self._numbers.values())
        self._head = self._lengths + _LENGTH.itemsize * len(self._spans)

    # --- to bytes -----------------------------------------------------------------------------------------------------

    def pack(self, columns: Sequence[pa.Array], prefix: Bytes | None = None) -> list[bytes]:
        """Returns the rows of columns of the declared types; needs at least one column or a prefix."""
        if prefix is None:
            prefix = np.empty((len(columns[0]), 0), np.uint8)
        heads = np.zeros((len(prefix), self._head), np.uint8)
        heads[:, : self._prefix] = prefix
        heads[:, self._prefix : self._mask_end] = self._masks(columns, len(prefix))
        for (at, kind), start in zip(self._numbers.items(), self._starts(), strict=True):
            heads[:, start : start + kind.itemsize] = _as_bytes(_numbers(columns[at]))
        return self._with_spans(heads, [_span(columns[at]) for at in self._spans])

    def _masks(self, columns: Sequence[pa.Array], rows: int) -> Bytes:
        nulls = np.zeros((rows, 1 + len(columns)), np.bool_)
        for at, column in enumerate(columns):
            if column.null_count:
                nulls[:, 1 + at] = null_mask(column)
        return np.packbits(nulls, axis=1)

    def _with_spans(self, heads: Bytes, spans: Sequence[pa.Array]) -> list[bytes]:
        for at, span in enumerate(spans):
            start = self._lengths + at * _LENGTH.itemsize
            lengths = pc.binary_length(span).to_numpy(zero_copy_only=False).astype(_LENGTH)
            heads[:, start : start + _LENGTH.itemsize] = _as_bytes(lengths)
        fixed = heads.reshape(-1).view(f"V{self._head}")
        if not spans:
            return fixed.tolist()
        whole = pa.array(fixed.tolist(), pa.large_binary())
        rows: list[bytes] = pc.binary_join_element_wise(whole, *spans, pa.scalar(b"", pa.large_binary())).to_pylist()
        return rows

    def _starts(self) -> list[int]:
        """Returns the place of each column of numbers in a row."""
        sizes = [kind.itemsize for kind in self._numbers.values()]
        return [self._mask_end + sum(sizes[:at]) for at in range(len(sizes))]

    # --- from bytes ---------------------------------------------------------------------------------------------------

    def unpack(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """Returns the columns of rows."""
        heads, spans = self._cut(np.frombuffer(b"".join(rows), np.uint8), rows)
        nulls = np.unpackbits(heads[:, self._prefix : self._mask_end], axis=1).view(np.bool_)
        columns = dict(zip(self._spans, spans, strict=True))
        for (at, kind), start in zip(self._numbers.items(), self._starts(), strict=True):
            numbers = np.ascontiguousarray(heads[:, start : start + kind.itemsize]).view(kind).reshape(-1)
            columns[at] = from_numbers(self._kinds[at], numbers, validity(nulls[:, 1 + at]))
        return [self._typed(at, columns[at], nulls[:, 1 + at]) for at in range(len(self._kinds))]

    def _cut(self, data: Bytes, rows: Sequence[bytes]) -> tuple[Bytes, list[pa.Array]]:
        """Returns the heads of rows, and their spans column by column."""
        if not self._spans:
            return data.reshape(len(rows), self._head), []
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        starts = np.cumsum(sizes) - sizes
        heads = data[starts[:, None] + np.arange(self._head)]
        lengths = np.ascontiguousarray(heads[:, self._lengths :]).view(_LENGTH).astype(np.int64)
        bounds = np.zeros((len(sizes), 1 + len(self._spans)), np.int64)  # each span ends where the next one begins
        bounds[:, 0] = starts + self._head
        bounds[:, 1:] = bounds[:, :1] + np.cumsum(lengths, axis=1)
        offsets = np.append(np.column_stack([starts, bounds[:, :-1]]).reshape(-1), len(data))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        pieces = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
        width = 1 + len(self._spans)
        return heads, [pieces.take(pa.array(np.arange(at, len(pieces), width))) for at in range(1, width)]

    def _typed(self, at: int, column: pa.Array, nulls: NDArray[np.bool_]) -> pa.Array:
        if at in self._numbers:
            return column
        typed = column.cast(self._kinds[at])
        return pc.if_else(pa.array(nulls), pa.scalar(None, self._kinds[at]), typed) if nulls.any() else typed


def _storage(kind: pa.DataType) -> np.dtype[Any]:
    storage = storage_type(kind)
    assert storage is not None
    return storage


def _numbers(column: pa.Array) -> NDArray[Any]:
    numbers = to_numbers(column)
    return zeroed(numbers, null_mask(column)) if column.null_count else numbers


def _as_bytes(numbers: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)


def _span(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary()).fill_null(b"")
