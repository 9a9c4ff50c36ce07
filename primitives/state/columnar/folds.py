"""Folds: the functions that combine a new value with the stored one (sum, minimum and others)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.state.columnar.fixed import WIDE, storage_type


class Fold(NamedTuple):
    """A way to combine two values."""

    accepts: Callable[[pa.DataType], bool]
    needs: str  #: the accepted types, in words
    identity: Callable[[np.dtype[Any]], Any]  #: the value that changes no value that it is combined with
    combine: np.ufunc


class Overflow(UserError):
    """A sum is beyond the type of its column; the rows concerned hold the wrapped sum."""

    def __init__(self, state: str, field: pa.Field, key: Mapping[str, Any], positions: NDArray[np.int64]) -> None:
        super().__init__(f"the sum in column '{field.name}' of state '{state}' for key {key} is beyond {field.type}")
        self.key = key  #: key of the first row concerned
        self.positions = positions  #: positions in the addends, one for each row that has overflowed, in order


def _is_wrapping(kind: pa.DataType) -> bool:
    return kind in (pa.int64(), pa.uint64(), pa.float64()) or pa.types.is_duration(kind)


def _is_summable(kind: pa.DataType) -> bool:
    return _is_wrapping(kind) or pa.types.is_decimal128(kind)


def _is_ordered(kind: pa.DataType) -> bool:
    return storage_type(kind) is not None


def _zero(kind: np.dtype[Any]) -> Any:
    return np.zeros((), kind)


def _least(kind: np.dtype[Any]) -> Any:
    if kind == WIDE:
        return np.array((0, 1 << 63), WIDE)
    return {"f": -np.inf, "b": False}[kind.kind] if kind.kind in "fb" else np.iinfo(kind).min


def _greatest(kind: np.dtype[Any]) -> Any:
    if kind == WIDE:
        return np.array(((1 << 64) - 1, (1 << 63) - 1), WIDE)
    return {"f": np.nan, "b": True}[kind.kind] if kind.kind in "fb" else np.iinfo(kind).max


_FIXED = "a number, bool, date or time"

#: Folds by name. A sum of integers or decimals that exceeds its type raises `Overflow`, except with `add_wrapping`,
#: which wraps around at 64 bits. NaN is greater than any number, as in Spark.
FOLDS: Mapping[str, Fold] = {
    "add": Fold(_is_summable, "int64, uint64, float64, decimal128 or duration", _zero, np.add),
    "add_wrapping": Fold(_is_wrapping, "int64, uint64, float64 or duration", _zero, np.add),
    "min": Fold(_is_ordered, _FIXED, _greatest, np.minimum),
    "max": Fold(_is_ordered, _FIXED, _least, np.maximum),
}
