"""RowCodec: rows of a container as key and value bytes, such that a slot is a range of keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.state.keys import normal_floats
from primitives.state.on_disk.packed import PackedRows

#: Above every key: after the hash comes a byte that is never 255.
_END = b"\xff" * 9


class RowCodec:
    """Key bytes begin with the hash of the columns that decide the slot, the highest bits first; then come all keys.

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
        """What decides the slots of keys, and the order of rows."""
        return hash_keys(columns[: self._slot_keys])

    def keys(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Key columns as bytes; equal keys are equal bytes."""
        columns = [normal_floats(column) if pa.types.is_floating(column.type) else column for column in columns]
        hashes = self.hashes(columns).astype(">u8")
        return self._keys.pack(columns, hashes.view(np.uint8).reshape(-1, 8))

    def key_columns(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """The inverse of `keys`."""
        return self._keys.unpack(keys)

    def values(self, columns: Sequence[pa.Array], rows: int) -> list[bytes]:
        """Value columns as bytes."""
        return self._values.pack(columns, np.empty((rows, 0), np.uint8))

    def value_columns(self, values: Sequence[bytes]) -> list[pa.Array]:
        """The inverse of `values`."""
        return self._values.unpack(values)

    @staticmethod
    def bounds(first: int, last: int, slot_bits: int) -> tuple[bytes, bytes]:
        """Where the keys of slots from `first` to `last` begin, and what is after them all."""
        begin, end = (slot << 64 - slot_bits for slot in (first, last + 1))
        return begin.to_bytes(8, "big") if begin else b"", end.to_bytes(8, "big") if end < 1 << 64 else _END
