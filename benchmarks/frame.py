"""Measures `Frame` on one core: updates by key and a plain compiled hash table, snapshots and a copy, memory.

Rates are those of the best of several passes, and ratios compare work that was done in turn, so that both saw the same
machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from primitives.hashing import absorb
from primitives.kernels import kernel
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet
from primitives.state.frame import Frame, warm_up

Keys = NDArray[np.int64]
Work = Callable[[Keys], object]

MILLION = 1_000_000
BATCH = 1 << 18
SMALL_BATCH = 1 << 12
BATCHES = 40
SNAPSHOTS = 15
ALL = SlotSet.full(DEFAULT_SLOT_BITS)


def run() -> dict[str, float]:
    """Counting 1 M and 10 M keys, filling a frame with them, and snapshots in full and of the 1 % that changed."""
    warm_up()
    frame, keys, _ = _filled(MILLION)
    rates = {**_updates("frame_1m", frame, keys), **_small_updates(frame, keys), **_words()}
    frame, keys, growth = _filled(10 * MILLION)
    return {**rates, **_creations(), **_updates("frame_10m", frame, keys), **growth, **_snapshots(frame, keys)}


def _count(frame: Frame) -> Work:
    ones = np.ones(BATCH, np.int64)
    return lambda batch: frame.add(batch, n=ones[: len(batch)])


def _new_frame() -> Frame:
    return Frame("counts", keys={"id": pa.int64()}, values={"n": pa.int64()})


def _distinct_keys(count: int) -> Keys:
    return np.unique(np.random.default_rng(1).integers(-(2**62), 2**62, count + count // 100))[:count]


def _batches(keys: Keys, size: int) -> list[Keys]:
    random = np.random.default_rng(2)
    return [keys[random.integers(0, len(keys), size)] for _ in range(BATCHES)]


# --- updates by key ---------------------------------------------------------------------------------------------------


def _updates(name: str, frame: Frame, keys: Keys) -> dict[str, float]:
    """Adding to rows that are there, at random."""
    kernel = PlainTable(len(keys))
    kernel.count(keys)
    by_frame, by_kernel = _best_in_turn(_count(frame), kernel.count, _batches(keys, BATCH))
    return {f"{name}_rows_per_s": BATCH / by_frame, f"{name}_ratio_to_kernel": by_kernel / by_frame}


def _small_updates(frame: Frame, keys: Keys) -> dict[str, float]:
    count = _count(frame)
    best = min(_seconds(count, batch) for batch in _batches(keys, SMALL_BATCH))
    return {"frame_1m_small_batch_rows_per_s": SMALL_BATCH / best}


def _creations() -> dict[str, float]:
    """Adding new rows to an empty frame that grows; the plain table has all its memory from the start."""
    keys = np.random.default_rng(3).permutation(_distinct_keys(MILLION))
    by_frame, by_kernel = zip(*(_create(keys) for _ in range(5)), strict=True)
    return {
        "frame_create_rows_per_s": MILLION / min(by_frame),
        "frame_create_ratio_to_kernel": min(by_kernel) / min(by_frame),
    }


def _create(keys: Keys) -> tuple[float, float]:
    parts = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
    count, kernel = _count(_new_frame()), PlainTable(len(keys))
    return sum(_seconds(count, part) for part in parts), sum(_seconds(kernel.count, part) for part in parts)


def _words() -> dict[str, float]:
    """Adding to 100,000 rows by a text and a number."""
    frame = Frame("counts", keys={"word": pa.string(), "id": pa.int64()}, values={"n": pa.int64()})
    words = pa.array([f"item {number}" for number in range(100_000)])
    numbers = np.random.default_rng(4).integers(0, len(words), (BATCHES, BATCH))
    batches = [pa.record_batch({"word": words.take(pa.array(row)), "id": row}) for row in numbers]
    best = min(_seconds(lambda batch: frame.add(batch, n=1), batch) for batch in batches)
    return {"frame_text_key_rows_per_s": BATCH / best}


class PlainTable:
    """A plain hash table to compare with: open addressing with linear probing, int64 keys and counts in two arrays."""

    def __init__(self, keys: int) -> None:
        size = 1 << (keys + keys // 3).bit_length()
        self._keys, self._counts = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def count(self, batch: Keys) -> None:
        """Adds one to the count of each key."""
        _count_plainly(batch, self._keys, self._counts)


_absorb = njit(absorb)


@kernel
def _count_plainly(batch: Keys, keys: Keys, counts: NDArray[np.int64]) -> None:
    mask = np.uint64(len(keys) - 1)
    for key in batch:
        place = _absorb(np.uint64(0), np.uint64(key)) & mask
        while counts[place] and keys[place] != key:
            place = (place + np.uint64(1)) & mask
        keys[place] = key
        counts[place] += 1


# --- growth and memory ------------------------------------------------------------------------------------------------


def _filled(rows: int) -> tuple[Frame, Keys, dict[str, float]]:
    """A frame filled with new keys batch by batch, and what that took."""
    keys = np.random.default_rng(3).permutation(_distinct_keys(rows))
    frame = _new_frame()
    count = _count(frame)
    before = _forget_peak()
    seconds = [_seconds(count, keys[start : start + BATCH]) for start in range(0, rows, BATCH)]
    held = _memory("VmRSS") - before
    return (
        frame,
        keys,
        {
            "frame_bytes_per_row": held / rows,
            "frame_growth_peak_to_held": (_memory("VmHWM") - before) / held,
            "frame_growth_longest_batch_to_median": max(seconds) / median(seconds),
        },
    )


def _forget_peak() -> int:
    """Makes the present memory the peak, and returns it."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(field: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))


# --- snapshots --------------------------------------------------------------------------------------------------------


def _snapshots(frame: Frame, keys: Keys) -> dict[str, float]:
    """Each pass adds to 1 % of the keys at random, and takes what changed, all, an eighth of the slots, and a copy."""
    changes = np.random.default_rng(5).permutation(keys)[: SNAPSHOTS * len(keys) // 100].reshape(SNAPSHOTS, -1)
    passes = [_snapshot(frame, epoch, changed) for epoch, changed in enumerate(changes)]
    delta, full, eighth, copy = (median(seconds) for seconds in zip(*passes, strict=True))
    return {
        "snapshot_1pct_ms": delta * 1e3,
        "snapshot_full_ms": full * 1e3,
        "snapshot_1pct_ratio_to_full": delta / full,
        "snapshot_full_ratio_to_copy": full / copy,
        "snapshot_eighth_ratio_to_full": eighth / full,
    }


def _snapshot(frame: Frame, epoch: int, changed: Keys) -> tuple[float, float, float, float]:
    frame.mark(epoch)
    frame.release(epoch)
    frame.add(changed, n=1)
    delta = _seconds(lambda since: frame.snapshot(ALL, since), epoch)
    full = _seconds(frame.snapshot, ALL)
    eighth = _seconds(frame.snapshot, SlotSet.range(0, (1 << DEFAULT_SLOT_BITS) // 8 - 1))
    copy = _seconds(np.copy, np.ones(2 * len(frame), np.int64))
    return delta, full, eighth, copy


# --- time -------------------------------------------------------------------------------------------------------------


def _best_in_turn(one: Work, other: Work, batches: list[Keys]) -> tuple[float, float]:
    """The shortest times of two kinds of work, which do each batch in turn."""
    seconds = [(_seconds(one, batch), _seconds(other, batch)) for batch in batches]
    return min(first for first, _ in seconds), min(second for _, second in seconds)


def _seconds(work: Callable[[Any], object], given: Any) -> float:
    start = perf_counter()
    work(given)
    return perf_counter() - start


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:40}{value:16,.3f}")
