"""The queries that are measured, and how a run of one is watched and brought to its end."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import seep
from benchmarks.keys import KEYS, Columns, Numbers
from benchmarks.notes import Noting
from primitives.graph import InstanceId
from seep.rows.position import rows_up_to

#: Seconds that a run may take to finish what it has read.
_PATIENCE = 120.0

_SOURCE, _SINK = InstanceId("source", 0), InstanceId("sink", 0)
_KEYS = pa.schema([("key", pa.int64())])
_DUE_KEYS = pa.schema([("key", pa.int64()), ("due", pa.int64())])


def due_counts(columns: Columns, directory: Path) -> seep.Query:
    """source -> map -> count -> sink: the counts changed in each epoch, and when the last row of each was due."""
    query = seep.Query("due-counts")
    source = query.source("source", seep.sources.generator(columns, _DUE_KEYS, stamp="due"))
    mapped = source.map("map", _folded).key_by("key")
    mapped.aggregate("count", n=seep.count(), due=seep.max("due")).sink("sink", Noting(directory))
    return query


def end_counts(columns: Columns) -> seep.Query:
    """source -> two counts -> sink: all counts, when the input has ended."""
    query = seep.Query("end-counts")
    source = query.source("source", seep.sources.generator(columns, _KEYS)).key_by("key")
    source.aggregate("count", emit="end", parallelism=2, n=seep.count()).sink("sink", seep.sinks.collect())
    return query


def _folded(batch: pa.RecordBatch) -> dict[str, pa.Array | Numbers]:
    """Some work for the map: other keys, as many of them."""
    return {"key": KEYS - 1 - batch["key"].to_numpy(), "due": batch["due"]}


def rows_read(run: seep.Run) -> int:
    """Returns the number of rows that the source has read, by the source log."""
    return rows_up_to(run.positions("source"))


def rows_committed(run: seep.Run) -> int:
    """Returns the number of rows in epochs that the sink has committed."""
    return rows_up_to(run.manager_process.positions_behind(_SOURCE, _SINK))


def watch(run: seep.Run, seconds: float) -> None:
    """Lets a run go on for so long; raises what it fails of meanwhile."""
    if run.wait(seconds):
        raise seep.InternalError("the run has ended by itself, though its input has no end")


def finish(run: seep.Run) -> None:
    """Ends the input, and waits until all that was read is committed."""
    run.finish()
    if not run.wait(_PATIENCE):
        raise seep.InternalError(f"the run has not finished within {_PATIENCE:g} s; its state is {run.status()}")
