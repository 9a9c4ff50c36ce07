"""Computes Arrow expressions over batches without threads, and checks them against the columns before a run."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from primitives.errors import UserError
from seep.rows.batches import empty

_MISSING = re.compile(r"No match for FieldRef\.(?:Name\((.*?)\)|\S+)")


def evaluate(batch: pa.RecordBatch, expressions: Sequence[pc.Expression]) -> list[pa.Array]:
    """Returns the value of each expression for each row.

    >>> evaluate(pa.record_batch({"n": [1, 2]}), [pc.field("n") > 1])[0].to_pylist()
    [False, True]
    """
    names = [str(at) for at in range(len(expressions))]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    project = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    table = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)
    return [column.combine_chunks() for column in table.columns]


def type_of(operator: str, schema: pa.Schema, expression: pc.Expression) -> pa.DataType:
    """Returns the type of an expression over these columns; raises UserError that names a missing column.

    >>> type_of("big", pa.schema([("n", pa.int64())]), pc.field("n") > 3)
    DataType(bool)
    """
    try:
        return evaluate(empty(schema), [expression])[0].type
    except pa.ArrowException as reason:
        if missing := _MISSING.search(str(reason)):
            raise no_column(operator, missing[1] or str(expression), schema) from reason
        raise UserError(f"operator '{operator}': {expression} cannot be computed: {reason}") from reason


def no_column(operator: str, name: str, schema: pa.Schema) -> UserError:
    """Returns the error for a column that a stream does not have."""
    return UserError(f"operator '{operator}' uses column '{name}', which its input lacks; it has {schema.names}")
