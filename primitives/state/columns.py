"""Columns as users declare and give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from primitives.errors import UserError
from primitives.state.fixed import is_span, storage_type

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def check_type(label: str, kind: pa.DataType) -> None:
    """Raises UserError unless columns of the type can be kept."""
    if storage_type(kind) is None and not is_span(kind):
        raise UserError(
            f"{label} has type {kind}; declare an integer, float, bool, timestamp, date, time, duration, string "
            "or binary"
        )


def default_of(kind: pa.DataType) -> pa.Scalar:
    """What a column holds in a new row unless told otherwise: zero, false, or else null."""
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_duration(kind)
    return pa.scalar(0 if is_number else None, kind)


def given_column(label: str, kind: pa.DataType, given: Any, rows: int | None = None) -> pa.Array:
    """A column as an array of a type: an Arrow or NumPy array, a sequence, or one value for all `rows`.

    >>> given_column("column 'n'", pa.int64(), 1, rows=3).to_pylist()
    [1, 1, 1]
    """
    try:
        array = _to_arrow(kind, given, rows)
    except _CONVERSION_ERRORS as reason:
        raise UserError(f"{label} is of type {kind}, and this is not: {reason}") from reason
    if rows is not None and len(array) != rows:
        raise UserError(f"{label} is given with {len(array)} rows for {rows} keys or rows; give one value for each")
    return array


def _to_arrow(kind: pa.DataType, given: Any, rows: int | None) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, np.ndarray):
        given = pa.array(given)
    if isinstance(given, pa.Array):
        return given if given.type == kind else given.cast(kind)
    if rows is not None and (isinstance(given, str | bytes) or not hasattr(given, "__len__")):
        return pa.repeat(given if isinstance(given, pa.Scalar) else pa.scalar(given, kind), rows).cast(kind)
    return pa.array(given, kind)
