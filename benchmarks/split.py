"""Measures a row's cost on its way to the next operator: hashing its key, and splitting its batch over 8 instances."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
import pyarrow as pa

from primitives.hashing import hash_keys
from primitives.routing import Owners, split_batch
from primitives.slots import DEFAULT_SLOT_BITS, contiguous_assignment, slots_of

OWNERS = 8
ROWS = 100_000
SMALL = 1_000


def run() -> dict[str, float]:
    """The best time per row of several runs, in nanoseconds."""
    owners = contiguous_assignment(OWNERS, DEFAULT_SLOT_BITS)
    return {
        "split_8_ns_per_row": _split_ns(_batch(ROWS), owners),
        "split_8_text_ns_per_row": _split_ns(_with_text(_batch(ROWS)), owners),
        "split_8_small_ns_per_row": _split_ns(_batch(SMALL), owners),
        "hash_int64_ns_per_row": _hash_ns(),
    }


def _batch(rows: int) -> pa.RecordBatch:
    random = np.random.default_rng(1)
    return pa.record_batch(
        {
            "key": random.integers(0, 1 << 40, rows),
            "time": pa.array(np.arange(rows), pa.timestamp("us")),
            "price": random.random(rows),
            "count": random.integers(0, 100, rows).astype(np.int32),
            "seller": random.integers(0, 10_000, rows),
        }
    )


def _with_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    words = pa.array([f"item {number}" for number in range(1000)])
    return batch.set_column(3, "item", words.take(pa.array(np.arange(batch.num_rows) % 1000)))


def _split_ns(batch: pa.RecordBatch, owners: Owners) -> float:
    slots = slots_of(hash_keys([batch["key"]]), DEFAULT_SLOT_BITS)
    return best_seconds(lambda: split_batch(batch, slots, owners)) / int(batch.num_rows) * 1e9


def _hash_ns() -> float:
    column = [_batch(ROWS)["key"]]
    return best_seconds(lambda: hash_keys(column)) / ROWS * 1e9


def best_seconds(work: Callable[[], object], repeats: int = 30) -> float:
    """The shortest of several runs, after one to warm up."""
    work()
    return min(_seconds(work) for _ in range(repeats))


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:28}{value:8.2f}")
