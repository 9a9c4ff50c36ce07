"""Exports state to Parquet and CSV files for other programs, a group of slots at a time."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from formats.files import whole_file
from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.inspection.container import GROUP_BYTES, StoredContainer
from seep.operators.keyed import plain, plain_schema
from seep.rows.readable import as_text, readable, readable_schema
from seep.sinks.formats import FORMATS

Writer: TypeAlias = "pq.ParquetWriter | pacsv.CSVWriter"


class Format(StrEnum):
    """The formats of exported state, by the suffix of the file."""

    PARQUET = "parquet"
    CSV = "csv"


_WRITERS: dict[Format, Callable[[Path, pa.Schema], Writer]] = {
    Format.PARQUET: pq.ParquetWriter,
    Format.CSV: pacsv.CSVWriter,
}


def export(
    container: StoredContainer,
    path: Path | str,
    format: Format | str | None = None,
    *,
    slots: SlotSet | None = None,
    group_bytes: int = GROUP_BYTES,
) -> int:
    """Writes the rows of a container, or of some of its slots, to a new file; returns the number of rows.

    Without `format`, the suffix decides. Python objects become JSON text, and so do values of types that the format
    does not have, such as lists in CSV. It needs memory for about `group_bytes` stored bytes at a time.
    """
    path = Path(path)
    chosen = _format(path, format)
    if path.exists():
        raise UserError(f"{path} is there already: remove it, or choose another name")
    given = plain_schema(readable_schema(container.schema))
    schema = pa.schema([_field(each, chosen) for each in given])
    count = 0
    with whole_file(path) as partial, _WRITERS[chosen](partial, schema) as writer:
        for chunk in container.pieces(slots, group_bytes):
            writer.write_batch(_converted(readable(chunk.rows), schema))
            count += len(chunk.rows)
    return count


def _format(path: Path, format: Format | str | None) -> Format:
    name = path.suffix.removeprefix(".") if format is None else format
    if name not in list(Format):
        raise UserError(f"state cannot be exported to {path} as {name or 'nothing'!r}; choose {' or '.join(Format)}")
    return Format(name)


def _field(field: pa.Field, format: Format) -> pa.Field:
    return field if FORMATS[format].can_hold(field.type) else pa.field(field.name, pa.string())


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = map(plain, batch.columns)
    fitting = [
        column if column.type == field.type else as_text(column) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitting, schema=schema)
