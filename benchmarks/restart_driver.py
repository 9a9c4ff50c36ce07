"""A driver in a process of its own, as restarts are measured: a count that leaves a savepoint, or goes on from one.

    python -m benchmarks.restart_driver save DIRECTORY KEYS
    python -m benchmarks.restart_driver restore DIRECTORY KEYS

`restore` prints, as the last line, when it got how far, in unix time, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import seep
from benchmarks import pipelines
from benchmarks.keys import Numbers
from benchmarks.notes import Noted, Noting
from seep.storage.settings import StorageSettings

#: Bytes of state of a key: itself, and three aggregates.
ROW = 32
BEFORE, AFTER = 2, 3

#: Has no divisor in common with any number of keys that is used here.
_TURN = 1_000_003
_PATIENCE = 600.0
_COLUMNS = pa.schema([("key", pa.int64()), ("due", pa.int64())])


def query(keys: int, notes: Path) -> seep.Query:
    """source -> count, sum and max by key -> sink, which notes when rows come; any `keys` rows have every key once."""
    query = seep.Query("restart")
    source = query.source("source", seep.sources.generator(partial(_in_turn, keys), _COLUMNS, stamp="due"))
    counts = source.key_by("key").aggregate("count", n=seep.count(), total=seep.sum("key"), due=seep.max("due"))
    counts.sink("sink", Noting(notes))
    return query


def _in_turn(keys: int, partition: int, first: int, count: int) -> dict[str, Numbers]:  # noqa: ARG001
    return {"key": np.arange(first, first + count) * _TURN % keys}


def save(directory: Path, keys: int) -> None:
    """Runs until every key is there, and leaves a savepoint."""
    with _launched(directory, "before", keys, parallelism={"count": BEFORE}) as run:
        deadline = time.monotonic() + _PATIENCE
        while pipelines.rows_committed(run) < keys:
            pipelines.watch(run, 0.1)
            assert time.monotonic() < deadline, f"{keys} rows take longer than {_PATIENCE:g} s"
        begin = time.monotonic()
        run.savepoint(_PATIENCE)
        print(json.dumps({"savepoint_s": time.monotonic() - begin}))


def restore(directory: Path, keys: int) -> None:
    """Goes on at another parallelism until there is output."""
    reached = {"main": time.time()}

    def progress(text: str) -> None:
        reached[text.split()[-1]] = time.time()  # Spark, nodes, query

    options: dict[str, Any] = {"parallelism": {"count": AFTER}, "restore": "latest", "progress": progress}
    with _launched(directory, "after", keys, heartbeat=0.02, **options) as run:
        while _restoring(run):
            pipelines.watch(run, 0.01)
        reached["restored"] = time.time()
        while not (noted := Noted.read(directory / "after")).dues.size:
            pipelines.watch(run, 0.01)
        reached["output"] = float(noted.commits["at"][noted.commits["rows"] > 0][0]) / 1e6
    print(json.dumps(reached))


def _launched(directory: Path, name: str, keys: int, **options: Any) -> seep.Run:
    notes = directory / name
    notes.mkdir()
    storage = StorageSettings(location=str(directory / "savepoints"))
    return seep.launch(query(keys, notes), epoch=0.02, checkpoint=None, spare=0, storage=storage, **options)


def _restoring(run: seep.Run) -> bool:
    """Whether some counts do not have their state yet, as far as is known."""
    counts = [each.phase for each in run.status().instances if each.operator == "count"]
    return len(counts) < AFTER or "restoring" in counts


if __name__ == "__main__":
    {"save": save, "restore": restore}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
