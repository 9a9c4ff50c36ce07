"""The sources of the queries: events of some kinds, from a log or generated live, with the columns that are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.generator.model import Ints
from nexmark.schema import KINDS, LOG, log_name
from primitives.errors import UserError
from primitives.state.columnar.fixed import to_numbers
from seep.rows.batches import empty
from seep.sources.base import ReaderDefinition
from seep.sources.parquet_files import Parquet, parquet
from seep.sources.reader import Block, SourceReader

#: The time at which an event arrives, which a query by processing time uses when a log is replayed.
ARRIVAL = "arrival_time"
#: The event time.
TIME = "date_time"


@dataclass(frozen=True, slots=True)
class WantedColumns:
    """The columns that a query reads, by kind.

    Rows of a single kind have just these names. Rows of several kinds have the names of a log, and `kind`; columns of
    other kinds are null.
    """

    columns: Mapping[EventKind, tuple[str, ...]]
    time: str | None = TIME

    @property
    def kinds(self) -> list[EventKind]:
        return sorted(self.columns)

    @property
    def is_mixed(self) -> bool:
        return len(self.columns) > 1

    def names(self, kind: EventKind) -> dict[str, str]:
        """Returns the columns of a kind: names in the query to names in the source."""
        return {name: log_name(kind, name) if name != ARRIVAL else name for name in self.columns[kind]}

    @property
    def log_names(self) -> list[str]:
        """Returns all columns in a log, once each."""
        return list(dict.fromkeys(name for kind in self.kinds for name in self.names(kind).values()))

    @property
    def schema(self) -> pa.Schema:
        if not self.is_mixed:
            (kind,) = self.kinds
            return pa.schema([(name, LOG.field(there).type) for name, there in self.names(kind).items()])
        return pa.schema([LOG.field(name) for name in ("kind", *self.log_names)])


class EventSource(ReaderDefinition):
    """The base of both sources; an instance reads its share of the events by their positions."""

    def __init__(self, wanted: WantedColumns) -> None:
        super().__init__(wanted.time, 0)
        self.wanted = wanted

    @property
    def schema(self) -> pa.Schema:
        return self.wanted.schema

    @abstractmethod
    def share(self) -> float:
        """Returns the fraction of all events that the source emits as rows."""


class GeneratedEvents(EventSource):
    """Generates events during the run: without an end, or the first `count`."""

    def __init__(
        self, wanted: WantedColumns, settings: EventSettings, count: int | None = None, partitions: int = 1
    ) -> None:
        super().__init__(wanted)
        self._settings = settings
        self._count = count
        self._partitions = partitions

    @property
    def partitions(self) -> int:
        return self._partitions

    def share(self) -> float:
        """See `EventSource.share`."""
        return EventGenerator(self._settings).share(self.wanted.kinds)

    def reader(self) -> SourceReader:
        return Maker(self.wanted, EventGenerator(self._settings), self._count, self._partitions)


class Maker(SourceReader):
    """Reads generated events. Partition p of n has positions p, p + n, …; offsets count within a partition."""

    def __init__(self, wanted: WantedColumns, events: EventGenerator, count: int | None, partitions: int) -> None:
        self._wanted = wanted
        self._events = events
        self._count = count
        self._partitions = partitions
        self._cycle = events.settings.cycle
        self._of_cycle = max(round(events.share(wanted.kinds) * self._cycle), 1)

    def read(self, partition: int, offset: int, limit: int) -> Block:
        """See `SourceReader`. Returns at least one row unless no rows are left."""
        end = self._end(partition)
        while end is None or offset < end:
            whole = max(limit // self._of_cycle * self._cycle, limit)
            offsets = np.arange(offset, offset + whole if end is None else min(offset + whole, end))
            positions = offsets if self._partitions == 1 else offsets * self._partitions + partition
            block = self._block(positions, limit, offsets)
            if len(block.rows):
                return block._replace(ended=end is not None and block.offset >= end)
            offset = block.offset
        return Block(empty(self._wanted.schema), offset, ended=True)

    def _end(self, partition: int) -> int | None:
        return None if self._count is None else max(-(-(self._count - partition) // self._partitions), 0)

    def _block(self, positions: Ints, limit: int, offsets: Ints) -> Block:
        numbers = self._events.at(positions)
        found = self._events.where(numbers, self._wanted.kinds)
        end = int(offsets[-1]) + 1 if len(found) <= limit else int(offsets[found[limit]])
        found = found[:limit]
        if not len(found):
            return Block(empty(self._wanted.schema), end)
        chosen = numbers.take(found)
        places = chosen if numbers is positions else positions.take(found)
        return Block(self._rows(chosen, places), end, watermark=self._watermark(int(places[-1])))

    def _watermark(self, last: int) -> int | None:
        if self._wanted.time != TIME:
            return None
        return int(self._events.watermarks(last, last + 1, last=self._count)[0])

    def _rows(self, numbers: Ints, positions: Ints) -> pa.RecordBatch:
        if not self._wanted.is_mixed:
            (kind,) = self._wanted.kinds
            return pa.record_batch(self._columns(kind, numbers, positions), schema=self._wanted.schema)
        kinds = self._events.kinds(numbers)
        parts = {kind: np.flatnonzero(kinds == kind) for kind in self._wanted.kinds}
        made: dict[str, list[tuple[Ints, pa.Array]]] = {name: [] for name in self._wanted.log_names}
        for kind, part in parts.items():
            columns = self._columns(kind, numbers[part], positions[part])
            for name, column in zip(self._wanted.names(kind).values(), columns, strict=True):
                made[name].append((part, column))
        merged = [_merged(LOG.field(name).type, columns, len(numbers)) for name, columns in made.items()]
        return pa.record_batch([pa.array(kinds), *merged], schema=self._wanted.schema)

    def _columns(self, kind: EventKind, numbers: Ints, positions: Ints) -> list[pa.Array]:
        names = self._wanted.columns[kind]
        made = self._events.columns(kind, numbers, [name for name in names if name != ARRIVAL])
        if ARRIVAL in names:
            made[ARRIVAL] = pa.array(self._events.arrivals(positions))
        return [made[name] for name in names]


class LoggedEvents(EventSource):
    """Reads the events of a log, in order, as one partition."""

    def __init__(self, wanted: WantedColumns, path: Path) -> None:
        super().__init__(wanted)
        self._path = path

    @property
    def partitions(self) -> int:
        return 1

    @cached_property
    def _file(self) -> Parquet:
        return parquet(self._path, columns=["kind", "watermark", *self.wanted.log_names], partitions=1)

    def check_data(self) -> None:
        if not self._path.is_file():
            raise UserError(f"there is no log {self._path}; make one with seep nexmark generate")
        for field in self._file.schema:
            if field.type != LOG.field(field.name).type:
                raise UserError(
                    f"column {field.name!r} of the log {self._path} is {field.type}, not {LOG.field(field.name).type}"
                )

    def share(self) -> float:
        """See `EventSource.share`. Estimates it by the first events."""
        first = self._file.reader().read(0, 0, 1 << 16).rows
        wanted = pc.is_in(first["kind"], pa.array(self.wanted.kinds, pa.int8()))
        return max(float(pc.mean(wanted).as_py() or 0), 1 / (1 << 16))

    def reader(self) -> SourceReader:
        return LogReader(self.wanted, self._file.reader())


class LogReader(SourceReader):
    """Reads a log; offsets count its events."""

    def __init__(self, wanted: WantedColumns, log: SourceReader) -> None:
        self._wanted = wanted
        self._log = log
        self._kinds = pa.array(wanted.kinds, pa.int8())

    def read(self, partition: int, offset: int, limit: int) -> Block:
        """See `SourceReader`. Returns at least one row unless no rows are left."""
        while True:
            block = self._log.read(partition, offset, limit)
            found = self._found(block.rows)
            if len(found) or block.ended:
                rows = self._rows(found)
                return Block(rows, block.offset, block.ended, self._watermark(found))
            offset = block.offset

    def release(self, partition: int) -> None:
        """See `SourceReader`."""
        self._log.release(partition)

    def _found(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if len(self._wanted.kinds) == len(KINDS):
            return rows
        return rows.filter(pc.is_in(rows["kind"], self._kinds))

    def _watermark(self, rows: pa.RecordBatch) -> int | None:
        if self._wanted.time != TIME or not len(rows):
            return None
        return int(to_numbers(rows["watermark"])[-1])

    def _rows(self, found: pa.RecordBatch) -> pa.RecordBatch:
        if self._wanted.is_mixed:
            return found.select(self._wanted.schema.names)
        (kind,) = self._wanted.kinds
        columns = [found[name] for name in self._wanted.names(kind).values()]
        return pa.record_batch(columns, schema=self._wanted.schema)


def _merged(kind: pa.DataType, columns: Sequence[tuple[Ints, pa.Array]], count: int) -> pa.Array:
    """Merges columns with the rows of each; the other rows are null."""
    if kind == pa.int64():
        numbers, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
        for rows, column in columns:
            numbers[rows], missing[rows] = to_numbers(column), False
        return pa.array(numbers, mask=missing)
    taken, first = np.zeros(count, np.int64), 1
    for rows, _ in columns:
        taken[rows] = np.arange(first, first + len(rows))
        first += len(rows)
    return pa.concat_arrays([pa.nulls(1, kind), *(column for _, column in columns)]).take(pa.array(taken))


def kinds_in_words(kinds: Sequence[EventKind]) -> str:
    """Returns the name in a query of a source of these kinds.

    >>> kinds_in_words([EventKind.PERSON, EventKind.BID]), kinds_in_words([EventKind.BID])
    ('events', 'bids')
    """
    return "events" if len(kinds) > 1 else ("people", "auctions", "bids")[kinds[0]]
