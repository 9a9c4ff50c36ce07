"""Converts fixed-width Arrow arrays to NumPy arrays of plain numbers, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.hashing import NUMBER_TYPES

#: Rows of a container: their numbers, or a range as a slice with a start and a stop.
Selection = NDArray[np.int64] | slice

#: What Arrow raises for values that do not fit a column.
CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)

#: A decimal of 128 bits in Arrow's layout.
WIDE: np.dtype[Any] = np.dtype([("low", "<u8"), ("high", "<u8")])


def storage_type(kind: pa.DataType) -> np.dtype[Any] | None:
    """The NumPy type of the numbers in arrays of an Arrow type; None if they are neither of up to 64 bits nor decimals.

    >>> storage_type(pa.timestamp("us")), storage_type(pa.string())
    (dtype('int64'), None)
    """
    if pa.types.is_decimal128(kind):
        return WIDE
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return np.dtype(f"i{kind.bit_width // 8}")
    return NUMBER_TYPES.get(kind)


def is_span(kind: pa.DataType) -> bool:
    """Whether values of the type are strings or binaries of any length."""
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def to_numbers(array: pa.Array) -> NDArray[Any]:
    """The values of a fixed-width array, any number for a null; read-only, and without a copy where possible."""
    kind = storage_type(array.type)
    if kind == np.bool_:
        return to_numbers(array.cast(pa.uint8())).view(np.bool_)
    data = array.buffers()[1]
    numbers = np.zeros(len(array), kind) if data is None else np.frombuffer(data, kind)[array.offset :][: len(array)]
    return read_only(numbers)


def as_words(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Decimals as two words each, the lower one first."""
    return numbers.view(np.uint64).reshape(-1, 2)


def zeroed(numbers: NDArray[Any], where: NDArray[np.bool_]) -> NDArray[Any]:
    """Returns a copy of numbers, with zeros in some places."""
    copy = numbers.copy()
    copy[where] = np.zeros((), numbers.dtype)
    return copy


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array, read-only and aligned, as most arrays of Arrow are: Numba compiles for each kind of array."""
    array = array if array.flags.aligned else array.copy()
    array.flags.writeable = False
    return array


def from_numbers(kind: pa.DataType, numbers: NDArray[Any], valid: pa.Buffer | None) -> pa.Array:
    """Returns the array of a type with the given numbers; shares their memory."""
    data = np.packbits(numbers, bitorder="little") if numbers.dtype == np.bool_ else numbers
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(data)])


def null_mask(array: pa.Array) -> NDArray[np.bool_]:
    """Returns which values are null."""
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def validity(nulls: NDArray[np.bool_]) -> pa.Buffer | None:
    """The Arrow bitmap of the values that are not null; None if there is no null."""
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def row_numbers(rows: Selection) -> NDArray[np.int64]:
    """The numbers of rows."""
    return rows if isinstance(rows, np.ndarray) else np.arange(rows.start, rows.stop)
