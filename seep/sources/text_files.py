"""The source of text files, with CSV and JSON lines as dialects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from primitives.errors import UserError
from seep.rows.batches import concat
from seep.rows.times import Duration
from seep.sources.base import ReaderDefinition, check_partitions
from seep.sources.dialect import Dialect
from seep.sources.files import InputFile, Parts, absolute, content_of, resolve
from seep.sources.reader import Block, SourceReader
from seep.sources.text_rows import RowsBegin, TextRows, beginning, first_bad, rows_from

#: The number of bytes from which columns are inferred, if none are given.
_SAMPLE_BYTES = 1 << 20


class TextFiles(ReaderDefinition):
    """A source of text files. It lists its files once, before it is sent to the nodes."""

    def __init__(
        self,
        path: str | Path,
        dialect: Dialect,
        schema: pa.Schema | None,
        time: str | None,
        out_of_order: Duration,
        partitions: int,
    ) -> None:
        super().__init__(time, out_of_order)
        self.by_time = time is not None
        self._path = absolute(path)
        self._dialect = dialect
        self._given = schema
        self._most = check_partitions(partitions)

    @cached_property
    def _files(self) -> list[InputFile]:
        return resolve(self._path, self._dialect.suffixes)

    @cached_property
    def _parts(self) -> Parts[InputFile]:
        return Parts.of(self._files, [file.size + 1 for file in self._files], self._most, by_time=self._files)

    @cached_property
    def schema(self) -> pa.Schema:
        return self._inferred() if self._given is None else self._given

    @property
    def time_remedy(self) -> str:
        if self._given is not None:
            return "make it an integer or a timestamp in schema="
        return (
            "its type was told from the first rows. Text such as 2026-01-31T12:00:00Z is read as a time if you give "
            f"schema=pa.schema([({self.time!r}, pa.timestamp('us', 'UTC')), …]) with all columns that you need"
        )

    @property
    def content(self) -> str:
        return f"{super().content}, {content_of(self._files)} by {self.time or 'name'}"

    @property
    def partitions(self) -> int:
        return len(self._parts.neighbours)

    def _inferred(self) -> pa.Schema:
        file = next((file for file in self._files if file.size), self._files[0])
        begin = beginning(file, self._dialect)
        try:
            sample = rows_from(file, begin.byte, _SAMPLE_BYTES, self._dialect)
            return pa.schema([_widened(field) for field in self._dialect.infer(sample.data, begin.header)])
        except pa.ArrowException as error:
            raise UserError(
                f"the columns of {file.path} cannot be told from its first rows: {error}; give schema="
            ) from error

    def check_data(self) -> None:
        names = self.schema.names
        for file in self._files:
            header = beginning(file, self._dialect).header
            if header is not None and (missing := [name for name in names if name not in header]):
                raise UserError(
                    f"{file.path} has no column {', '.join(map(repr, missing))}; its header has {', '.join(header)}"
                )

    def reader(self) -> SourceReader:
        return TextReader(self._parts, self._dialect, self.schema, self.by_time)


class Offset(NamedTuple):
    """The position where a row begins; stored as a list."""

    file: int  #: the number of the file in its partition
    byte: int = 0
    line: int = 0  #: the number of lines before it, for messages
    by_time: int = 0  #: 1 if the partition is by time; 0 if its files are consecutive, as in earlier versions


class TextReader(SourceReader):
    """Finds the ends of rows itself, so that it can stop after any row; keeps no file open."""

    def __init__(self, parts: Parts[InputFile], dialect: Dialect, schema: pa.Schema, by_time: bool) -> None:
        self._parts = parts
        self._by_time = by_time
        self._dialect = dialect
        self._schema = schema
        self._nothing = concat([], schema)
        self._beginnings: dict[str, RowsBegin] = {}
        self._row_bytes = 64.0  #: an estimate of the bytes of a row

    def start(self, partition: int) -> list[int]:  # noqa: ARG002
        """See `SourceReader`."""
        return list(Offset(0, by_time=int(self._by_time)))

    def read(self, partition: int, offset: Sequence[int], limit: int) -> Block:
        """See `SourceReader`. A block has rows of one file only."""
        at, rows = Offset(*offset), self._nothing
        files = (self._parts.by_time if at.by_time else self._parts.neighbours)[partition]
        while at.file < len(files) and not len(rows):
            rows, at = self._read(files[at.file], at, limit)
        return Block(rows, list(at), at.file >= len(files))

    def _read(self, file: InputFile, at: Offset, limit: int) -> tuple[pa.RecordBatch, Offset]:
        begin = self._beginning(file)
        if at.byte < begin.byte:
            at = at._replace(byte=begin.byte, line=begin.line)
        rows = rows_from(file, at.byte, int(limit * self._row_bytes * 1.1), self._dialect).first(limit)
        batch = self._parse(file, at, rows, begin.header) if len(rows) else self._nothing
        byte = at.byte + len(rows.data)
        if byte >= file.size:
            return batch, at._replace(file=at.file + 1, byte=0, line=0)
        return batch, at._replace(byte=byte, line=at.line + rows.lines)

    def _beginning(self, file: InputFile) -> RowsBegin:
        if file.path not in self._beginnings:
            self._beginnings[file.path] = beginning(file, self._dialect)
        return self._beginnings[file.path]

    def _parse(self, file: InputFile, at: Offset, rows: TextRows, header: list[str] | None) -> pa.RecordBatch:
        def parse(data: bytes, count: int) -> pa.Table:
            table = self._dialect.parse(data, self._schema, header)
            if table.num_rows != count:
                raise pa.ArrowInvalid(f"{table.num_rows} rows, where each line is expected to hold one")
            return table

        self._row_bytes = len(rows.data) / len(rows)
        try:
            return concat(parse(rows.data, len(rows)).to_batches(), self._schema)
        except pa.ArrowException:
            line, reason = first_bad(rows, parse)
            raise UserError(f"{file.path}, line {at.line + line}: {reason}") from None


def _widened(field: pa.Field) -> pa.Field:
    """Widens an inferred type: times in seconds become microseconds, and a column of nulls becomes text."""
    if pa.types.is_timestamp(field.type):
        return field.with_type(pa.timestamp("us", field.type.tz))
    return field.with_type(pa.string()) if pa.types.is_null(field.type) else field
