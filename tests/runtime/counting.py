"""The query that chaos tests run, its oracle in plain Python, and what they wait for."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import seep
from seep.channels.sockets import is_refused
from seep.running.run import Run
from seep.spark.session import Host

SCHEMA = pa.schema([("n", pa.int64())])
#: Rows per second, small enough that a killed node has something to come back to.
RATE = 20_000
KEYS = 997


def numbers(partition: int, first: int, count: int) -> dict[str, Any]:
    return {"n": np.arange(first, first + count, dtype=np.int64) + partition * 1_000_000}


def doubled(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"key": pc.multiply(batch["n"], 7919).to_numpy() % KEYS, "n": batch["n"]}


def counting(rows: int | None = None, partitions: int = 1, emit: str = "end") -> seep.Query:
    """source -> map -> count and sum by key -> collect"""
    query = seep.Query("counting")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=partitions, rows=rows))
    mapped = source.map("map", doubled)
    totals = mapped.key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"), emit=emit)
    totals.sink("out", seep.sinks.collect())
    return query


def expected(run: Run) -> dict[int, tuple[int, int]]:
    """What the counter must have come to, from what the source log says was read."""
    counts, totals = Counter[int](), Counter[int]()
    for partition, position in run.positions("numbers").items():
        for n in range(position[1]):
            value = n + partition * 1_000_000
            counts[value * 7919 % KEYS] += 1
            totals[value * 7919 % KEYS] += value
    return {key: (counts[key], totals[key]) for key in counts}


def found(run: Run) -> dict[int, tuple[int, int]]:
    table = run.result("out")
    rows = {row["key"]: (row["n"], row["total"]) for row in table.to_pylist()}
    assert len(rows) == len(table), "a key came out twice"
    return rows


@contextmanager
def start(host: Host, query: seep.Query, **options: Any) -> Iterator[Run]:
    """A run that has to leave nothing behind: no process, thread, open port or file."""
    threads, run = set(threading.enumerate()), None
    try:
        with seep.launch(query, host.context, **({"epoch": 0.02, "checkpoint": 0.3} | options)) as run:
            yield run
    finally:
        if run is not None:
            records = run.manager_process.nodes.values()
            assert not [record for record in records if record.process.alive()]
            assert not [record.directory for record in records if os.path.exists(record.directory)]
            assert is_refused(*run.manager_process.address)
        wait_until(lambda: not left_of(threads), 20.0, lambda: f"threads left behind: {left_of(threads)}")


def left_of(threads: set[threading.Thread]) -> set[str]:
    """Names of threads that came since; not gRPC's, seen when one asks where it is, nor py4j's for the JVM."""
    came = set(threading.enumerate()) - threads
    return {thread.name for thread in came if "Dummy" not in thread.name and "py4j" not in repr(vars(thread))}


def wait_until(
    condition: Callable[[], bool], timeout: float = 120.0, why: Callable[[], str] = lambda: "it did not happen in time"
) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def awaited(run: Run, condition: Callable[[], bool]) -> None:
    """Waits for something that a run brings about; a run that has failed, or does not, tells all that happened."""

    def reached() -> bool:
        assert run.failure is None, told(run)
        return condition()

    wait_until(reached, why=lambda: told(run))


def told(run: Run) -> str:
    return "\n".join(f"{event.at:8.3f} {event}" for event in run.events)


def committed(run: Run, epochs: int) -> None:
    """Waits until the query is so many epochs further, and no checkpoint is younger than a whole interval."""
    goal = run.status().committed + epochs
    awaited(run, lambda: run.status().committed >= goal)


def idle(run: Run, nodes: int = 1) -> None:
    awaited(run, lambda: run.status().idle_nodes >= nodes)


def recovered(run: Run, times: int = 1) -> None:
    awaited(run, lambda: len(run.events.of("recovered")) >= times)
