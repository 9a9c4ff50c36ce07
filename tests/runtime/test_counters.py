"""Counters of real runs: exact when nothing was lost, lower bounds otherwise; and reports of who lives at what time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import seep
from seep.running.run import Run
from seep.spark.session import Host
from tests.runtime.counting import RATE, awaited, committed, idle, recovered, start

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("ms"))])


def events(_: int, first: int, count: int) -> dict[str, Any]:
    """One row a millisecond; every fifth one belongs to the first second, and is late after that."""
    n = np.arange(first, first + count, dtype=np.int64)
    return {"key": n % 97, "at": pa.array(np.where(n % 5, n, 0), pa.timestamp("ms"))}


def windows() -> seep.Query:
    query = seep.Query("windows")
    source = query.source("events", seep.sources.generator(events, SCHEMA, time="at"))
    counted = source.key_by("key").window(seep.tumbling("1 s")).aggregate("counter", n=seep.count(), parallelism=3)
    counted.sink("out", seep.sinks.collect())
    return query


def late_and_dropped(run: Run) -> tuple[int, int]:
    """How many rows were late by the report, and how many are in no window."""
    in_windows = sum(run.result("out")["n"].to_pylist())
    return run.report()["summary"]["counters"]["late"], run.rows_read - in_windows


def test_counters_of_a_run_are_exact_at_its_end_though_instances_and_nodes_have_left(host: Host) -> None:
    with start(host, windows(), rate=seep.Rate(RATE), spare=2) as run:
        committed(run, 30)
        run.scale("counter", 1)
        awaited(run, lambda: bool(run.events.of("scaled in")))
        run.migrate("counter", 2, "fluid").wait(120)
        node = next(node for name, node in run.placement.items() if name.startswith("counter"))
        run.drain(node)
        awaited(run, lambda: bool(run.events.of("drained")) and node not in run.nodes)
        run.finish()
        assert run.wait(120)
        late, dropped = late_and_dropped(run)
        assert late == dropped > 0
        assert run.report()["summary"]["counters_exact"]


def test_counters_are_lower_bounds_after_a_loss_and_the_report_says_so(host: Host) -> None:
    with start(host, windows(), rate=seep.Rate(RATE), spare=2) as run:
        committed(run, 60)
        idle(run)
        run.kill("counter[1]")
        recovered(run)
        committed(run, 20)
        run.finish()
        assert run.wait(120)
        late, dropped = late_and_dropped(run)
        assert 0 < late <= dropped
        assert not run.report()["summary"]["counters_exact"]


def test_counters_of_a_run_that_was_stopped_as_it_stood_are_not_said_to_be_exact(host: Host) -> None:
    with start(host, windows(), rate=seep.Rate(RATE)) as run:
        committed(run, 30)
        run.manager_process.halt()
        assert run.wait(120)
        assert run.halted
        assert not run.report()["summary"]["counters_exact"]


def living_at_last(run: seep.Run) -> set[str]:
    """The instances in the last sample of a run's report; none before there is a sample."""
    return {name for sample in run.report()["series"][-1:] for name in sample["instances"]}


def test_a_report_tells_of_the_instances_that_lived_at_each_time(host: Host) -> None:
    with start(host, windows(), rate=seep.Rate(RATE)) as run:
        awaited(run, lambda: len(living_at_last(run)) == 5)
        run.scale("counter", 1)
        awaited(run, lambda: len(run.placement) == 3)
        living = {f"{name}#0" for name in run.placement}
        awaited(run, lambda: living_at_last(run) == living)
        run.finish()
        assert run.wait(120)
