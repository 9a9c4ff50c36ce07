"""State beyond a node's memory budget: exact through kills, handovers and a full disk. Real processes and files."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import seep
from primitives.errors import EnvironmentFault
from primitives.hashing import hash_keys
from primitives.slots import DEFAULT_SLOT_BITS, slots_of
from seep.operators.context import Context, Inputs
from seep.operators.definition import Input
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import committed, idle, recovered, start, wait_until

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])
ROWS, KEYS, PARTITIONS = 150_000, 60_011, 2
#: Of the keys above, with their totals, this is a fraction.
BUDGET = 1 << 20


#: The keys by slot, so that each slot is in use for a while and cold for long.
BY_SLOT = np.argsort(slots_of(hash_keys([np.arange(KEYS)]), DEFAULT_SLOT_BITS), kind="stable")


def key_of(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every tenth one at once, then the next: all keys come about five times, in two rounds."""
    return BY_SLOT[(n % ROWS * 2 // 5 + n % 10) % KEYS]


def numbers(partition: int, first: int, count: int) -> dict[str, Any]:
    n = np.arange(first, first + count, dtype=np.int64) + partition * ROWS
    return {"key": key_of(n), "n": n}


def expected(read: Sequence[int] = (ROWS,) * PARTITIONS) -> dict[int, tuple[int, int]]:
    """The last change of each key after so many rows of each partition."""
    n = np.concatenate([np.arange(rows) + partition * ROWS for partition, rows in enumerate(read)])
    counts, totals = np.bincount(key_of(n)), np.bincount(key_of(n), weights=n).astype(np.int64)
    return {key: (int(counts[key]), int(totals[key])) for key in np.flatnonzero(counts).tolist()}


def found(run: Run) -> dict[int, tuple[int, int]]:
    """The last change of each key; counts only grow."""
    rows = run.result("out").sort_by("n").to_pylist()
    return {row["key"]: (row["n"], row["total"]) for row in rows}


class Spilling(seep.Operator):
    """Counts in a frame and sums in values, both of which spill."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
        return pa.schema([("key", pa.int64()), ("n", pa.int64()), ("total", pa.int64())])

    def open(self, context: Context) -> None:
        self.counts = context.frame("counts", {"n": pa.int64()}, spill=True)
        self.totals = context.values("totals", pa.int64(), spill=True)

    def process(self, inputs: Inputs) -> dict[str, Any]:
        batch = inputs[0]
        self.counts.add(batch, n=1)
        for key, n in zip(batch["key"].to_pylist(), batch["n"].to_pylist(), strict=True):
            self.totals[key] = self.totals.get(key, 0) + n
        keys = batch["key"].unique()
        values, _ = self.counts.get(keys)
        return {"key": keys, "n": values["n"], "total": [self.totals[key] for key in keys.to_pylist()]}


class Filling(Spilling):
    """Finds the disk of its node full from some row on: no file may grow any more."""

    def process(self, inputs: Inputs) -> dict[str, Any]:
        if int((inputs[0]["n"].to_numpy() % ROWS).max(initial=0)) > ROWS // 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, resource.RLIM_INFINITY))
        return super().process(inputs)


def query(operator: type[seep.Operator] | None, rows: int | None = ROWS) -> seep.Query:
    made = seep.Query("large")
    source = made.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=PARTITIONS, rows=rows))
    keyed = source.key_by("key")
    if operator is None:
        totals = keyed.aggregate("counter", n=seep.count(), total=seep.sum("n"), on_disk=True)
    else:
        totals = keyed.apply("counter", operator)
    totals.sink("out", seep.sinks.collect())
    return made


OPTIONS: dict[str, Any] = {"state_budget": BUDGET, "rate": seep.Rate(30_000)}


@pytest.mark.parametrize(
    "operator", [None, pytest.param(Spilling, marks=pytest.mark.acceptance)], ids=["on disk", "spilling"]
)
def test_a_counter_that_is_killed_and_scaled_out_has_all_its_state(host: Host, operator: Any) -> None:
    with start(host, query(operator, rows=None), spare=2, **OPTIONS) as run:
        idle(run)
        wait_until(lambda: run.rows_read > ROWS)
        run.kill("counter")
        recovered(run)
        run.scale("counter", 2)
        wait_until(lambda: len(run.events.of("scaled out")) == 1)
        committed(run, 30)
        run.finish()
        run.wait(120)
        assert found(run) == expected([position[1] for _, position in sorted(run.positions("numbers").items())])


def test_a_full_disk_stops_the_query_with_its_last_checkpoint_intact(host: Host, tmp_path: Path) -> None:
    options = OPTIONS | {"storage": StorageSettings(location=str(tmp_path), every=1)}
    with start(host, query(Filling), **options) as run:
        wait_until(lambda: bool(run.events.of("persisted")))
        with pytest.raises(EnvironmentFault, match=r"cannot write .* bytes of state to .*; free some space"):
            run.wait(120)
    with start(host, query(Spilling), restore="latest", **options) as run:
        run.wait(120)
        changes = found(run)
    exact = expected()
    assert len(changes) > KEYS // 2
    assert changes == {key: exact[key] for key in changes}
