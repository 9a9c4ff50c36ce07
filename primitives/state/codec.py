"""ValueCodec: converts values of a container to an Arrow column and back, without loss and without pickle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from operator import index
from typing import Any
from zoneinfo import ZoneInfo

import msgpack
import numpy as np
import pyarrow as pa

from primitives.errors import EnvironmentFault, UserError

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]

#: Codes of msgpack extension types. Stored data has them: never change one, only add.
_TUPLE, _SET, _FROZENSET, _DATETIME, _DATE, _TIMEDELTA, _DECIMAL, _INT, _ARRAY = range(1, 10)


class Unencodable(TypeError):
    """A value of a type that cannot be stored."""

    def __init__(self, value: object) -> None:
        super().__init__(f"{type(value).__module__}.{type(value).__qualname__}")


# --- msgpack ----------------------------------------------------------------------------------------------------------


def pack(value: object) -> bytes:
    """The value as msgpack: None, bool, int, float, str, bytes, list, dict; and, as extensions, tuple, set, frozenset,
    datetime, date, timedelta, Decimal, ints of any size, and NumPy scalars and arrays of plain numbers, text or bytes.

    Types are exact: a subclass of these raises Unencodable. (One exception: a bytearray comes back as bytes.) The order
    of a set's elements does not show in the bytes.

    >>> unpack(pack({"seen": {(1, 2)}, "at": date(2026, 1, 31)}))
    {'seen': {(1, 2)}, 'at': datetime.date(2026, 1, 31)}
    """
    packed: bytes = _new_packer().pack(value)
    return packed


def unpack(data: bytes) -> Any:
    """The value that `pack` wrote; runs no code from it."""
    return msgpack.unpackb(data, ext_hook=_unpack_extension, strict_map_key=False)


def _new_packer() -> msgpack.Packer:
    """The packer of `pack`; for many values in turn, but not for one within another."""
    return msgpack.Packer(default=_pack_extension, strict_types=True, buf_size=256)


def _pack_extension(value: Any) -> msgpack.ExtType:
    if isinstance(value, np.generic | np.ndarray):
        return msgpack.ExtType(_ARRAY, pack(_array_parts(value)))
    if type(value) not in _TO_PARTS:
        raise Unencodable(value)
    code, to_parts = _TO_PARTS[type(value)]
    return msgpack.ExtType(code, pack(to_parts(value)))


def _unpack_extension(code: int, data: bytes) -> Any:
    if code not in _FROM_PARTS:
        raise ValueError(f"unknown msgpack extension type {code}")
    return _FROM_PARTS[code](unpack(data))


def _elements(values: set[Any] | frozenset[Any]) -> list[bytes]:
    return sorted(map(pack, values))


def _int_parts(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _timedelta_parts(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _datetime_parts(value: datetime) -> list[Any]:
    """Wall-clock time, fold, and the zone: its name, its offset, or None."""
    zone: Any = value.tzinfo
    if type(zone) is timezone:
        zone = _timedelta_parts(zone.utcoffset(None))
    elif zone is not None:
        zone = getattr(zone, "key", None)  # a ZoneInfo's name, if it has one
        if not zone:
            raise Unencodable(value.tzinfo)
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, zone]


def _datetime(parts: list[Any]) -> datetime:
    wall, fold, zone = parts
    if isinstance(zone, list):
        zone = timezone(timedelta(*zone))
    elif zone is not None:
        zone = ZoneInfo(zone)
    return datetime.fromisoformat(wall).replace(tzinfo=zone, fold=fold)


def _array_parts(value: np.generic | np.ndarray[Any, Any]) -> list[Any]:
    """Type, shape (None for a scalar) and bytes."""
    if value.dtype.kind not in "biufcmMSU":  # others may hold Python objects
        raise Unencodable(value)
    shape = list(value.shape) if isinstance(value, np.ndarray) else None
    return [value.dtype.str, shape, value.tobytes()]


def _array(parts: list[Any]) -> Any:
    kind, shape, data = parts
    flat = np.frombuffer(data, np.dtype(kind))
    return flat[0] if shape is None else flat.reshape(shape).copy()


_TO_PARTS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, _elements),
    frozenset: (_FROZENSET, _elements),
    datetime: (_DATETIME, _datetime_parts),
    date: (_DATE, date.toordinal),
    timedelta: (_TIMEDELTA, _timedelta_parts),
    Decimal: (_DECIMAL, str),
    int: (_INT, _int_parts),  # only those beyond 64 bits get here
}

_FROM_PARTS: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: lambda parts: set(map(unpack, parts)),
    _FROZENSET: lambda parts: frozenset(map(unpack, parts)),
    _DATETIME: _datetime,
    _DATE: date.fromordinal,
    _TIMEDELTA: lambda parts: timedelta(*parts),
    _DECIMAL: Decimal,
    _INT: lambda data: int.from_bytes(data, "little", signed=True),
    _ARRAY: _array,
}


# --- columns ----------------------------------------------------------------------------------------------------------


class ValueCodec:
    """Values of one container as a column: of the declared type, or else msgpack in binary.

    Values of a declared type return as Arrow converts them: float32 rounds, a timestamp in seconds has no fraction, and
    a struct has all its fields. An integer column accepts whole numbers only. With `encode`, its result is stored,
    which msgpack or the column must accept; `decode` is its inverse. None is stored as null and never passed to either.
    """

    def __init__(self, container: str, kind: pa.DataType | None, encode: Encode | None, decode: Decode | None) -> None:
        if (encode is None) != (decode is None):
            raise UserError(f"state '{container}' needs both encode and decode, or neither")
        self.type = pa.large_binary() if kind is None else kind
        self._container = container
        self._encode = encode
        self._decode = decode
        self._is_integer = pa.types.is_integer(self.type)
        self._packer = None if kind is not None else _new_packer()

    def stored(self, value: Any) -> Any:
        """The Python object that the column holds for a value."""
        if value is None:
            return None
        if self._encode is not None:
            value = self._encode(value)
            if value is None:
                raise ValueError("encode returned None, which stands for no value")
        if self._packer is not None:
            return self._pack(value)
        return index(value) if self._is_integer else value  # as Arrow would cut off a fraction

    def _pack(self, value: Any) -> bytes:
        assert self._packer is not None
        try:
            packed: bytes = self._packer.pack(value)
        except BaseException:
            self._packer.reset()  # removes what was packed before the failure
            raise
        return packed

    def column(self, values: Sequence[Any], key_at: Callable[[int], Any]) -> pa.Array:
        """The column of the given values; `key_at` tells the key of the one at fault."""
        try:
            return pa.array([self.stored(value) for value in values], self.type)
        except Exception:
            for at, value in enumerate(values):
                self.checked(value, partial(key_at, at))
            raise

    def checked(self, value: Any, key: Callable[[], Any]) -> Any:
        """Returns the result of `stored`; raises UserError if the column does not accept it."""
        try:
            stored = self.stored(value)
            if self._packer is None and stored is not None:
                pa.scalar(stored, self.type)
        except Exception as reason:
            raise UserError(
                f"state '{self._container}' cannot store the {type(value).__name__} of key {key()!r} as "
                f"{self._format}: {reason or type(reason).__name__}; keep plain values, or give encode= and decode="
            ) from reason
        return stored

    @property
    def _format(self) -> str:
        return "msgpack" if self._packer is not None else str(self.type)

    def values(self, column: pa.Array) -> list[Any]:
        """The values in a column."""
        stored: list[Any] = column.to_pylist()
        if self._packer is not None:
            stored = [data if data is None else self._unpack(data) for data in stored]
        if self._decode is None:
            return stored
        return [value if value is None else self._decode(value) for value in stored]

    def _unpack(self, data: bytes) -> Any:
        try:
            return unpack(data)
        except Exception as reason:
            raise EnvironmentFault(f"a stored value of state '{self._container}' is damaged: {reason!r}") from reason
