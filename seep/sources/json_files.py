"""The JSON lines source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow
from numpy.typing import NDArray

from seep.rows.times import Duration
from seep.sources.dialect import Dialect
from seep.sources.files import PARTITIONS
from seep.sources.text_files import TextFiles


def json_lines(
    path: str | Path,
    *,
    schema: pa.Schema | None = None,
    time: str | None = None,
    out_of_order: Duration = 0,
    partitions: int = PARTITIONS,
) -> TextFiles:
    """Reads files with one JSON object on each line: one file, files that match a pattern, or files in a directory.

    Fields that an object lacks are null; fields that are not in the schema are ignored. Without a schema, columns are
    inferred from the first rows, and later rows may not fit. Files are divided among at most `partitions` partitions,
    in the order of their names.
    """
    return TextFiles(path, JsonDialect(), schema, time, out_of_order, partitions)


class JsonDialect(Dialect):
    """The dialect of JSON lines: every line feed ends a row, because JSON text contains none."""

    suffixes = (".jsonl", ".ndjson", ".json")

    def row_ends(self, data: bytes) -> NDArray[np.int64]:
        """See `Dialect`."""
        return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1

    def is_blank(self, view: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """See `Dialect`."""
        return view <= ord(" ")

    def header(self, row: bytes) -> list[str] | None:  # noqa: ARG002
        """See `Dialect`."""
        return None

    def parse(self, data: bytes, schema: pa.Schema, header: list[str] | None) -> pa.Table:  # noqa: ARG002
        """See `Dialect`."""
        as_read = pa.schema([_as_read(field) for field in schema])
        options = arrow.ParseOptions(explicit_schema=as_read, unexpected_field_behavior="ignore")
        return _read(data, options).select(schema.names).cast(schema)

    def infer(self, data: bytes, header: list[str] | None) -> pa.Schema:  # noqa: ARG002
        """See `Dialect`."""
        return _read(data, arrow.ParseOptions()).schema


def _read(data: bytes, options: arrow.ParseOptions) -> pa.Table:
    return arrow.read_json(
        pa.BufferReader(data), arrow.ReadOptions(use_threads=False, block_size=len(data) + 1), options
    )


def _as_read(field: pa.Field) -> pa.Field:
    """Returns the field as text for dates: Arrow reads dates in JSON only as numbers of days, but can cast text."""
    return field.with_type(pa.string()) if pa.types.is_date(field.type) else field
