"""The CSV source."""

from __future__ import annotations

import csv as plain
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow
from numpy.typing import NDArray

from primitives.errors import UserError
from seep.rows.times import Duration
from seep.sources.dialect import Dialect
from seep.sources.files import PARTITIONS
from seep.sources.text_files import TextFiles

_QUOTE = b'"'


def csv(
    path: str | Path,
    *,
    schema: pa.Schema | None = None,
    time: str | None = None,
    out_of_order: Duration = 0,
    header: bool = True,
    delimiter: str = ",",
    nulls: Sequence[str] = ("",),
    partitions: int = PARTITIONS,
) -> TextFiles:
    """Reads the rows of CSV files: of one file, of files that match a pattern, or of files in a directory.

    With a header, the columns of a file may be in any order, and columns that are not in the schema are ignored. Values
    in double quotes may contain line feeds; two double quotes stand for one. `nulls` are the unquoted texts that stand
    for null. Without a schema, columns are inferred from the first rows, and later rows may not fit. Files are divided
    among at most `partitions` partitions, in the order of their names.
    """
    if len(delimiter) != 1 or delimiter in '"\n\r':
        raise UserError(f"delimiter={delimiter!r}; use a single character other than a quote or a line end")
    return TextFiles(path, CsvDialect(header, delimiter, nulls, schema), schema, time, out_of_order, partitions)


class CsvDialect(Dialect):
    """The dialect of CSV: rows end at line feeds outside of quotes."""

    suffixes = (".csv",)

    def __init__(
        self, header: bool = True, delimiter: str = ",", nulls: Sequence[str] = ("",), schema: pa.Schema | None = None
    ) -> None:
        self._header = header
        self._delimiter = delimiter
        self._nulls = list(nulls)
        self._has_one_column = schema is not None and len(schema) == 1

    def row_ends(self, data: bytes) -> NDArray[np.int64]:
        """See `Dialect`."""
        view = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(view == ord("\n"))
        if _QUOTE in data:
            quotes = np.flatnonzero(view == _QUOTE[0])
            feeds = feeds[np.searchsorted(quotes, feeds) % 2 == 0]
        return feeds + 1

    def is_blank(self, view: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """See `Dialect`. In a single column, a blank line is a null."""
        if self._has_one_column:
            return np.zeros(len(view), np.bool_)
        return np.isin(view, [ord("\n"), ord("\r")])

    def header(self, row: bytes) -> list[str] | None:
        """See `Dialect`."""
        if not self._header:
            return None
        return next(plain.reader([row.decode()], delimiter=self._delimiter), [])

    def parse(self, data: bytes, schema: pa.Schema, header: list[str] | None) -> pa.Table:
        """See `Dialect`."""
        return self._read(data, schema.names if header is None else header, schema).cast(schema)

    def infer(self, data: bytes, header: list[str] | None) -> pa.Schema:
        """See `Dialect`. Columns without a header are f0, f1, …"""
        return self._read(data, header, None).schema

    def _read(self, data: bytes, names: list[str] | None, schema: pa.Schema | None) -> pa.Table:
        return arrow.read_csv(
            pa.BufferReader(data),
            arrow.ReadOptions(
                use_threads=False,
                block_size=len(data) + 1,
                column_names=names,
                autogenerate_column_names=names is None,
            ),
            arrow.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=not self._has_one_column
            ),
            arrow.ConvertOptions(
                column_types=schema,
                include_columns=None if schema is None else schema.names,
                null_values=self._nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
