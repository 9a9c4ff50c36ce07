"""KeyColumns: the key columns that a container declares, and its keys as Python values and as Arrow columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.hashing import hash_key, hash_keys
from primitives.slots import check_slot_bits, slot_of
from primitives.state.columnar.fixed import CONVERSION_ERRORS
from primitives.state.owned_keys import OwnedKeys

Key = Hashable  # a value if there is one key column, otherwise a tuple of one value per column
Column = Any  # a user's column: an Arrow array, a NumPy array or a sequence of Python values

_KEY_TYPES = {
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
}

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}

#: Python values of these exact types are always normal; so are ints in the range of an integer type.
_PLAIN: dict[pa.DataType, type] = {
    pa.string(): str,
    pa.large_string(): str,
    pa.binary(): bytes,
    pa.large_binary(): bytes,
    pa.bool_(): bool,
}


class KeyColumns:
    """Names and types of key columns; converts keys to their normal form, in which equal keys are identical.

    A key is *normal* if its values are those that the declared columns return: an int for any integer, a number rounded
    to float32 if that is the type, one NaN, no -0.0. Null is a key like any other.

    >>> keys = KeyColumns("counts", 8, {"word": pa.string(), "score": pa.float64()}, reserved=["value"])
    >>> keys.normal(("a", -0.0))
    ('a', 0.0)
    """

    def __init__(
        self, container: str, slot_bits: int, types: Mapping[str, pa.DataType], reserved: Collection[str]
    ) -> None:
        if not types:
            raise UserError(f"state '{container}' needs at least one key column, for example keys={{'id': pa.int64()}}")
        for name, kind in types.items():
            _check_column(container, name, kind, reserved)
        self.names = tuple(types)
        self.fields = tuple(pa.field(name, kind) for name, kind in types.items())
        self._container = container
        self._slot_bits = check_slot_bits(slot_bits)
        self._plain = tuple(_PLAIN.get(kind) for kind in types.values())
        self._ranges = tuple(map(_range_of, types.values()))

    # --- one key ------------------------------------------------------------------------------------------------------

    def normal(self, key: Any) -> Key:
        """Returns the normal form of a user's key."""
        if len(self.fields) == 1:
            return self._normal_value(0, key)
        if not isinstance(key, tuple) or len(key) != len(self.fields):
            raise UserError(f"a key of state '{self._container}' is a tuple of {', '.join(self.names)}; got {key!r}")
        return tuple(self._normal_value(at, value) for at, value in enumerate(key))

    def _normal_value(self, at: int, value: Any) -> Hashable:
        if value is None or type(value) is self._plain[at] or (type(value) is int and value in self._ranges[at]):
            return self._checked_unicode(at, value) if type(value) is str else value
        kind = self.fields[at].type
        try:
            exact = index(value) if pa.types.is_integer(kind) else value  # as Arrow would cut off a fraction
            plain: Hashable = pa.scalar(exact, kind).as_py()
        except CONVERSION_ERRORS as reason:
            raise self._wrong(at, f"{value!r} of type {type(value).__name__} is not a {kind}") from reason
        return _normal_float(plain) if isinstance(plain, float) else plain

    def _wrong(self, at: int, problem: str) -> UserError:
        return UserError(f"key column '{self.names[at]}' of state '{self._container}': {problem}")

    def _checked_unicode(self, at: int, value: str) -> str:
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as reason:
                raise self._wrong(at, f"{value!r} is not valid Unicode: {reason}") from reason
        return value

    def slot(self, key: Key) -> int:
        """The slot of a normal key."""
        return slot_of(self.hash(key), self._slot_bits)

    def hash(self, key: Key) -> int:
        """The hash of a normal key."""
        return hash_key(*self._values(key))

    def sort_key(self, key: Key) -> tuple[tuple[int, Any], ...]:
        """A sort key that orders normal keys as Arrow does: by value, then NaN, then null."""
        return tuple((_rank(value), value if _rank(value) == 0 else 0) for value in self._values(key))

    def _values(self, key: Any) -> tuple[Any, ...]:
        return (key,) if len(self.fields) == 1 else key

    # --- columns ------------------------------------------------------------------------------------------------------

    def to_columns(self, keys: Sequence[Any]) -> list[pa.Array]:
        """Returns one column per key column, from normal keys."""
        if len(self.fields) == 1:
            return [pa.array(keys, self.fields[0].type)]
        return [pa.array([key[at] for key in keys], field.type) for at, field in enumerate(self.fields)]

    def from_columns(self, columns: Sequence[pa.Array]) -> list[Key]:
        """The normal keys in normal columns."""
        values = [_python_values(column) for column in columns]
        return values[0] if len(values) == 1 else list(zip(*values, strict=True))

    def normal_columns(self, columns: Sequence[Column], rows: int) -> list[pa.Array]:
        """Returns the normal form of a user's key columns with `rows` rows, in the declared order."""
        if len(columns) != len(self.fields):
            raise UserError(
                f"state '{self._container}' has key columns {', '.join(self.names)}; got {len(columns)} columns"
            )
        return [self._normal_column(at, column, rows) for at, column in enumerate(columns)]

    def check_owned(self, owned: OwnedKeys | None, columns: Sequence[pa.Array]) -> None:
        """Raises an error if keys, given as normal columns, may not be written now."""
        if owned is not None:
            owned.check(self._container, hash_keys(columns), lambda at: self._key_at(columns, at))

    def _key_at(self, columns: Sequence[pa.Array], row: int) -> Key:
        return self.from_columns([column.slice(row, 1) for column in columns])[0]

    def _normal_column(self, at: int, column: Column, rows: int) -> pa.Array:
        kind = self.fields[at].type
        try:
            array = to_array(column, kind)
        except CONVERSION_ERRORS as reason:
            raise self._wrong(at, f"the column is not of type {kind}: {reason}") from reason
        if len(array) != rows:
            raise self._wrong(at, f"{len(array)} rows, but there are {rows} times")
        return normal_floats(array) if pa.types.is_floating(kind) else array


def to_array(column: Column, kind: pa.DataType) -> pa.Array:
    """Converts a user's column to an Arrow array of a type, which shares no memory that the user could write to."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        return column.cast(kind)
    if isinstance(column, np.ndarray):
        return pa.array(column.copy()).cast(kind)
    if pa.types.is_integer(kind):  # Arrow would cut off fractions
        column = [value if value is None else index(value) for value in column]
    return pa.array(column, kind)


def same_rows(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """A mask of the rows in which all columns, normal ones, are the same; null is the same as null."""
    same = np.ones(len(left[0]), np.bool_)
    for mine, other in zip(left, right, strict=True):
        a, b = _comparable(mine), _comparable(other)
        equal = pc.or_(pc.equal(a, b).fill_null(False), pc.and_(a.is_null(), b.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _comparable(column: pa.Array) -> pa.Array:
    """Converts floats to their bits, so that NaN equals NaN."""
    return column.view(_BITS[column.type]) if column.type in _BITS else column


def _check_column(container: str, name: str, kind: pa.DataType, reserved: Collection[str]) -> None:
    if name in reserved:
        raise UserError(f"key column '{name}' of state '{container}': this name is taken by the container; rename it")
    others = pa.types.is_fixed_size_binary(kind) or pa.types.is_timestamp(kind) or _is_decimal(kind)
    if not (kind in _KEY_TYPES or others):
        raise UserError(
            f"key column '{name}' of state '{container}' has type {kind}; declare an integer, float32, float64, "
            "decimal128 of scale 0 or more, bool, string, binary, date or timestamp"
        )
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        raise UserError(
            f"key column '{name}' of state '{container}' has type {kind}, finer than Python's datetime; "
            "declare timestamp('us'), or int64"
        )


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind) and kind.scale >= 0)


def _range_of(kind: pa.DataType) -> range:
    """The values of an integer type; empty for others."""
    if not pa.types.is_integer(kind):
        return range(0)
    if pa.types.is_signed_integer(kind):
        return range(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1)
    return range(1 << kind.bit_width)


def _rank(value: Any) -> int:
    return 2 if value is None else int(value != value)


def _normal_float(value: float) -> float:
    return value + 0.0 if value == value else math.nan  # one NaN object, which dictionaries find


def _python_values(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if column.type in _BITS:
        return [value if value is None else _normal_float(value) for value in values]
    return values


def normal_floats(array: pa.Array) -> pa.Array:
    """The floats with one NaN and no -0.0."""
    nan = pa.scalar(math.nan, array.type)
    return pc.if_else(pc.is_nan(array), nan, pc.add(array, pa.scalar(0, array.type)))
