"""Folds: the ways in which values that come in are combined with the one that is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from primitives.state.fixed import storage_type


class Fold(NamedTuple):
    """One way to combine."""

    accepts: Callable[[pa.DataType], bool]
    needs: str  #: what it accepts, in words
    identity: Callable[[np.dtype[Any]], Any]  #: what changes no value that it is combined with
    combine: np.ufunc


def _is_summable(kind: pa.DataType) -> bool:
    return kind in (pa.int64(), pa.uint64(), pa.float64()) or pa.types.is_duration(kind)


def _is_ordered(kind: pa.DataType) -> bool:
    return storage_type(kind) is not None


def _zero(_kind: np.dtype[Any]) -> Any:
    return 0


def _least(kind: np.dtype[Any]) -> Any:
    return {"f": -np.inf, "b": False}[kind.kind] if kind.kind in "fb" else np.iinfo(kind).min


def _greatest(kind: np.dtype[Any]) -> Any:
    return {"f": np.inf, "b": True}[kind.kind] if kind.kind in "fb" else np.iinfo(kind).max


_FIXED = "a number, bool, date or time"

#: By name. Integers wrap around at 64 bits, and NaN wins over any number, as in NumPy.
FOLDS: Mapping[str, Fold] = {
    "add": Fold(_is_summable, "int64, uint64, float64 or duration", _zero, np.add),
    "min": Fold(_is_ordered, _FIXED, _greatest, np.minimum),
    "max": Fold(_is_ordered, _FIXED, _least, np.maximum),
}
