"""The logs that tests run the queries on, how long their windows are, and how queries are run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from nexmark.driver import in_order
from nexmark.generator import EventSettings
from nexmark.log import log
from nexmark.queries import QUERIES
from nexmark.schema import LOG
from nexmark.source import LoggedEvents, WantedColumns
from primitives.graph import Kind
from seep import sinks
from seep.query.query import Query
from seep.sinks.definition import SinkDefinition
from seep.sources.reader import Block, SourceReader
from seep.testing import InProcess

#: Events out of order are so within groups of this size, of which there is a whole number.
GROUP = 128
EVENTS = 72 * GROUP
#: A quarter of an hour of events; windows that are shorter than in the specification, so that there are many of them.
RATE = 10
SHORT: dict[str, tuple[int, ...]] = {
    "Q5": (60_000, 4_000),
    "Q8": (300_000,),
    "NBQ8": (300_000,),
    "NBQX": (20_000, 300_000),
}
SIZES: dict[str, dict[str, Any]] = {
    "Q5": {"slide": 4_000},
    "Q8": {"size": 300_000},
    "NBQ8": {"size": 300_000},
    "NBQX": {"gaps": (20_000,), "size": 300_000},
}


class Logs(NamedTuple):
    """The same events, in order and out of order."""

    ordered: Path
    disordered: Path


def write_logs(folder: Path, events: int = EVENTS, rate: int = RATE) -> Logs:
    logs = Logs(folder / "ordered.parquet", folder / "disordered.parquet")
    for path, group in zip(logs, (1, GROUP), strict=True):
        settings = EventSettings(rate=rate, group=group, seed=4)
        pq.write_table(pa.Table.from_batches(log(settings, events), LOG), path, row_group_size=5_000)
    return logs


class Gated(LoggedEvents):
    """A log of which the last part is only there when a file is."""

    def __init__(self, wanted: WantedColumns, path: Path, gate: Path) -> None:
        super().__init__(wanted, path)
        self._gate = gate

    def reader(self) -> SourceReader:
        return _Gate(super().reader(), self._gate)


class _Gate(SourceReader):
    def __init__(self, log: SourceReader, gate: Path) -> None:
        self._log = log
        self._gate = gate

    def read(self, partition: int, offset: int, limit: int) -> Block:
        most = limit if self._gate.exists() else min(limit, EVENTS * 3 // 4 - offset)
        block = self._log.read(partition, offset, max(most, 1))
        return block if most > 0 else Block(block.rows.slice(0, 0), offset)


def query_on(name: str, log: Path, sink: SinkDefinition | None = None, gate: Path | None = None) -> Query:
    """A query on a log, with windows as in `SIZES`; with a gate, its input does not end before that is opened."""
    sizes = SIZES.get(name.removesuffix("C"), {})

    def source(wanted: WantedColumns) -> LoggedEvents:
        return LoggedEvents(wanted, log) if gate is None else Gated(wanted, log, gate)

    return QUERIES[name].between(source, sink or sinks.collect(), **sizes)


def stateful(query: Query) -> list[str]:
    graph = query.compile().graph
    return [name for name in graph.order if graph.kind(name) is Kind.STATEFUL]


def calmly(name: str, log: Path) -> pa.Table:
    """The result of a query to which nothing happens, with two instances of everything that has state."""
    query = query_on(name, log)
    parallelism = dict.fromkeys(stateful(query), 2)
    with InProcess(query, parallelism=parallelism, rows_per_epoch=4_000) as process:
        process.run()
        return in_order(process.tables["out"])


def roughly(name: str, log: Path, seed: int) -> pa.Table:
    """The result of a query whose operators grow, are lost, shrink and are lost again while rows come."""
    query, share = query_on(name, log), LoggedEvents(QUERIES[name].wanted, log).share()
    operators = query.compile().graph.order
    with InProcess(
        query, nodes=4, checkpoint_every=3, rows_per_epoch=int(EVENTS * share / 20) + 1, seed=seed
    ) as process:
        _go_on(process, 3)
        for operator in stateful(query):
            process.scale_out(operator, 3)
        _go_on(process, 5, but=7)
        for operator in operators:
            process.kill(operator)
            process.settle()
        _go_on(process, 4)
        for operator in stateful(query):
            process.scale_in(operator, 2)
        _go_on(process, 2, but=11)
        for operator in stateful(query):
            process.kill(operator, process.instances(operator)[-1])
            process.settle()
        assert not process.finished
        process.run()
        return in_order(process.tables["out"])


def _go_on(process: InProcess, epochs: int, but: int | None = None) -> None:
    """So many epochs; the last one only until so many messages are delivered, if that is said."""
    for _ in range(epochs - 1):
        process.pulse()
        process.settle()
    process.pulse()
    if but is None:
        process.settle()
    else:
        for _ in range(but):
            process.step()
