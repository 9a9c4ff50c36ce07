"""A count that knows all its keys before it is looked at, and a sink that notes up to when rows had come to it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import SparkContext

import seep
from benchmarks import pipelines
from benchmarks.keys import AtRandom, InTurn
from primitives.state.frame import Frame
from seep.operators.definition import Input
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.rows.position import rows_up_to
from seep.sinks.definition import SinkDefinition, SinkStore

EPOCH = 0.02
#: Seconds until all state is there, or anything else that is waited for has happened.
PATIENCE = 180.0

#: A commit: when it was (unix time), and up to when the rows were due that it has; both in microseconds.
COMMIT = np.dtype([("at", np.int64), ("due", np.int64)])
_ROWS = pa.schema([("key", pa.int64()), ("due", pa.int64())])
_COUNTS = pa.schema([("key", pa.int64()), ("n", pa.int64())])

#: Seconds (unix time), from and to.
Span = tuple[float, float]
Milliseconds = NDArray[np.float64]


# -- the query --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """The rows to count, and how the query counts them."""

    keys: int
    rate: float | None = None  #: rows per second, of keys at random; None for as many as can be
    slot_bits: int = 8
    parallelism: int = 2
    moves: bool = True  #: or else the counts are kept by an operator that is stateless to the protocol
    on_disk: bool = False


def counts(load: Load, notes: Path) -> seep.Query:
    """fill, source → count → sink: each key once, as soon as can be, and keys at random by the rate."""
    query = seep.Query("filled")
    fill, source = (
        seep.sources.generator(columns, _ROWS, rows=rows, time="due", stamp="due")
        for columns, rows in ((InTurn(load.keys), load.keys), (AtRandom(load.keys), None))
    )
    rows = query.source("fill", fill).union(query.source("source", source, rate=load.rate)).key_by("key")
    options: Any = {"parallelism": load.parallelism, "slot_bits": load.slot_bits}
    if load.moves:
        counted = rows.aggregate("count", n=seep.count(), on_disk=load.on_disk, **options)
    else:
        counted = rows.apply("count", Unmovable, **options)
    counted.sink("sink", Clocked(notes))
    return query


class Unmovable(seep.StatelessOperator):
    """A count of which nobody knows that it is state: it has no slots, no checkpoints, and cannot move."""

    def __init__(self) -> None:
        self._counts = Frame("counts", {"key": pa.int64()}, {"n": pa.int64()}, slot_bits=0)

    def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
        """Keys and counts."""
        return _COUNTS

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        """The counts that change."""
        rows = self._counts.add(inputs[0]["key"], n=1)
        return self._counts.take(np.unique(rows))


# -- its sink ---------------------------------------------------------------------------------------------------------


class Clocked(SinkDefinition):
    """Writes to a directory of this machine. For one instance whose node is not killed: it fences nobody."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def check(self, operator: str, schema: pa.Schema) -> None:
        """Whatever the columns are."""

    def store(self, operator: str, schema: pa.Schema) -> Clock:  # noqa: ARG002
        """See `SinkDefinition.store`."""
        return Clock(self._directory)


class Clock(SinkStore):
    """A file with a `COMMIT` for each epoch. The event time is when rows are due, so the watermark says up to when."""

    def __init__(self, directory: Path) -> None:
        self._file = open(directory / "commits", "ab", buffering=0)  # noqa: SIM115

    def open(self, sink: Incarnation) -> int:  # noqa: ARG002
        return 0

    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:  # noqa: ARG002
        self._file.write(np.array([(time.time_ns() // 1000, watermark)], COMMIT).data)
        return epoch

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Commits:
    """The commits that a sink has recorded."""

    at: NDArray[np.float64]  #: unix time
    due: NDArray[np.float64]  #: up to when rows were due

    @classmethod
    def read(cls, directory: Path) -> Commits:
        noted = np.fromfile(directory / "commits", COMMIT)
        noted = noted[noted["due"] < MAX_WATERMARK]
        return cls(noted["at"] / 1e6, noted["due"] / 1e6)

    def latencies(self, span: Span) -> Milliseconds:
        """Returns the latency, up to its commit, of a row due at each millisecond of the span."""
        due = np.arange(span[0], min(span[1], self.due[-1]), 0.001)
        return (self.at[np.searchsorted(self.due, due)] - due) * 1000

    def largest_gap(self, span: Span) -> float:
        """The longest time between two commits, in milliseconds, of those that lie partly in the span."""
        concerned = (self.at[1:] > span[0]) & (self.at[:-1] < span[1])
        return float(np.diff(self.at)[concerned].max() * 1000)


# -- its runs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filled:
    """A run in which all keys are there."""

    run: seep.Run
    notes: Path

    def latencies(self, span: Span) -> Milliseconds:
        """See `Commits`; of those up to now."""
        return Commits.read(self.notes).latencies(span)

    def largest_gap(self, span: Span) -> float:
        """See `Commits`; of those up to now."""
        return Commits.read(self.notes).largest_gap(span)

    def watch(self, seconds: float) -> Span:
        """Lets the run go on for so long."""
        begin = time.time()
        pipelines.watch(self.run, seconds)
        return begin, time.time()

    def until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > deadline:
                events = [*map(str, self.run.events)]
                raise seep.InternalError(f"{what} has not come within {PATIENCE:g} s; events: {events}")
            pipelines.watch(self.run, 0.05)

    def unix(self, at: float) -> float:
        """A time of the run."""
        return time.time() - self.run.events.now + at

    def backed_up(self) -> None:
        """Returns when all that is known now is in recorded backups."""
        process = self.run.manager_process
        ticked = self.caught_up()
        self.run.checkpoint("count")
        self.until(lambda: process.safe_epoch("count") >= ticked, "a backup")

    def caught_up(self) -> int:
        """Returns when all epochs that have begun by now are committed: the last of them."""
        ticked = self.run.status().ticked
        self.until(lambda: self.run.status().committed >= ticked, f"the commit of epoch {ticked}")
        return ticked

    def processor_seconds(self) -> float:
        """That the nodes have used so far; not the driver, which does other things too."""
        ticks = 0
        for node in self.run.nodes.values():
            fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # in user and in kernel mode
        return ticks / os.sysconf("SC_CLK_TCK")

    def rows(self) -> int:
        """That the source has read with keys at random."""
        return rows_up_to(self.run.positions("source"))


@contextmanager
def filled(spark: SparkContext, load: Load, **options: Any) -> Iterator[Filled]:
    """A run with all keys, which goes on by the rate; both sources share a node, if no more are asked for."""
    with tempfile.TemporaryDirectory() as directory:
        notes = Path(directory)
        given = {"epoch": EPOCH, "nodes": load.parallelism + 2, "spare": 0} | options
        with seep.launch(counts(load, notes), spark, **given) as run:
            found = Filled(run, notes)
            found.until(lambda: rows_up_to(run.positions("fill")) == load.keys, "the last key")
            found.caught_up()
            yield found
