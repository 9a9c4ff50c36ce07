"""What `Frame` makes of a core: updates by key next to a plain compiled hash table, snapshots next to a copy, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from primitives.hashing import absorb
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet
from primitives.state.frame import Frame, warm_up

Keys = NDArray[np.int64]

MILLION = 1_000_000
BATCH = 1 << 17
BATCHES = 8
PASSES = 5
ALL = SlotSet.full(DEFAULT_SLOT_BITS)


def run() -> dict[str, float]:
    """Rates of the best of several passes, and ratios; the plain kernel runs in turn with the frame."""
    warm_up()
    return {**_updates(MILLION, "1m"), **_large(10 * MILLION)}


def _large(rows: int) -> dict[str, float]:
    keys = _distinct_keys(rows)
    frame, growth = _grown(keys)
    return {**_updates(rows, "10m", keys, frame), **growth, **_snapshots(frame, keys)}


# --- updates by key ---------------------------------------------------------------------------------------------------


def _updates(rows: int, label: str, keys: Keys | None = None, frame: Frame | None = None) -> dict[str, float]:
    """Counting keys that are drawn at random from those in the state."""
    keys = _distinct_keys(rows) if keys is None else keys
    frame = _grown(keys)[0] if frame is None else frame
    kernel = _Kernel(keys)
    random = np.random.default_rng(2)
    batches = [keys[random.integers(0, rows, BATCH)] for _ in range(BATCHES)]
    ones = np.ones(BATCH, np.int64)
    by_frame, by_kernel = _best_in_turn([lambda batch: frame.add(batch, n=ones), kernel.count], batches * PASSES)
    return {
        f"frame_{label}_rows_per_s": BATCH / by_frame,
        f"frame_{label}_ratio_to_kernel": by_kernel / by_frame,
    }


def _grown(keys: Keys) -> tuple[Frame, dict[str, float]]:
    """A frame filled batch by batch with new keys, and what that took."""
    frame = _new_frame()
    ones = np.ones(BATCH, np.int64)
    memory, before = _Memory(), _Memory().now()
    seconds = []
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        seconds.append(_seconds(lambda: frame.add(batch, n=ones[: len(batch)])))
    held = memory.now() - before
    return frame, {
        "frame_create_rows_per_s": len(keys) / sum(seconds),
        "frame_create_longest_batch_to_median": max(seconds) / median(seconds),
        "frame_bytes_per_row": held / len(keys),
        "frame_growth_peak_to_held": (memory.peak() - before) / held,
    }
