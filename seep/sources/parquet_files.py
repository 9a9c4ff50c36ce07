"""The Parquet source: reads the row groups of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from primitives.errors import EnvironmentFault, UserError
from seep.rows.batches import concat
from seep.rows.times import Duration, event_times, is_event_time
from seep.sources.base import ReaderDefinition, check_partitions
from seep.sources.files import PARTITIONS, Parts, absolute, content_of, resolve
from seep.sources.reader import Block, SourceReader

#: The number of rows decoded at a time, so that memory does not depend on the size of row groups.
_DECODED = 1 << 16


def parquet(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    time: str | None = None,
    out_of_order: Duration = 0,
    partitions: int = PARTITIONS,
) -> Parquet:
    """Reads the rows of a Parquet file, of files that match a pattern, or of files in a directory.

    With `columns`, only these are read. Row groups are divided among at most `partitions` partitions: each partition
    has consecutive row groups in the order of file names; with `time`, they are dealt in the order of their time.
    """
    return Parquet(path, columns, time, out_of_order, check_partitions(partitions))


class RowGroup(NamedTuple):
    """A row group of a file."""

    path: str
    number: int
    rows: int
    earliest: int | None = None  #: the earliest event time, if the file's statistics have it


class Parquet(ReaderDefinition):
    """See `parquet`. It lists its files once, before it is sent to the nodes."""

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str] | None,
        time: str | None,
        out_of_order: Duration,
        partitions: int,
    ) -> None:
        super().__init__(time, out_of_order)
        self.by_time = time is not None
        self._path = absolute(path)
        self._columns = columns
        self._most = partitions

    @cached_property
    def _files(self) -> list[tuple[str, pa.Schema, list[RowGroup]]]:
        return [_describe(file.path, self._time) for file in resolve(self._path, (".parquet", ".pq"))]

    @cached_property
    def _groups(self) -> Parts[RowGroup]:
        groups = [group for _, _, groups in self._files for group in groups if group.rows]
        return Parts.of(groups, [group.rows for group in groups], self._most, by_time=_by_time(groups))

    @cached_property
    def schema(self) -> pa.Schema:
        path, schema, _ = self._files[0]
        return _selected(path, schema, self._columns)

    @property
    def content(self) -> str:
        rows = [(path, sum(group.rows for group in groups)) for path, _, groups in self._files]
        return f"{super().content}, {content_of(rows)} by {self.time or 'name'}"

    @property
    def partitions(self) -> int:
        return len(self._groups.neighbours)

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
        return ParquetReader(self._groups, self.schema, self.by_time)


class ParquetReader(SourceReader):
    """Decodes each partition as a stream, which it opens again if the offset jumps.

    An offset is a number of rows of a partition; if partitions are by time, in a list of one. Earlier versions did not
    have partitions by time.
    """

    def __init__(self, groups: Parts[RowGroup], schema: pa.Schema, by_time: bool = False) -> None:
        self._groups = groups
        self._schema = schema
        self._by_time = by_time
        self._streams: dict[int, _Stream] = {}

    def start(self, partition: int) -> int | list[int]:  # noqa: ARG002
        """See `SourceReader`."""
        return [0] if self._by_time else 0

    def earliest(self, partition: int) -> int | None:
        """See `SourceReader`."""
        known = [group.earliest for group in self._groups.by_time[partition] if group.earliest is not None]
        return min(known, default=None) if len(known) == len(self._groups.by_time[partition]) else None

    def read(self, partition: int, offset: int | list[int], limit: int) -> Block:
        """See `SourceReader`."""
        row, groups = (
            (offset, self._groups.neighbours) if isinstance(offset, int) else (offset[0], self._groups.by_time)
        )
        stream = self._streams.get(partition)
        if stream is None or stream.offset != row:
            stream = self._streams[partition] = _Stream(groups[partition], self._schema, row)
        rows = concat(stream.take(limit), self._schema)
        if stream.ended:
            self.release(partition)
        return Block(rows, stream.offset if isinstance(offset, int) else [stream.offset], stream.ended)

    def release(self, partition: int) -> None:
        """See `SourceReader`."""
        self._streams.pop(partition, None)


class _Stream:
    """The rows of some row groups, from an offset."""

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
        """Returns the next rows, at most `limit`."""
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


def _describe(path: str, time: str | None) -> tuple[str, pa.Schema, list[RowGroup]]:
    try:
        with pq.ParquetFile(path) as file:
            kind = _type_of(file.schema_arrow, time)
            groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
            found = [RowGroup(path, i, group.num_rows, _earliest(group, time, kind)) for i, group in enumerate(groups)]
            return path, file.schema_arrow, found
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a Parquet file that can be read: {error}") from error


def _type_of(schema: pa.Schema, time: str | None) -> pa.DataType | None:
    """Returns the type of the event time, if there is such a column."""
    index = -1 if time is None else schema.get_field_index(time)
    return schema.field(index).type if index >= 0 and is_event_time(schema.field(index).type) else None


def _earliest(group: Any, time: str | None, kind: pa.DataType | None) -> int | None:
    """Returns the earliest event time of a row group from its statistics, if it has them."""
    columns = map(group.column, range(group.num_columns)) if kind is not None else ()
    for statistics in (column.statistics for column in columns if column.path_in_schema == time):
        if statistics is not None and statistics.has_min_max:
            if "nanoseconds" in statistics.logical_type.to_json():  # which a Python datetime cannot hold
                return int(statistics.min_raw) // 1_000
            return int(event_times(pa.array([statistics.min], kind))[0])
    return None


def _by_time(groups: list[RowGroup]) -> list[RowGroup]:
    """Sorts row groups by time if all have statistics; otherwise keeps the order of the files."""
    known = [group for group in groups if group.earliest is not None]
    return sorted(groups, key=lambda group: group.earliest or 0) if len(known) == len(groups) else groups


def _selected(path: str, schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    names = schema.names if columns is None else columns
    for name in names:
        if schema.get_field_index(name) < 0:
            raise UserError(f"{path} has no column {name!r}; its columns are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names])
