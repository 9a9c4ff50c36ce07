"""Throughput: rows that a query takes when its source reads as fast as it can; and what checkpoints cost of it."""

from __future__ import annotations

import time
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext

import seep
from benchmarks import keys, pipelines

#: Seconds until the closed loop has found its pace.
WARM_UP = 3.0
EPOCH = 0.02
#: Times that runs with and without checkpoints take turns.
TURNS = 2
#: For the first guess of how fast keys drift.
_GUESS = 15e6
#: Without checkpoints nothing is ever trimmed at the source; in files it would be slower, and the comparison unfair.
_ALL_IN_MEMORY = 16 << 30


def saturated(spark: SparkContext, seconds: float) -> dict[str, float]:
    """Rows per second into two counts of 1 M keys at random."""
    return {"saturated_rows_per_s": _rows_per_second(spark, seconds, keys.at_random, checkpoint=1.0)}


def checkpoint_cost(spark: SparkContext, seconds: float) -> dict[str, float]:
    """Measures the throughput lost by checkpoints every second, with 10 % of 1 M keys changed between two of them."""
    columns = keys.Drifting(_drifting(spark, seconds, keys.Drifting(_GUESS), None))
    turns = [_drifting(spark, seconds, columns, checkpoint) for _ in range(TURNS) for checkpoint in (None, 1.0)]
    without, with_checkpoints = turns[::2], turns[1::2]
    return {
        "checkpoint_cost_percent": (1 - mean(with_checkpoints) / mean(without)) * 100,
        "checkpoint_spread_percent": max(map(_spread, (without, with_checkpoints))) * 100,
        "checkpoint_rows_per_s": mean(with_checkpoints),
        "no_checkpoint_rows_per_s": mean(without),
    }


def _spread(rates: list[float]) -> float:
    """Returns the relative difference between runs of the same kind: a cost below it may be chance."""
    return (max(rates) - min(rates)) / mean(rates)


def _drifting(spark: SparkContext, seconds: float, columns: keys.Drifting, checkpoint: float | None) -> float:
    return _rows_per_second(spark, seconds, columns, checkpoint=checkpoint, buffer_budget=_ALL_IN_MEMORY)


def _rows_per_second(spark: SparkContext, seconds: float, columns: keys.Columns, **options: Any) -> float:
    """Returns the rows per second that the sink commits after a warm-up; checks all counts at the end."""
    with seep.launch(pipelines.end_counts(columns), spark, epoch=EPOCH, spare=0, **options) as run:
        pipelines.watch(run, WARM_UP)
        before, begin = pipelines.rows_committed(run), time.monotonic()
        pipelines.watch(run, seconds)
        rows, elapsed = pipelines.rows_committed(run) - before, time.monotonic() - begin
        pipelines.finish(run)
        check(run.result("sink"), keys.counts(columns, pipelines.rows_read(run)))
    return rows / elapsed


def check(found: pa.Table, expected: keys.Numbers) -> None:
    """InternalError if the counts are not exactly those expected."""
    counts = np.zeros(len(expected), np.int64)
    np.add.at(counts, found["key"].to_numpy(), found["n"].to_numpy())
    wrong = np.flatnonzero(counts != expected)
    if len(wrong) or len(found) != np.count_nonzero(expected):
        example = (
            f"; key {wrong[0]} was counted {counts[wrong[0]]} times, not {expected[wrong[0]]}" if len(wrong) else ""
        )
        raise seep.InternalError(f"{len(wrong)} counts of {len(found)} rows are wrong{example}")
