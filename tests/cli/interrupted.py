"""A script that runs a query and waits for it, and the query, for tests of Ctrl-C.

Run it with the name of a query; `seep run` takes the queries by themselves.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

import numpy as np
import pyarrow as pa

import seep

SCHEMA = pa.schema([("key", pa.int64())])


def rows(_: int, first: int, count: int) -> dict[str, object]:
    return {"key": np.zeros(count, np.int64) + 0 * first}


def for_ever(batch: pa.RecordBatch) -> dict[str, object]:
    """Never comes to its end, once there is something to do."""
    if len(batch):
        threading.Event().wait()
    return {"key": batch["key"]}


def counting(name: str) -> seep.Query:
    query = seep.Query(name)
    source = query.source("rows", seep.sources.generator(rows, SCHEMA), rate=5_000)
    stream = source.map("stuck", for_ever, SCHEMA) if name == "endless" else source
    stream.key_by("key").aggregate("total", n=seep.count(), emit="end").sink("out", seep.sinks.collect())
    return query


quick, endless = counting("quick"), counting("endless")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_when_waiting() -> None:
    """Until then Ctrl-C means to this program what it means to any."""
    while "Interrupts" not in repr(signal.getsignal(signal.SIGINT)):
        time.sleep(0.01)
    say("waiting")


if __name__ == "__main__":
    run = seep.launch({"quick": quick, "endless": endless}[sys.argv[1]])
    threading.Thread(target=say_when_waiting, daemon=True).start()
    try:
        run.wait()
    finally:
        say(f"rows read: {run.rows_read}, counted: {sum(run.result('out')['n'].to_pylist())}, {run.phase}")
