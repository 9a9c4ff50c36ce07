"""DeclaredColumns: the key and value columns that a frame declares, and the conversion of what users give for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.state.columnar.fixed import CONVERSION_ERRORS, is_span, storage_type
from primitives.state.columnar.folds import FOLDS
from primitives.state.columnar.table import MAX_COLUMNS


class DeclaredColumns:
    """Converts users' input to arrays of the declared types; raises UserError with the column's name on a misfit.

    >>> columns = DeclaredColumns("counts", {"id": pa.int64()}, {"n": pa.int32()}, {})
    >>> columns.keys_from({"id": [7, 9]})[0].to_pylist(), columns.value_from("n", 1, rows=2).to_pylist()
    ([7, 9], [1, 1])
    """

    def __init__(
        self,
        state: str,
        keys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        defaults: Mapping[str, Any],
        subkeys: Mapping[str, pa.DataType] = MappingProxyType({}),
    ) -> None:
        self._state = state
        for name in subkeys:
            if name in keys:
                raise UserError(f"{self._label(name)} is declared both as a key and as a subkey; rename one of them")
        self._check(keys, subkeys, values, defaults)
        self.keys = pa.schema([*keys.items(), *subkeys.items()])
        self.values = pa.schema(list(values.items()))
        self.all = pa.schema([*self.keys, *self.values])
        self.defaults = [self._default(name, kind, defaults) for name, kind in values.items()]

    # --- as declared --------------------------------------------------------------------------------------------------

    def _check(
        self,
        slot_keys: Mapping[str, pa.DataType],
        subkeys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        defaults: Mapping[str, Any],
    ) -> None:
        if not slot_keys:
            raise UserError(f"state '{self._state}' needs a key column, for example keys={{'id': pa.int64()}}")
        keys = {**slot_keys, **subkeys}
        if len(keys) + len(values) > MAX_COLUMNS:
            raise UserError(f"state '{self._state}' has more than {MAX_COLUMNS} columns; use several frames")
        for name, kind in [*keys.items(), *values.items()]:
            self._check_type(name, kind)
        for name, kind in keys.items():
            self._check_key_type(name, kind)
            if name in values:
                raise UserError(f"{self._label(name)} is declared both as a key and as a value; rename one of them")
        for name in defaults:
            if name not in values:
                raise UserError(f"{self._label(name)} has a default, but is not among the values {list(values)}")

    def _check_type(self, name: str, kind: pa.DataType) -> None:
        if storage_type(kind) is None and not is_span(kind):
            raise UserError(
                f"{self._label(name)} has type {kind}; declare an integer, float, decimal128, bool, timestamp, date, "
                "time, duration, string or binary"
            )

    def _check_key_type(self, name: str, kind: pa.DataType) -> None:
        try:
            hash_keys([pa.array([], kind)])
        except UserError as reason:
            raise UserError(f"{self._label(name)} is a key of type {kind}, which cannot be one: {reason}") from reason

    def _default(self, name: str, kind: pa.DataType, defaults: Mapping[str, Any]) -> pa.Scalar:
        if name not in defaults:
            return _default_of(kind)
        return self._array(f"the default of {self._label(name)}", kind, [defaults[name]], 1)[0]

    def _label(self, column: str) -> str:
        return f"column '{column}' of state '{self._state}'"

    # --- as given -----------------------------------------------------------------------------------------------------

    def keys_from(self, given: Any) -> list[pa.Array]:
        """Returns the key columns of a RecordBatch, Table or mapping, or of the only key column itself."""
        if not isinstance(given, Mapping | pa.RecordBatch | pa.Table):
            given = self._only_key(given)
        columns: list[pa.Array] = []
        for key in self.keys:
            if key.name not in (given if isinstance(given, Mapping) else given.schema.names):
                raise UserError(f"the keys lack {self._label(key.name)}; give all of {self.keys.names}")
            rows = len(columns[0]) if columns else None
            columns.append(self._array(self._label(key.name), key.type, given[key.name], rows))
        return columns

    def value_from(self, name: str, given: Any, rows: int) -> pa.Array:
        """A value column from an Arrow or NumPy array, a sequence, or one value for all rows."""
        return self._array(self._label(name), self._value_type(name), given, rows)

    def check_value(self, name: str) -> None:
        """Raises UserError unless there is a value column of that name."""
        self._value_type(name)

    def check_fold(self, name: str, fold: str) -> None:
        """Raises UserError unless the fold supports the column's type."""
        kind = self._value_type(name)
        if fold not in FOLDS:
            raise UserError(f"{self._label(name)} knows no fold '{fold}'; use one of {', '.join(FOLDS)}")
        if not FOLDS[fold].accepts(kind):
            raise UserError(f"{self._label(name)} is {kind}, and {fold} needs {FOLDS[fold].needs}")

    def _value_type(self, name: str) -> pa.DataType:
        if name not in self.values.names:
            raise UserError(f"state '{self._state}' has no value column '{name}', only {self.values.names}")
        return self.values.field(name).type

    def _only_key(self, given: Any) -> dict[str, Any]:
        if len(self.keys) > 1:
            raise UserError(f"state '{self._state}' has keys {self.keys.names}; give a batch or mapping with them")
        return {self.keys.names[0]: given}

    def _array(self, label: str, kind: pa.DataType, given: Any, rows: int | None) -> pa.Array:
        try:
            array = _to_arrow(kind, given, rows)
        except CONVERSION_ERRORS as reason:
            raise UserError(f"{label} is of type {kind}, and what is given is not: {reason}") from reason
        if rows is not None and len(array) != rows:
            raise UserError(f"{label} is given with {len(array)} rows, the others with {rows}; give as many")
        return array


def _default_of(kind: pa.DataType) -> pa.Scalar:
    """Returns a column's default value in a new row: zero, false, or else null."""
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    kinds = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration
    is_number = any(is_kind(kind) for is_kind in kinds)
    return pa.scalar(0 if is_number else None, kind)


def _to_arrow(kind: pa.DataType, given: Any, rows: int | None) -> pa.Array:
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, np.ndarray):
        given = pa.array(given)
    if isinstance(given, pa.Array):
        return given if given.type == kind else given.cast(kind)
    if rows is not None and (isinstance(given, str | bytes) or not hasattr(given, "__len__")):
        return pa.repeat(given.cast(kind) if isinstance(given, pa.Scalar) else _from_python([given], kind)[0], rows)
    return _from_python(given, kind)


def _from_python(given: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind) and pa.types.is_floating(pa.infer_type(given)):
        return pa.array(given).cast(kind)  # refuses fractions, which Arrow would cut off
    return pa.array(given, kind)
