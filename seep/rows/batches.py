"""Batches of rows: conversion of users' results, conformance to declared columns, and sorting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from primitives.errors import UserError
from primitives.state.columnar.fixed import CONVERSION_ERRORS

_BITS = {pa.float32(): np.int32, pa.float64(): np.int64}


def as_batch(operator: str, given: Any, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Converts the result of user code: a RecordBatch, a Table, or a mapping of columns of the same length.

    The schema, if known, gives the types of columns that are not Arrow arrays.

    >>> as_batch("double", {"n": [1, 2]}).to_pydict()
    {'n': [1, 2]}
    """
    if isinstance(given, pa.RecordBatch):
        return given
    if isinstance(given, pa.Table):
        return pa.concat_batches(given.to_batches()) if given.num_rows else empty(given.schema)
    if not isinstance(given, Mapping):
        raise UserError(
            f"operator '{operator}': its function returned {type(given).__name__}; "
            "return a RecordBatch, a Table, or a mapping of columns"
        )
    try:
        columns = [_as_array(column, _type_of(name, schema)) for name, column in given.items()]
        return pa.RecordBatch.from_arrays(columns, names=list(given))
    except CONVERSION_ERRORS as reason:
        raise UserError(f"operator '{operator}': its function returned columns that make no rows: {reason}") from reason


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch of these columns without rows."""
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def concat(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of all batches in one; a single batch is returned as it is."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else empty(schema)


def conform(operator: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the batch with exactly these columns, matched by name, and cast where no value is lost.

    >>> schema = pa.schema([("n", pa.int64())])
    >>> conform("counter", pa.record_batch({"n": pa.array([1], pa.int8())}), schema).schema == schema
    True
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    for name in batch.schema.names:
        if schema.get_field_index(name) < 0:
            raise UserError(
                f"operator '{operator}' put out a column '{name}' that is not among those declared, {schema.names}; "
                "leave it out, or declare it with schema="
            )
    return pa.record_batch([_conform_column(operator, batch, field) for field in schema], schema=schema)


def in_sequence(batch: pa.RecordBatch, time: str | None) -> pa.RecordBatch:
    """Sorts rows by event time, then by all columns, so that the order of arrival does not matter; nulls are last.

    A column of lists or structs, which Arrow cannot sort, is compared as text.
    """
    names = [] if time is None else [time]
    names += [name for name in batch.schema.names if name != time]
    if len(batch) < 2:
        return batch
    sortable = pa.table([_sortable(batch.column(name)) for name in names], names=list(map(str, range(len(names)))))
    order = pc.sort_indices(sortable, sort_keys=[(name, "ascending") for name in sortable.schema.names])
    return batch.take(order)


def _type_of(name: str, schema: pa.Schema | None) -> pa.DataType | None:
    at = -1 if schema is None else schema.get_field_index(name)
    return None if schema is None or at < 0 else schema.field(at).type


def _as_array(column: Any, kind: pa.DataType | None) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column if isinstance(column, pa.Array) else pa.array(column, kind)


def _conform_column(operator: str, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if batch.schema.get_field_index(field.name) < 0:  # also if there are two
        raise UserError(
            f"operator '{operator}' put out no single column '{field.name}' ({field.type}), "
            f"only {batch.schema.names}; add it, or declare other columns with schema="
        )
    column = batch.column(field.name)
    if column.type != field.type:
        column = _cast(operator, column, field)
    if column.null_count and not field.nullable:
        raise UserError(
            f"operator '{operator}' put out {column.null_count} nulls in column '{field.name}', "
            "which is declared to have none; fill them, or declare it nullable"
        )
    return column


def _cast(operator: str, column: pa.Array, field: pa.Field) -> pa.Array:
    problem = ""
    if is_alike(column.type, field.type):
        try:
            return column.cast(field.type)
        except pa.ArrowException as reason:
            problem = f" ({reason})"
    raise UserError(
        f"operator '{operator}', column '{field.name}': expected {field.type}, found {column.type}{problem}; "
        "cast it, or declare it with schema="
    )


def is_alike(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a type may be cast to another: integers or floats of any width, layouts of text, nulls.

    >>> is_alike(pa.int32(), pa.int64()), is_alike(pa.int64(), pa.string())
    (True, False)
    """
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found) or found == expected:
        return True
    return any(
        all(test(kind) for kind in (found, expected))
        for test in (pa.types.is_integer, pa.types.is_floating, _is_text, _is_binary, pa.types.is_nested, _is_instant)
    )


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_binary(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(kind)


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _sortable(column: pa.Array) -> pa.Array:
    """Returns a column that Arrow sorts so that only equal values are ties; floats' zeros differ by their sign."""
    kind = column.type
    if kind in _BITS:
        bits = np.frombuffer(column.buffers()[1], _BITS[kind])[column.offset :][: len(column)]
        ordered = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
        return pa.array(ordered, mask=column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    return column.dictionary_decode() if pa.types.is_dictionary(kind) else column
