"""The Parquet source: row groups of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from primitives.errors import EnvironmentFault, UserError
from seep.operators.batches import concat
from seep.query.times import Duration
from seep.sources.base import ReaderDefinition, check_partitions
from seep.sources.files import PARTITIONS, absolute, resolve, share_out
from seep.sources.reader import Block, SourceReader

#: Rows that are decoded at a time, so that memory does not depend on the size of row groups.
_DECODED = 1 << 16


def parquet(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    time: str | None = None,
    out_of_order: Duration = 0,
    partitions: int = PARTITIONS,
) -> Parquet:
    """The rows of a Parquet file, of the files that match a pattern, or of those in a directory.

    With `columns`, only these are read. Row groups, in the order of file names, are shared out over at most
    `partitions` partitions: neighbours stay together.
    """
    return Parquet(path, columns, time, out_of_order, check_partitions(partitions))


class RowGroup(NamedTuple):
    """A row group of a file."""

    path: str
    number: int
    rows: int


class Parquet(ReaderDefinition):
    """See `parquet`. Its files are looked up once, before it travels."""

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str] | None,
        time: str | None,
        out_of_order: Duration,
        partitions: int,
    ) -> None:
        super().__init__(time, out_of_order)
        self._path = absolute(path)
        self._columns = columns
        self._most = partitions

    @cached_property
    def _files(self) -> list[tuple[str, pa.Schema, list[RowGroup]]]:
        return [_describe(file.path) for file in resolve(self._path, (".parquet", ".pq"))]

    @cached_property
    def _groups(self) -> list[list[RowGroup]]:
        groups = [group for _, _, groups in self._files for group in groups if group.rows]
        return share_out(groups, [group.rows for group in groups], self._most)

    @cached_property
    def schema(self) -> pa.Schema:
        path, schema, _ = self._files[0]
        return _selected(path, schema, self._columns)

    @property
    def partitions(self) -> int:
        return len(self._groups)

    def check_data(self) -> None:
        for path, schema, _ in self._files:
            found = _selected(path, schema, self.schema.names)
            for field in self.schema:
                if found.field(field.name).type != field.type:
                    raise UserError(
                        f"column {field.name!r} is {found.field(field.name).type} in {path}, "
                        f"but {field.type} in {self._files[0][0]}; files of one source must have the same columns"
                    )

    def reader(self) -> SourceReader:
        return ParquetReader(self._groups, self.schema)


class ParquetReader(SourceReader):
    """Offsets count the rows of a partition. Each partition is decoded as a stream, opened again after a jump."""

    def __init__(self, groups: list[list[RowGroup]], schema: pa.Schema) -> None:
        self._groups = groups
        self._schema = schema
        self._streams: dict[int, _Stream] = {}

    def read(self, partition: int, offset: int, limit: int) -> Block:
        """See `SourceReader`."""
        stream = self._streams.get(partition)
        if stream is None or stream.offset != offset:
            stream = self._streams[partition] = _Stream(self._groups[partition], self._schema, offset)
        rows = concat(stream.take(limit), self._schema)
        if stream.ended:
            self.release(partition)
        return Block(rows, stream.offset, stream.ended)

    def release(self, partition: int) -> None:
        """See `SourceReader`."""
        self._streams.pop(partition, None)


class _Stream:
    """The rows of some row groups from an offset on."""

    def __init__(self, groups: list[RowGroup], schema: pa.Schema, offset: int) -> None:
        ends = list(accumulate(group.rows for group in groups))
        done = sum(end <= offset for end in ends)
        self.offset = ends[done - 1] if done else 0
        self._total = ends[-1] if ends else 0
        self._batches = _decode(groups[done:], schema)
        self._rest: pa.RecordBatch | None = None
        self.take(offset - self.offset)

    @property
    def ended(self) -> bool:
        return self.offset >= self._total

    def take(self, limit: int) -> list[pa.RecordBatch]:
        """The next rows, `limit` of them if there are as many."""
        taken: list[pa.RecordBatch] = []
        while limit > 0 and not self.ended:
            batch = next(self._batches) if self._rest is None else self._rest
            taken.append(batch[:limit])
            self._rest = batch[limit:] if len(batch) > limit else None
            self.offset += len(taken[-1])
            limit -= len(taken[-1])
        return taken


def _decode(groups: list[RowGroup], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path, of_file in groupby(groups, key=lambda group: group.path):
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                for group in of_file:
                    _check_unchanged(file, group)
                    for batch in file.iter_batches(_DECODED, row_groups=[group.number], columns=schema.names):
                        yield pa.record_batch([batch[name] for name in schema.names], schema=schema)
        except (pa.ArrowException, KeyError) as error:
            raise EnvironmentFault(f"{path} cannot be read any more as it was at the start: {error}") from error


def _check_unchanged(file: pq.ParquetFile, group: RowGroup) -> None:
    metadata = file.metadata
    if metadata.num_row_groups <= group.number or metadata.row_group(group.number).num_rows != group.rows:
        raise EnvironmentFault(f"{group.path} is not the file any more that it was at the start: its row groups differ")


def _describe(path: str) -> tuple[str, pa.Schema, list[RowGroup]]:
    try:
        with pq.ParquetFile(path) as file:
            rows = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
            return path, file.schema_arrow, [RowGroup(path, number, count) for number, count in enumerate(rows)]
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a Parquet file that can be read: {error}") from error


def _selected(path: str, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    names = schema.names if columns is None else columns
    for name in names:
        if schema.get_field_index(name) < 0:
            raise UserError(f"{path} has no column {name!r}; its columns are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names])
