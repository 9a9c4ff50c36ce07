"""Writes rows as JSON lines, column by column, without a Python object per row."""

from __future__ import annotations

import json
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

_TEXT = pa.large_string()
_CONTROLS = [chr(code) for code in range(32)]


def is_writable(kind: pa.DataType) -> bool:
    """Whether values of a type can be written as JSON, and are equal when read; NaN and infinities become null."""
    plain = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_timestamp, pa.types.is_decimal)
    return kind in (pa.float32(), pa.float64(), pa.date32()) or _is_text(kind) or any(test(kind) for test in plain)


def lines(batch: pa.RecordBatch) -> pa.Buffer:
    """Returns one JSON object for each row, with a line feed after each.

    >>> lines(pa.record_batch({"n": [1, None], "word": ['say "hi"', ""]})).to_pybytes()
    b'{"n":1,"word":"say \\\\"hi\\\\""}\\n{"n":null,"word":""}\\n'
    """
    pieces: list[pa.Array | pa.Scalar] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        pieces += [pa.scalar(f"{',' if pieces else '{'}{json.dumps(name)}:", _TEXT), _values(column)]
    text = pc.binary_join_element_wise(*pieces, pa.scalar("}\n", _TEXT), pa.scalar("", _TEXT))
    return text.buffers()[2] or pa.py_buffer(b"")


def _values(column: pa.Array) -> pa.Array:
    return pc.coalesce(_rendered(column), pa.scalar("null", _TEXT))


def _rendered(column: pa.Array) -> pa.Array:
    """Returns the values as JSON text; nulls stay nulls."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(column), column, None).cast(_TEXT)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    text = column.cast(_TEXT)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return text
    quote = pa.scalar('"', _TEXT)
    return pc.binary_join_element_wise(quote, _escaped(text) if _is_text(kind) else text, quote, pa.scalar("", _TEXT))


def _escaped(text: pa.Array) -> pa.Array:
    special = ["\\", '"']
    if pc.any(pc.match_substring_regex(text, "[\\x00-\\x1f]")).as_py():
        special += _CONTROLS
    return reduce(lambda each, s: pc.replace_substring(each, s, json.dumps(s)[1:-1]), special, text)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())
