"""The formats of file sinks: the columns that they can hold, and how tables are written and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from primitives.errors import UserError
from seep.sinks import json_text
from seep.sources.csv_files import CsvDialect
from seep.sources.dialect import Dialect
from seep.sources.json_files import JsonDialect

#: The most rows of a batch in an Arrow file.
_ARROW_ROWS = 1 << 16


class FileFormat(ABC):
    """A format in which tables are written to files."""

    name: str
    suffix: str

    @abstractmethod
    def can_hold(self, kind: pa.DataType) -> bool:
        """Whether values of a type can be written, and are equal when read."""

    @abstractmethod
    def write(self, table: pa.Table, stream: BinaryIO) -> None:
        """Writes the whole file."""

    @abstractmethod
    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Reads what `write` has written."""

    def check(self, schema: pa.Schema) -> None:
        """Raises UserError if the format cannot hold a column."""
        for field in schema:
            if not self.can_hold(field.type):
                raise UserError(
                    f"column {field.name!r} of type {field.type} cannot be written as {self.name}; "
                    f"convert it before the sink, or write {'other columns' if self.name == 'Parquet' else 'Parquet'}"
                )


class ParquetFormat(FileFormat):
    """Parquet, with columns of almost any type."""

    name = "Parquet"
    suffix = "parquet"

    def can_hold(self, kind: pa.DataType) -> bool:
        """See `FileFormat`. It tries to write a table without rows."""
        try:
            pq.write_table(pa.schema([("column", kind)]).empty_table(), pa.BufferOutputStream())
        except (pa.ArrowException, NotImplementedError):
            return False
        return True

    def write(self, table: pa.Table, stream: BinaryIO) -> None:
        """See `FileFormat`."""
        pq.write_table(table, stream)

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """See `FileFormat`."""
        with pq.ParquetFile(path) as file:
            return file.read().cast(schema)


class TextFormat(FileFormat):
    """A text format, read in the same way as by sources."""

    @abstractmethod
    def dialect(self, schema: pa.Schema) -> Dialect:
        """Returns the dialect in which rows of these columns are written."""

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """See `FileFormat`."""
        data, dialect = path.read_bytes(), self.dialect(schema)
        end = data.find(b"\n") + 1
        header = dialect.header(data[:end])
        rows = data if header is None else data[end:]
        return dialect.parse(rows, schema, header) if rows else schema.empty_table()


class CsvFormat(TextFormat):
    """CSV with a header. Text is in quotes, so that it differs from null."""

    name = "CSV"
    suffix = "csv"

    def dialect(self, schema: pa.Schema) -> Dialect:
        """See `TextFormat`."""
        return CsvDialect(schema=schema)

    def can_hold(self, kind: pa.DataType) -> bool:
        """See `FileFormat`."""
        return kind != pa.string_view() and json_text.is_writable(kind)

    def write(self, table: pa.Table, stream: BinaryIO) -> None:
        """See `FileFormat`."""
        pacsv.write_csv(table, stream)


class JsonLinesFormat(TextFormat):
    """JSON, with one object on each line."""

    name = "JSON lines"
    suffix = "jsonl"

    def dialect(self, schema: pa.Schema) -> Dialect:  # noqa: ARG002
        """See `TextFormat`."""
        return JsonDialect()

    def can_hold(self, kind: pa.DataType) -> bool:
        """See `FileFormat`."""
        return json_text.is_writable(kind)

    def write(self, table: pa.Table, stream: BinaryIO) -> None:
        """See `FileFormat`."""
        for batch in table.to_batches():
            stream.write(json_text.lines(batch))


class ArrowFormat(FileFormat):
    """Arrow files, with columns of any type: files are mapped into memory, not parsed."""

    name = "Arrow"
    suffix = "arrow"

    def can_hold(self, kind: pa.DataType) -> bool:  # noqa: ARG002
        """See `FileFormat`."""
        return True

    def write(self, table: pa.Table, stream: BinaryIO) -> None:
        """See `FileFormat`. Small batches are combined, because each batch costs a reader time."""
        with pa.ipc.new_file(stream, table.schema) as file:
            file.write_table(table.combine_chunks(), max_chunksize=_ARROW_ROWS)

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """See `FileFormat`."""
        with pa.memory_map(str(path)) as mapped:
            return pa.ipc.open_file(mapped).read_all().cast(schema)


PARQUET, CSV, JSON_LINES, ARROW = ParquetFormat(), CsvFormat(), JsonLinesFormat(), ArrowFormat()

#: The formats by the suffix of files.
FORMATS: dict[str, FileFormat] = {each.suffix: each for each in (PARQUET, CSV, JSON_LINES, ARROW)}
