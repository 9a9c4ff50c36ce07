"""One stable 64-bit hash for keys, the same for a column as for a single value, on every platform and in every process.

The rules never change, since slots in storage depend on them:

- Keys that Python holds equal hash alike: integers by value whatever their width, bools as 0 and 1, and floats that are
  whole numbers of 64 bits as that integer, so -0.0 as 0. Other floats hash by their float64 bits, all NaNs alike.
- A decimal that is a whole number of 64 bits hashes as that integer. Others hash by their value: the number without its
  point and without zeros at its end, in 128 bits, and how many digits are after the point. So 1.5 hashes as
  1.50, though not as the float.
- Text hashes as its UTF-8 bytes, and like binary of the same bytes, whatever the Arrow layout or dictionary.
- A timestamp hashes as its instant, whatever its unit and zone (none means UTC); a date as its midnight in UTC.
- A null hashes to NULL_HASH, so null keys have slot 0. NaN is not a null.
- Several columns hash each by itself and then in order, so that neither columns nor characters can change places.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.kernels import kernel

Column: TypeAlias = "pa.Array | pa.ChunkedArray | NDArray[Any]"
Hashes: TypeAlias = NDArray[np.uint64]

#: The hash of a null.
NULL_HASH = 0

_WORD = 2**64 - 1
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_ODD = 0x9E3779B97F4A7C15

# Each type of value is hashed from its own initial state; the states are digits of pi.
_NUMBER = 0x243F6A8885A308D3
_FRACTION = 0x13198A2E03707344
_BYTES = 0xA4093822299F31D0
_INSTANT = 0x082EFA98EC4E6C89
_COMPOSITE = 0x452821E638D01377
_DECIMAL = 0xBE5466CF34E90C6C

_NAN_BITS = 0x7FF8000000000000
_EIGHT = np.uint64(8)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS_PER_DAY = 86_400 * 10**9
_NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def absorb(state: int, word: int) -> int:
    """The step of which every hash is made: mixes a 64-bit word into a state; each bit changes about half of the bits.

    The mixer is that of SplitMix64 (David Stafford's variant 13). Numba compiles this very function for the columns.
    """
    mixed = state ^ word
    mixed = (mixed ^ (mixed >> 30)) * _MIX_1 & _WORD
    mixed = (mixed ^ (mixed >> 27)) * _MIX_2 & _WORD
    return mixed ^ (mixed >> 31)


# --- one key, as Python values ---


def hash_key(*values: object) -> int:
    """The hash of one key given as Python values, one per key column; equals `hash_keys` on that row.

    >>> hash_key(7) == hash_key(7.0) == int(hash_keys([pa.array([7], pa.int8())])[0])
    True
    >>> hash_key("ab", "c") == hash_key("a", "bc")
    False
    """
    if len(values) == 1:
        return _hash_value(values[0])
    _check_any(values)
    state = _COMPOSITE
    for value in values:
        state = absorb(state, _hash_value(value))
    return state


@singledispatch
def _hash_value(value: object) -> int:
    raise UserError(
        f"{value!r} of type {type(value).__name__} cannot be a key; use a number, Decimal, bool, string, bytes, "
        "datetime or date"
    )


@_hash_value.register
def _(_: None) -> int:
    return NULL_HASH


@_hash_value.register
def _(value: int) -> int:
    if not -(2**63) <= value < 2**64:
        raise UserError(f"integer {value} does not fit into 64 bits and cannot be a key; make it a string")
    return absorb(_NUMBER, value & _WORD)


@_hash_value.register
def _(value: float) -> int:
    if value.is_integer() and -(2.0**63) <= value < 2.0**64:
        return absorb(_NUMBER, int(value) & _WORD)
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0] if value == value else _NAN_BITS
    return absorb(_FRACTION, bits)


@_hash_value.register
def _(value: Decimal) -> int:
    if not value.is_finite():
        raise UserError(f"{value!r} cannot be a key; use a finite number, or null")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = (-1 if sign else 1) * int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    scale = max(-exponent, 0)
    while scale and number % 10 == 0:
        number, scale = number // 10, scale - 1
    if not scale and -(2**63) <= number < 2**64:
        return absorb(_NUMBER, number & _WORD)
    if not -(2**127) <= number < 2**127:
        raise UserError(f"{value!r} does not fit into 128 bits and cannot be a key; make it a string")
    return absorb(absorb(absorb(_DECIMAL, number & _WORD), number >> 64 & _WORD), scale)


@_hash_value.register
def _(value: str) -> int:
    return _hash_bytes_value(value.encode())


@_hash_value.register(bytes)
def _hash_bytes_value(value: bytes) -> int:
    state = (_BYTES + len(value) * _ODD) & _WORD
    for at in range(0, len(value), 8):
        state = absorb(state, int.from_bytes(value[at : at + 8], "little"))
    return state


@_hash_value.register
def _(value: datetime) -> int:
    since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    nanosecond: int = getattr(value, "nanosecond", 0)  # of a pandas timestamp, as Arrow makes them
    return absorb(_INSTANT, (since // timedelta(microseconds=1) * 1000 + nanosecond) & _WORD)


@_hash_value.register
def _(value: date) -> int:
    return absorb(_INSTANT, (value.toordinal() - _EPOCH.toordinal()) * _NS_PER_DAY & _WORD)


@_hash_value.register
def _(value: np.generic) -> int:
    return int(hash_keys([np.array([value])])[0])


# --- columns of keys ---


def hash_keys(columns: Sequence[Column]) -> Hashes:
    """The hash of each row of one or more key columns of equal length.

    >>> hash_keys([pa.array(["a", None])]).tolist() == [hash_key("a"), NULL_HASH]
    True
    """
    _check_any(columns)
    if len({len(column) for column in columns}) > 1:
        raise UserError(f"key columns differ in length: they have {[len(column) for column in columns]} rows")
    states = _hash_column(columns[0], 0)
    if len(columns) > 1:
        _absorb_into(np.uint64(_COMPOSITE), states)
    for position, column in enumerate(columns[1:], 1):
        _absorb_each(states, _hash_column(column, position))
    return states


def _check_any(key: Sequence[object]) -> None:
    if not key:
        raise UserError("a key needs at least one column")


def _hash_column(column: Column, position: int) -> Hashes:
    if isinstance(column, np.ndarray):
        column = _to_arrow(column, position)
    hash_array = _hasher(column.type, position)
    hashes = np.empty(len(column), np.uint64)
    done = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        part = hashes[done : done + len(chunk)]
        if len(chunk) > chunk.null_count:
            hash_array(chunk, part)
        if chunk.null_count:
            part[chunk.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
        done += len(chunk)
    return hashes


def _to_arrow(column: NDArray[Any], position: int) -> pa.Array:
    try:
        return pa.array(column.astype(column.dtype.newbyteorder("="), copy=False))
    except (pa.ArrowException, TypeError) as reason:
        raise UserError(f"key column {position} is not a column of one type that can be hashed: {reason}") from reason


def _hasher(kind: pa.DataType, position: int) -> Callable[[pa.Array, Hashes], None]:
    """The function that writes the hashes of an array of this type; it may write anything for nulls."""
    for is_kind, hasher in _HASHERS:
        if is_kind(kind):
            return hasher
    raise UserError(
        f"key column {position} has type {kind}, which cannot be hashed; "
        "cast it to integer, float, decimal128 of scale 0 or more, bool, string, binary, timestamp or date"
    )


def _hash_integers(array: pa.Array, hashes: Hashes) -> None:
    _hash_words(np.uint64(_NUMBER), _numbers(array), np.uint64(1), hashes)


def _hash_bools(array: pa.Array, hashes: Hashes) -> None:
    _hash_integers(array.cast(pa.uint8()), hashes)


def _hash_floats(array: pa.Array, hashes: Hashes) -> None:
    values = _numbers(array).astype(np.float64, copy=False)
    _hash_doubles(values, values.view(np.uint64), hashes)


def _hash_decimals(array: pa.Array, hashes: Hashes) -> None:
    words = _view(array.buffers()[1], np.uint64, 2 * (array.offset + len(array)))[2 * array.offset :]
    _hash_wide(words, array.type.scale, hashes)


def _hash_timestamps(array: pa.Array, hashes: Hashes) -> None:
    ns = np.uint64(_NS_PER_UNIT[array.type.unit])  # products wrap at 2^64 in every unit alike
    _hash_words(np.uint64(_INSTANT), _numbers(array.view(pa.int64())), ns, hashes)


def _hash_days(array: pa.Array, hashes: Hashes) -> None:
    _hash_words(np.uint64(_INSTANT), _numbers(array.view(pa.int32())), np.uint64(_NS_PER_DAY), hashes)


def _hash_milliseconds(array: pa.Array, hashes: Hashes) -> None:
    _hash_timestamps(array.view(pa.timestamp("ms")), hashes)


def _hash_short_offsets(array: pa.Array, hashes: Hashes) -> None:
    _hash_spans(*_offsets_and_bytes(array, np.int32), hashes)


def _hash_long_offsets(array: pa.Array, hashes: Hashes) -> None:
    _hash_spans(*_offsets_and_bytes(array, np.int64), hashes)


def _hash_other_layout(array: pa.Array, hashes: Hashes) -> None:
    _hash_long_offsets(array.cast(pa.large_binary()), hashes)


def _hash_dictionary(array: pa.Array, hashes: Hashes) -> None:
    of_entries = _hash_column(array.dictionary, 0)
    hashes[:] = of_entries[array.indices.fill_null(0).to_numpy()]


def _is_plain_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind) and kind.scale >= 0)


def _hash_nothing(_array: pa.Array, _hashes: Hashes) -> None:
    """Does nothing, for columns of type null, which hold only nulls."""


_HASHERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Hashes], None]], ...] = (
    (pa.types.is_integer, _hash_integers),
    (pa.types.is_string, _hash_short_offsets),
    (pa.types.is_timestamp, _hash_timestamps),
    (pa.types.is_floating, _hash_floats),
    (pa.types.is_boolean, _hash_bools),
    (pa.types.is_dictionary, _hash_dictionary),
    (pa.types.is_binary, _hash_short_offsets),
    (pa.types.is_large_string, _hash_long_offsets),
    (pa.types.is_large_binary, _hash_long_offsets),
    (pa.types.is_string_view, _hash_other_layout),
    (pa.types.is_binary_view, _hash_other_layout),
    (pa.types.is_fixed_size_binary, _hash_other_layout),
    (pa.types.is_date32, _hash_days),
    (pa.types.is_date64, _hash_milliseconds),
    (_is_plain_decimal, _hash_decimals),
    (pa.types.is_null, _hash_nothing),
)


#: Arrow's types of numbers -> NumPy's; what Arrow says of them itself takes pandas to import, before pyarrow 26.
NUMBER_TYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.from_numpy_dtype(code): np.dtype(code)
    for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Returns the numbers in a fixed-width array, without a copy; any number for a null."""
    return _view(array.buffers()[1], NUMBER_TYPES[array.type], array.offset + len(array))[array.offset :]


def _offsets_and_bytes(array: pa.Array, dtype: type[np.signedinteger[Any]]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Returns the start of each row in the bytes, with the end of the last; and the bytes, without a copy."""
    _, offsets, data = array.buffers()
    starts = _view(offsets, dtype, array.offset + len(array) + 1)[array.offset :]
    return starts, _view(data or b"", np.uint8)


def _view(buffer: pa.Buffer | bytes, dtype: Any, count: int = -1) -> NDArray[Any]:
    """A buffer as a read-only array, even if it could be written, so that Numba compiles for one kind of array."""
    array = np.frombuffer(buffer, dtype, count)
    array.flags.writeable = False
    return array


_absorb = njit(absorb)


@kernel
def _hash_words(state: np.uint64, numbers: NDArray[Any], factor: np.uint64, hashes: Hashes) -> None:
    for row in range(len(hashes)):
        hashes[row] = _absorb(state, np.uint64(numbers[row]) * factor)


@kernel
def _absorb_into(state: np.uint64, words: Hashes) -> None:
    for row in range(len(words)):
        words[row] = _absorb(state, words[row])


@kernel
def _absorb_each(states: Hashes, words: Hashes) -> None:
    for row in range(len(states)):
        states[row] = _absorb(states[row], words[row])


@kernel
def _hash_doubles(values: NDArray[np.float64], bits: Hashes, hashes: Hashes) -> None:
    for row in range(len(hashes)):
        value = values[row]
        signed = -(2.0**63) <= value < 2.0**63  # processors differ in the conversion of floats out of range
        whole = np.int64(value) if signed else np.int64(0)
        if signed and np.float64(whole) == value:
            hashes[row] = _absorb(np.uint64(_NUMBER), np.uint64(whole))
        elif 2.0**63 <= value < 2.0**64:
            hashes[row] = _absorb(np.uint64(_NUMBER), np.uint64(value))
        else:
            hashes[row] = _absorb(np.uint64(_FRACTION), bits[row] if value == value else np.uint64(_NAN_BITS))


@kernel
def _hash_wide(words: NDArray[np.uint64], scale: int, hashes: Hashes) -> None:
    """Hashes 128-bit numbers, given as two words, the lower one first."""
    for row in range(len(hashes)):
        low, high, digits = words[2 * row], words[2 * row + 1], scale
        negative = high >> np.uint64(63) != 0
        if negative:
            low, high = _negated(low, high)
        while digits > 0:
            quotient_low, quotient_high, rest = _by_ten(low, high)
            if rest:
                break
            low, high, digits = quotient_low, quotient_high, digits - 1
        fits = digits == 0 and high == 0 and (not negative or low <= np.uint64(1 << 63))
        if negative:
            low, high = _negated(low, high)
        if fits:
            hashes[row] = _absorb(np.uint64(_NUMBER), low)
        else:
            state = _absorb(_absorb(np.uint64(_DECIMAL), low), high)
            hashes[row] = _absorb(state, np.uint64(digits))


@kernel
def _negated(low: np.uint64, high: np.uint64) -> tuple[np.uint64, np.uint64]:
    flipped = ~low + np.uint64(1)
    return flipped, ~high + (np.uint64(1) if flipped == 0 else np.uint64(0))


@kernel
def _by_ten(low: np.uint64, high: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Divides an unsigned 128-bit number by ten; returns quotient and remainder."""
    ten, half, mask = np.uint64(10), np.uint64(32), np.uint64(0xFFFFFFFF)
    upper, rest = high // ten, high % ten
    middle = rest << half | low >> half
    lower = middle % ten << half | low & mask
    return middle // ten << half | lower // ten, upper, lower % ten


@kernel
def _hash_spans(starts: NDArray[Any], data: NDArray[np.uint8], hashes: Hashes) -> None:
    for row in range(len(hashes)):
        at, end = np.uint64(starts[row]), np.uint64(starts[row + 1])
        state = np.uint64(_BYTES) + (end - at) * np.uint64(_ODD)
        while at < end:
            state = _absorb(state, _word(data, at, end))
            at += _EIGHT
        hashes[row] = state


@kernel
def _word(data: NDArray[np.uint8], at: np.uint64, end: np.uint64) -> np.uint64:
    """The next 8 bytes as a little-endian word, with zeros for those from `end` on."""
    word = np.uint64(0)
    if at + _EIGHT > len(data):
        for byte in range(end - at):
            word |= np.uint64(data[at + np.uint64(byte)]) << np.uint64(8 * byte)
        return word
    for byte in range(8):  # compiled to a single load, hence worth a branch
        word |= np.uint64(data[at + np.uint64(byte)]) << np.uint64(8 * byte)
    beyond = at + _EIGHT - end if at + _EIGHT > end else np.uint64(0)
    return word & (np.uint64(_WORD) >> _EIGHT * beyond)
