"""Rescaling: for how long a sink gets nothing while a count goes from one instance to two, and back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

from pyspark import SparkContext

from benchmarks.filled import Filled, Load, filled
from vmpool.settings import PoolSettings

RATE = 10_000.0
#: Seconds that a run goes on before it is rescaled, and between two times.
APART = 2.0
#: Of 256, those of a step.
BATCH = 8

#: What others are said to take for the same, in milliseconds: given with the target, and not measured by this project.
PEERS: Mapping[str, float] = {
    "Flink, adaptive scheduler, at least": 1200,
    "Flink, adaptive scheduler, at most": 2300,
    "Flink, by a savepoint": 6900,
    "Spark Structured Streaming, at least": 3900,
    "Bytewax": 138_000,
}


def measure(spark: SparkContext, keys: int, times: int) -> dict[str, float]:
    """The longest time between two commits, while it is rescaled and in between."""
    pool = PoolSettings(size=1, reserve=0)
    with filled(spark, Load(keys, RATE, parallelism=1), checkpoint=5.0, spare=None, pool=pool) as query:
        query.watch(APART)
        steady = query.largest_gap(query.watch(APART))
        turns = [(_rescaled(query, 2), _rescaled(query, 1)) for _ in range(times)]
    out, back = zip(*turns, strict=True)
    return {
        "rescale_gap_ms": median(map(max, turns)),
        "rescale_gap_worst_ms": max(map(max, turns)),
        "rescale_out_gap_ms": median(out),
        "rescale_in_gap_ms": median(back),
        "rescale_steady_gap_ms": steady,
    }


def _rescaled(query: Filled, parallelism: int) -> float:
    query.backed_up()
    begin = time.time()
    handle = query.run.migrate("count", parallelism, "batched", batch=BATCH)
    query.until(lambda: handle.is_over, f"the end of the rescaling to {parallelism}")
    end = time.time()
    query.watch(APART)
    return query.largest_gap((begin, end))
