"""Columns: the values of a container's rows, one array for each column; and columns as users give them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.state.fixed import (
    AHEAD,
    Selection,
    from_numbers,
    is_span,
    null_mask,
    pick,
    row_numbers,
    storage_type,
    to_numbers,
    validity,
)
from primitives.state.intrinsics import pointer, prefetch
from primitives.state.memory import Region
from primitives.state.spans import Heap, Spans, assign, encode, release, starts_and_bytes, to_array

Rows = NDArray[np.int64]

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


# --- as users give them -----------------------------------------------------------------------------------------------


def check_type(label: str, kind: pa.DataType) -> None:
    """Raises UserError unless columns of the type can be kept."""
    if storage_type(kind) is None and not is_span(kind):
        raise UserError(
            f"{label} has type {kind}; declare an integer, float, bool, timestamp, date, time, duration, string or binary"
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


# --- as they are kept -------------------------------------------------------------------------------------------------


class Column(ABC):
    """Values of one Arrow type by row."""

    def __init__(self, label: str, kind: pa.DataType, default: pa.Scalar) -> None:
        self.kind = kind
        self._label = label
        self._default = default
        self._nulls: Region[np.bool_] = Region(np.bool_)
        self._nullable = not default.is_valid  #: as long as it is false, there is no null and `_nulls` is not read

    @abstractmethod
    def create(self, rows: Rows) -> None:
        """Gives new rows the default."""

    @abstractmethod
    def assign(self, rows: Rows, values: pa.Array) -> None:
        """Writes values, in order, so the last one for a row stays."""

    @abstractmethod
    def check_fold(self, name: str) -> None:
        """Raises UserError unless the column can `fold` by that name, one of FOLDS."""

    @abstractmethod
    def fold(self, name: str, rows: Rows, values: pa.Array) -> None:
        """Combines what is there with values. A null changes nothing, and gives way to any value."""

    @abstractmethod
    def to_arrow(self, rows: Selection) -> pa.Array:
        """A copy of the values of rows."""

    def reserve(self, rows: int) -> None:
        """Makes room for so many rows in all."""
        self._nulls.reserve(rows)

    def keep(self, rows: Rows) -> None:
        """Keeps these rows only, which ascend, and numbers them anew."""
        self._nulls.keep(rows)

    def release(self, rows: Rows) -> None:
        """Lets go of what rows that are deleted hold elsewhere."""

    def tidy(self, rows: Callable[[], Selection]) -> None:
        """Leaves garbage behind if there is much; `rows` are all that there are."""

    def _write_nulls(self, rows: Rows, values: pa.Array) -> None:
        self._nullable = self._nullable or values.null_count > 0
        if self._nullable:
            self._nulls.array[rows] = null_mask(values)

    def _valid(self, rows: Selection) -> pa.Buffer | None:
        return validity(pick(self._nulls.array, rows)) if self._nullable else None


def new_column(label: str, kind: pa.DataType, default: pa.Scalar) -> Column:
    """A column of the class that is made for its type."""
    return SpanColumn(label, kind, default) if is_span(kind) else FixedColumn(label, kind, default)


class SpanColumn(Column):
    """Strings or binaries."""

    def __init__(self, label: str, kind: pa.DataType, default: pa.Scalar) -> None:
        super().__init__(label, kind, default)
        self._words: Region[np.uint64] = Region(np.uint64)
        self._heap = Heap()

    def create(self, rows: Rows) -> None:
        """See Column."""
        self.assign(rows, pa.repeat(self._default, len(rows)))

    def assign(self, rows: Rows, values: pa.Array) -> None:
        """See Column."""
        starts, data = starts_and_bytes(values)
        words = np.empty((len(rows), 2), np.uint64)
        encode(starts, data, 0, Spans(words.reshape(-1), 2, 0))
        if values.null_count:
            words[null_mask(values)] = 0
        self._heap.reserve(len(data))
        assign(self._spans, rows, words.reshape(-1), data, self._heap.region.array, self._heap.counts)
        self._write_nulls(rows, values)

    def check_fold(self, name: str) -> None:
        """See Column."""
        raise UserError(f"{self._label} is {self.kind}, and there is no {name} for text; use put")

    def fold(self, name: str, rows: Rows, values: pa.Array) -> None:
        """Refused."""
        self.check_fold(name)

    def to_arrow(self, rows: Selection) -> pa.Array:
        """See Column."""
        return to_array(self._spans, row_numbers(rows), self._heap, self.kind, self._valid(rows))

    def reserve(self, rows: int) -> None:
        """See Column."""
        super().reserve(rows)
        self._words.reserve(2 * rows)

    def keep(self, rows: Rows) -> None:
        """See Column."""
        super().keep(rows)
        self._words.keep(rows, 2)

    def release(self, rows: Rows) -> None:
        """See Column."""
        release(self._spans, rows, self._heap.counts)

    def tidy(self, rows: Callable[[], Selection]) -> None:
        """See Column."""
        if self._heap.wasteful:
            self._heap.rewrite([self._spans], row_numbers(rows()))

    @property
    def _spans(self) -> Spans:
        return Spans(self._words.array, 2, 0)


class FixedColumn(Column):
    """Numbers, and what Arrow keeps as numbers."""

    def __init__(self, label: str, kind: pa.DataType, default: pa.Scalar) -> None:
        super().__init__(label, kind, default)
        self._values: Region[Any] = Region(storage_type(kind))
        self._initial = to_numbers(pa.repeat(default, 1))[0] if default.is_valid else 0

    def create(self, rows: Rows) -> None:
        """See Column."""
        self._values.array[rows] = self._initial
        if self._nullable:
            self._nulls.array[rows] = not self._default.is_valid

    def assign(self, rows: Rows, values: pa.Array) -> None:
        """See Column."""
        self._values.array[rows] = to_numbers(values)
        self._write_nulls(rows, values)

    def check_fold(self, name: str) -> None:
        """See Column."""
        if not FOLDS[name].accepts(self.kind):
            raise UserError(f"{self._label} is {self.kind}; to {name} needs {FOLDS[name].needs}")

    def fold(self, name: str, rows: Rows, values: pa.Array) -> None:
        """See Column."""
        fold = FOLDS[name]
        numbers = to_numbers(values)
        if values.null_count:
            valid = ~null_mask(values)
            rows, numbers = rows[valid], numbers[valid]
        if self._nullable:
            empty = rows[self._nulls.array[rows]]
            self._values.array[empty] = fold.identity(numbers.dtype)
            self._nulls.array[empty] = False
        fold.apply(self._values.array, rows, numbers)

    def to_arrow(self, rows: Selection) -> pa.Array:
        """See Column."""
        return from_numbers(self.kind, pick(self._values.array, rows), self._valid(rows))

    def reserve(self, rows: int) -> None:
        """See Column."""
        super().reserve(rows)
        self._values.reserve(rows)

    def keep(self, rows: Rows) -> None:
        """See Column."""
        super().keep(rows)
        self._values.keep(rows)


# --- folds ------------------------------------------------------------------------------------------------------------


class Fold(NamedTuple):
    """A way to combine values into one, whatever the order of integers."""

    accepts: Callable[[pa.DataType], bool]
    needs: str  #: in words, what it accepts
    identity: Callable[[np.dtype[Any]], Any]  #: changes nothing when combined with a value
    apply: Callable[[NDArray[Any], Rows, NDArray[Any]], None]


def _is_summable(kind: pa.DataType) -> bool:
    return kind in (pa.int64(), pa.uint64(), pa.float64()) or pa.types.is_duration(kind)


def _least(kind: np.dtype[Any]) -> Any:
    return -np.inf if kind.kind == "f" else False if kind == np.bool_ else np.iinfo(kind).min


def _greatest(kind: np.dtype[Any]) -> Any:
    return np.inf if kind.kind == "f" else True if kind == np.bool_ else np.iinfo(kind).max


def _sum_into(values: NDArray[Any], rows: Rows, addends: NDArray[Any]) -> None:
    if values.dtype == np.uint64:  # adds like int64, and so needs no kernel of its own
        values, addends = values.view(np.int64), addends.view(np.int64)
    _add(values, rows, addends)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add(values: NDArray[Any], rows: Rows, addends: NDArray[Any]) -> None:
    there = pointer(values)
    for at in range(len(rows)):
        prefetch(there, rows[min(at + AHEAD, len(rows) - 1)])
        there[rows[at]] += addends[at]


#: Integers wrap around at 64 bits; NaN wins over any number, as in NumPy.
FOLDS: Mapping[str, Fold] = {
    "add": Fold(_is_summable, "int64, uint64, float64 or duration, which do not overflow soon", lambda _: 0, _sum_into),
    "min": Fold(lambda _: True, "", _greatest, np.minimum.at),
    "max": Fold(lambda _: True, "", _least, np.maximum.at),
}
