"""Overhead of slots: how late rows are when nothing moves, for numbers of slots, against a count that cannot move."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import numpy as np
from pyspark import SparkContext

from benchmarks.filled import Load, filled
from benchmarks.script import progress

RATE = 100_000.0
WARM_UP = 2.0
PERCENTILES = {"p50": 50, "p99": 99, "max": 100}
#: What is compared; `cpu` is processor time that an epoch takes, in all nodes, which other load does not change much.
COMPARED = ("p50", "p99", "cpu")

Figures = dict[str, float]


def measure(spark: SparkContext, keys: int, bits: Sequence[int], seconds: float) -> Figures:
    """Percentiles for 2^k slots each, in milliseconds, and as ratios to the count that cannot move.

    That one is measured before the others and after them. There are no checkpoints, as it could not take any.
    """
    fixed = Load(keys, RATE, slot_bits=1, moves=False)
    before = _latencies(spark, fixed, seconds)
    found = {k: _latencies(spark, Load(keys, RATE, slot_bits=k), seconds) for k in bits}
    after = _latencies(spark, fixed, seconds)
    return figures({name: mean((before[name], after[name])) for name in before}, found)


def figures(fixed: Figures, found: dict[int, Figures]) -> Figures:
    """All of them by name, for the table."""
    named = {f"slots_none_{name}_ms": value for name, value in fixed.items()}
    for k, latencies in found.items():
        named |= {f"slots_2e{k}_{name}_ms": value for name, value in latencies.items()}
        named |= {f"slots_2e{k}_{name}_ratio": latencies[name] / fixed[name] for name in COMPARED}
    return named


def _latencies(spark: SparkContext, load: Load, seconds: float) -> Figures:
    progress(f"2^{load.slot_bits} slots" if load.moves else "a count that cannot move")
    with filled(spark, load, checkpoint=None) as query:
        query.watch(WARM_UP)
        before, epochs = query.processor_seconds(), query.run.status().committed
        span = query.watch(seconds)
        used, epochs = query.processor_seconds() - before, query.run.status().committed - epochs
        latencies = query.latencies(span)
    found = {name: float(np.percentile(latencies, percent)) for name, percent in PERCENTILES.items()}
    return found | {"cpu": used / epochs * 1000}
