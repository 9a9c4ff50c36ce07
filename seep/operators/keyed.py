"""The keys of the streams that an operator with state reads: checks, types and columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from primitives.errors import UserError
from seep.operators.definition import Input


def check_keyed(operator: str, inputs: Sequence[Input]) -> None:
    """Raises unless all streams are keyed, by columns of the same types."""
    for port, given in enumerate(inputs):
        if not given.keys:
            stream = "the stream" if len(inputs) == 1 else f"its stream at port {port}"
            raise UserError(f"operator '{operator}': unkeyed state; call key_by on {stream} before it")
    first, *others = (list(key_types(given).values()) for given in inputs)
    for port, types in enumerate(others, 1):
        if types != first:
            raise UserError(
                f"operator '{operator}': the key at port 0, {list(inputs[0].keys)}, is {_named(first)}, and that at "
                f"port {port}, {list(inputs[port].keys)}, is {_named(types)}; key all by columns of the same types"
            )


def key_types(given: Input, reserved: Collection[str] = ()) -> dict[str, pa.DataType]:
    """Returns names and types of the key columns for a container; `reserved` names get underscores.

    >>> stream = Input(pa.schema([("value", pa.int64()), ("n", pa.int64())]), keys=("value",))
    >>> key_types(stream, reserved=["value"])
    {'value_': DataType(int64)}
    """
    types: dict[str, pa.DataType] = {}
    for key in given.keys:
        name = key
        while name in reserved or (name != key and name in (*types, *given.keys)):
            name += "_"
        types[name] = plain_type(given.schema.field(key).type)
    return types


def key_columns(given: Input, batch: pa.RecordBatch) -> list[pa.Array]:
    """Returns the key columns of a batch, in the order of `key_types`."""
    return [plain(batch.column(key)) for key in given.keys]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type without dictionary encoding, because each batch may have its own dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the columns without dictionary encoding."""
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def plain(column: pa.Array) -> pa.Array:
    """Returns the column without dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _named(types: Sequence[pa.DataType]) -> str:
    return ", ".join(map(str, types))
