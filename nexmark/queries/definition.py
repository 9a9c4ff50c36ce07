"""Nexmark: a query, as the columns that it reads and a function from input streams to the result stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nexmark.generator import EventKind
from nexmark.schema import KINDS
from nexmark.source import ARRIVAL, TIME, EventSource, WantedColumns, kinds_in_words
from seep.query.query import Query
from seep.query.stream import Stream
from seep.rows.rate import Rate
from seep.sinks.definition import SinkDefinition

#: All queries by name, in the order of their definition.
QUERIES: dict[str, Nexmark] = {}

Build = Callable[..., Stream]


@dataclass(frozen=True, slots=True)
class Nexmark:
    """A query without source and sink."""

    name: str
    wanted: WantedColumns
    build: Build  #: gets those streams of people, auctions and bids that the query reads, in this order
    whole: bool  #: whether it reads one stream of all kinds

    def between(
        self,
        source: Callable[[WantedColumns], EventSource],
        sink: SinkDefinition,
        *,
        rate: Rate | None = None,
        **sizes: Any,
    ) -> Query:
        """Returns the query with source and sink; `sizes` are keywords of its function."""
        query = Query(self.name)
        events = query.source(kinds_in_words(self.wanted.kinds), source(self.wanted), rate=rate)
        self.build(*self._streams(events), **sizes).sink("out", sink)
        return query

    def _streams(self, events: Stream) -> list[Stream]:
        if self.whole or not self.wanted.is_mixed:
            return [events]
        return [
            events.flat_map(kinds_in_words([kind]), _Of(int(kind), self.wanted.names(kind)))
            for kind in self.wanted.kinds
        ]


@dataclass(frozen=True, slots=True)
class _Of:
    """Filters the rows of one kind, with the columns that the query reads of it."""

    kind: int
    names: Mapping[str, str]

    def __call__(self, events: pa.RecordBatch) -> pa.RecordBatch:
        columns = pa.record_batch([events[there] for there in self.names.values()], names=list(self.names))
        return columns.filter(pc.equal(events["kind"], self.kind))


def reads(
    name: str,
    *,
    people: tuple[str, ...] = (),
    auctions: tuple[str, ...] = (),
    bids: tuple[str, ...] = (),
    whole: bool = False,
) -> Callable[[Build], Build]:
    """Decorates a function as the query with this name, on these columns, or on `whole` events in one stream.

    The event time is `date_time`, or `arrival_time` if that column is read instead.
    """
    columns = {kind: names for kind, names in zip(EventKind, (people, auctions, bids), strict=True) if names}
    if whole:
        columns = {kind: tuple(KINDS[kind].names) for kind in EventKind}
    times = [time for time in (ARRIVAL, TIME) if all(time in names for names in columns.values())]

    def define(build: Build) -> Build:
        QUERIES[name] = Nexmark(name, WantedColumns(columns, times[0] if times else None), build, whole)
        return build

    return define
