"""Runs a query in this process for tests, deterministically, with failures and changes at chosen points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy

import pyarrow as pa

from policies.balance.loads import Balancer
from policies.balance.settings import BalanceSettings
from policies.scaling.decision import Policy
from policies.scaling.settings import ScalingSettings
from primitives.errors import UserError
from seep.query.preview import Preview
from seep.query.program import Program
from seep.query.query import Query
from seep.query.stream import Stream
from seep.query.vertex import streams_into
from seep.sinks import collect
from seep.testing.in_process import InProcess
from seep.testing.scripted import BackUp, Kill, Notice, Pause, Restart, Savepoint, Scale, Script

__all__ = [
    "BackUp",
    "InProcess",
    "Kill",
    "Notice",
    "Pause",
    "Restart",
    "Savepoint",
    "Scale",
    "preview",
    "rows",
    "run",
    "script",
]

#: Rows that each source reads in an epoch, at most.
_ROWS_PER_EPOCH = 1_000

#: A source of the given batches, one per epoch, with cues between them.
script = Script


def run(
    query: Query | Program,
    *,
    nodes: int = 3,
    parallelism: Mapping[str, int] | None = None,
    checkpoint_every: int = 4,
    rows_per_epoch: int = _ROWS_PER_EPOCH,
    seed: int | None = None,
    epochs: int = 100_000,
    scaling: ScalingSettings | Policy | None = None,
    balance: BalanceSettings | Balancer | None = None,
    capacity: float | None = None,
) -> dict[str, pa.Table]:
    """Runs a query to the end of its input and returns the rows of each sink, of any kind; see `InProcess`."""
    with InProcess(
        query,
        nodes=nodes,
        parallelism=parallelism,
        checkpoint_every=checkpoint_every,
        rows_per_epoch=rows_per_epoch,
        seed=seed,
        scaling=scaling,
        balance=balance,
        capacity=capacity,
    ) as process:
        process.run(epochs)
        return process.tables


def preview(stream: Stream) -> pa.Table:
    """Returns the rows of a stream: runs only the operators that it depends on, and does not change its query.

    >>> import seep
    >>> numbers = seep.Query("numbers").source("numbers", script(pa.record_batch({"n": [1, 2]})))
    >>> preview(numbers.map("double", lambda batch: {"n": pa.compute.multiply(batch["n"], 2)}))["n"].to_pylist()
    [2, 4]
    """
    return run(_query_of(stream))["preview"]


def first_rows(stream: Stream, rows: int, epochs: int) -> Preview:
    """Returns the first rows of a stream; see `Stream.preview`."""
    if rows < 1 or epochs < 1:
        raise UserError(f"preview of {rows} rows in {epochs} epochs: choose whole numbers from 1 on")
    with InProcess(_query_of(stream), rows_per_epoch=max(rows, _ROWS_PER_EPOCH)) as process:
        for _ in range(epochs):
            process.pulse()
            process.settle()
            if process.finished or process.tables["preview"].num_rows >= rows:
                break
        found = process.tables["preview"]
        return Preview(stream.name, found.slice(0, rows), process.finished and found.num_rows <= rows)


def _query_of(stream: Stream) -> Query:
    """Returns a query of the operators that a stream depends on, with a sink `preview`."""
    query = copy(stream.query)
    query.vertices = {name: stream.query.vertices[name] for name in _leading_to(stream)}
    stream_in_copy = copy(stream)
    stream_in_copy.query = query
    stream_in_copy.sink("preview", collect())
    return query


def _leading_to(stream: Stream) -> Iterator[str]:
    for origin in stream.origins:
        for _, further in streams_into(stream.query.vertices[origin]):
            yield from _leading_to(further)
        yield origin


def rows(table: pa.Table) -> Counter[str]:
    """Counts each row of a table: the counts are equal for tables with the same rows in any order.

    >>> rows(pa.table({"n": [1, 2, 1]})) == rows(pa.table({"n": [2, 1, 1]}))
    True
    """
    return Counter(map(repr, table.to_pylist()))
