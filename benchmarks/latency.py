"""Latency: how long a row takes from when it is due at the source to the commit of what became of it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from pyspark import SparkContext

import seep
from benchmarks import pipelines
from benchmarks.keys import at_random
from benchmarks.notes import Noted

#: Seconds at the start that are left out.
WARM_UP = 2.0


def measure(spark: SparkContext, seconds: float, *, epoch_ms: int, rate: float) -> dict[str, float]:
    """Percentiles over all rows of a steady stream through four nodes, in milliseconds.

    There is no spare node: its start would take its share of the machine for the first seconds.
    """
    with tempfile.TemporaryDirectory() as directory:
        query = pipelines.due_counts(at_random, Path(directory))
        with seep.launch(query, spark, epoch=epoch_ms / 1000, rate=seep.Rate(rate), spare=0) as run:
            pipelines.watch(run, WARM_UP + seconds)
            pipelines.finish(run)
        latencies = Noted.read(Path(directory)).latencies(WARM_UP)
    p50, p99, highest = np.percentile(latencies * 1000, [50, 99, 100])
    name = f"latency_{epoch_ms}ms"
    return {f"{name}_p50_ms": float(p50), f"{name}_p99_ms": float(p99), f"{name}_max_ms": float(highest)}


at_20_ms = partial(measure, epoch_ms=20, rate=100_000)
at_5_ms = partial(measure, epoch_ms=5, rate=100_000)
at_2_ms = partial(measure, epoch_ms=2, rate=10_000)
