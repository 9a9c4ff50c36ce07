"""Pauses: how late rows become while half of the state of a count moves from two instances to four (Megaphone).

The load is open-loop, half of what the query takes when it is saturated, with two instances or with four, whichever is
less; all is measured for every size of the state, with epochs of the length that a query has unless it says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from pyspark import SparkContext

from benchmarks.filled import Filled, Load, Milliseconds, filled
from benchmarks.script import progress

#: Of the saturated rate.
LOAD = 0.5
#: Instances before and after.
FEW, MANY = 2, 4
EPOCH = 0.05
#: Seconds; state that changes as a whole costs a copy of it each time, which is not what is looked at here.
CHECKPOINT = 30.0
#: Seconds until a run has found its pace; until what has waited because of backups or a migration is worked off; and
#: until the state that has left is dropped.
WARM_UP, DRAIN, DROPPED = 3.0, 2.0, 5.0
#: Enough for all that there is at once, sources and sink included: so no VM is started meanwhile on these processors.
NODES = MANY + 3
#: Bits of slots by the most keys that they do for, so that a slot is not too much to move by itself.
SLOT_BITS = {500_000: 5, 10_000_000: 8, 100_000_000: 10}
#: Of all slots, those of a step of `batched`; `optimised` gives so many to each instance that gains any.
BATCH = 1 / 64

#: What each is called, by what is said to `run.migrate`; its batch, if it has one, as a part of `BATCH`.
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "unprepared": {"strategy": "all-at-once", "prepare": False},
    "all_at_once": {"strategy": "all-at-once"},
    "batched": {"strategy": "batched", "batch": 1.0},
    "optimised": {"strategy": "optimised", "batch": 0.5},
    "fluid": {"strategy": "fluid"},
}

Figures = dict[str, float]


def measure(spark: SparkContext, sizes: Sequence[int], seconds: float, times: int) -> Figures:
    """For numbers of keys: the median of so many migrations by each strategy, and what they come to."""
    found: Figures = {}
    for keys in sizes:
        load = Load(keys, slot_bits=next(bits for most, bits in SLOT_BITS.items() if keys <= most))
        rate = LOAD * min(_saturated(spark, replace(load, parallelism=count), seconds) for count in (FEW, MANY))
        figures = _of_size(spark, load, rate, seconds, times)
        found |= {f"{name}_{label(keys)}": value for name, value in (figures | ratios(figures)).items()}
    return found


def label(count: int) -> str:
    """A number of keys as it stands in names.

    >>> label(10_000_000), label(200_000)
    ('10m', '200k')
    """
    return f"{count // 1_000_000}m" if count >= 1_000_000 else f"{count // 1000}k"


def ratios(figures: Figures) -> Figures:
    """Returns the ratios of the figures that have targets."""
    unprepared, steady = figures["unprepared_max_ms"], figures["steady_p99_ms"]
    return {
        "batched_max_over_all_at_once_max": figures["batched_max_ms"] / unprepared,
        **{f"{name}_max_over_steady_p99": figures[f"{name}_max_ms"] / steady for name in ("batched", "fluid")},
    }


def _saturated(spark: SparkContext, load: Load, seconds: float) -> float:
    """Rows per second."""
    progress(f"{label(load.keys)} keys, saturated, {load.parallelism} instances")
    with filled(spark, load, checkpoint=CHECKPOINT, epoch=EPOCH) as query:
        query.watch(WARM_UP)
        before = query.rows()
        begin, end = query.watch(seconds)
        return (query.rows() - before) / (end - begin)


def _of_size(spark: SparkContext, load: Load, rate: float, seconds: float, times: int) -> Figures:
    with filled(spark, replace(load, rate=rate), checkpoint=CHECKPOINT, epoch=EPOCH, nodes=NODES) as query:
        query.watch(WARM_UP)
        steady = query.latencies(query.watch(seconds))
        turns = [[_there_and_back(query, load, name) for name in STRATEGIES] for _ in range(times)]
    found = {"rate_rows_per_s": rate} | _percentiles("steady", steady)
    for same in zip(*turns, strict=True):
        found |= {name: median(figures[name] for figures in same) for name in same[0]}
    return found


def _there_and_back(query: Filled, load: Load, name: str) -> Figures:
    chosen = dict(STRATEGIES[name])
    if "batch" in chosen:
        chosen["batch"] = max(1, round(chosen["batch"] * BATCH * (1 << load.slot_bits)))
    progress(f"{label(load.keys)} keys, {name}")
    figures = _migrated(query, name, MANY, chosen)
    query.watch(DROPPED)
    _migrated(query, name, FEW, STRATEGIES["all_at_once"])
    query.watch(DROPPED)
    return figures


def _migrated(query: Filled, name: str, target: int, chosen: Mapping[str, Any]) -> Figures:
    """A migration that begins with fresh backups; what is late because of it counts until all is settled."""
    query.backed_up()
    query.watch(DRAIN)
    begin = time.time()
    handle = query.run.migrate("count", target, **chosen)
    query.until(lambda: handle.is_over, f"the end of a migration ({name})")
    end = time.time()
    query.watch(DRAIN)
    progress, timeline = handle.progress, query.run.report()["migrations"][-1]
    return _percentiles(name, query.latencies((begin, end))) | {
        f"{name}_seconds": timeline["moved"] - timeline["begun"],
        f"{name}_mb": progress.bytes / 1e6,
        f"{name}_ahead_mb": progress.bytes_ahead / 1e6,
        f"{name}_steps": progress.steps,
    }


def _percentiles(name: str, latencies: Milliseconds) -> Figures:
    return {f"{name}_p99_ms": float(np.percentile(latencies, 99)), f"{name}_max_ms": float(latencies.max())}
