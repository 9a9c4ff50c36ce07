"""Converts values of state to JSON for people and other programs, and keys back. It executes no stored code."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from primitives.state.codec import pack, unpack

#: The column in which containers keep Python objects, and its type.
_VALUE, _PACKED = "value", pa.large_binary()
_HEX = re.compile("0x([0-9a-fA-F]{2})*")


def is_packed(field: pa.Field) -> bool:
    """Whether a column has Python objects; true also for a column `value` declared as large_binary."""
    return bool(field.name == _VALUE and field.type == _PACKED)


def unpacked(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns the Python objects in a column of a container, as made by `encode` if it has one.

    >>> unpacked(packed([{"tea", "milk"}, None])) == [{"tea", "milk"}, None]
    True
    """
    return [None if data is None else unpack(data) for data in column.to_pylist()]


def packed(values: Sequence[Any]) -> pa.Array:
    """Returns a column of Python objects: the inverse of `unpacked`, for functions that rewrite state."""
    return pa.array([None if value is None else pack(value) for value in values], _PACKED)


def readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows with Python objects as JSON text; other columns are unchanged.

    >>> readable(pa.record_batch({"k": [7], "value": packed([(1, {"a": bytes([1])})])})).to_pylist()
    [{'k': 7, 'value': '[1, {"a": "0x01"}]'}]
    """
    for place, field in enumerate(batch.schema):
        if is_packed(field):
            texts = [None if data is None else _as_json(_object_in(data)) for data in batch.column(place).to_pylist()]
            batch = batch.set_column(place, field.name, pa.array(texts, pa.string()))
    return batch


def readable_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns of the result of `readable`."""
    return pa.schema([pa.field(each.name, pa.string()) if is_packed(each) else each for each in schema])


def as_text(column: pa.Array) -> pa.Array:
    """Returns values of any type as JSON text, for formats that do not have the type."""
    return pa.array([None if value is None else _as_json(plain(value)) for value in column.to_pylist()], pa.string())


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns the rows as JSON values."""
    columns = {field.name: listed(batch.column(place)) for place, field in enumerate(batch.schema)}
    for field in filter(is_packed, batch.schema):
        columns[field.name] = [None if data is None else _object_in(data) for data in columns[field.name]]
    rows = zip(*columns.values(), strict=True)
    return [{name: plain(value) for name, value in zip(columns, row, strict=True)} for row in rows]


def value_of(text: str, kind: pa.DataType) -> Any:
    """Returns the value of a type that a text stands for; raises ValueError. The text is one that `plain` shows.

    `null` is null except of text; bytes are hexadecimal, or the text itself.

    >>> value_of("7", pa.int64()), value_of("null", pa.int64()), value_of("null", pa.string())
    (7, None, 'null')
    >>> value_of("0x01", pa.binary())
    b'\\x01'
    """
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if text == "null" and not is_text:
        return None
    is_hex = text.startswith("0x") and _HEX.fullmatch(text) is not None
    if is_hex and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        return pa.scalar(bytes.fromhex(text[2:]), kind).as_py()
    return pa.scalar(text).cast(kind).as_py()


def listed(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns Python values; times that Python's types cannot hold exactly become text."""
    try:
        found: list[Any] = column.to_pylist()
    except ValueError:
        found = column.cast(pa.string()).to_pylist()
    return found


def _object_in(data: bytes) -> Any:
    """Returns a packed object as a JSON value; bytes that are not a packed object stay bytes."""
    try:
        return plain(unpack(data))
    except Exception:  # msgpack may raise any exception for other bytes
        return plain(data)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Returns a value as a JSON value, the same in every process: sorted sets, hexadecimal bytes, times in ISO format.

    >>> plain({"at": date(2026, 1, 31), "seen": {3, 1}, "score": math.nan}), plain({1: (2, b"")})
    ({'at': '2026-01-31', 'seen': [1, 3], 'score': 'nan'}, [[1, [2, '0x']]])
    """
    match value:
        case np.generic() | np.ndarray():
            listed = value.tolist()
            return str(listed) if isinstance(listed, np.generic) else plain(listed)
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return f"0x{value.hex()}"
        case list() | tuple():
            return [plain(each) for each in value]
        case set() | frozenset():
            return sorted((plain(each) for each in value), key=_sort_key)
        case dict():
            return _plain_dict(value)
        case date():
            return value.isoformat()
    return str(value)


def _sort_key(value: Any) -> tuple[bool, Any]:
    """Sorts numbers first, by value, and then everything else by its text."""
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else _as_json(value)


def _plain_dict(value: dict[Any, Any]) -> Any:
    """Returns an object if all keys are text; otherwise a list of pairs."""
    if all(isinstance(key, str) for key in value):
        return {key: plain(each) for key, each in value.items()}
    return [[plain(key), plain(each)] for key, each in value.items()]
