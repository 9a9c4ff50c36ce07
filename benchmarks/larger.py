"""State larger than memory: what `Disk` makes of one core with four times its memory budget of state.

Rates are by the processor time of all threads, those of RocksDB included, so they are for one core whatever else runs
on the machine.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from statistics import mean
from time import process_time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.slots import SlotSet
from primitives.state.frame import warm_up
from primitives.state.on_disk.disk import Disk

Keys = NDArray[np.int64]

BATCH = 1 << 18
BATCHES = 8
ROUNDS = 10
#: Bytes of state for each of the budget.
TIMES = 4
#: Of a row: the key and three columns.
ROW = 32

#: So many of the updates go to a hundredth of the keys.
_HOT = 0.9
#: Has no divisor in common with any number of keys that is used here.
_TURN = 1_000_003
#: Seconds between two looks at the memory.
_LOOK = 0.01


def run(memory: int) -> dict[str, float]:
    """Counts by key with `memory` bytes of budget and four times that of state."""
    warm_up()
    keys = TIMES * memory // ROW
    with tempfile.TemporaryDirectory() as directory:
        _touch_all(Path(directory))
        with Peak() as peak, closing(_new(Path(directory, "disk"), memory)) as disk:
            rates = {
                "rocks_inserts_s": _rate(disk, (_in_turn(first, keys) for first in range(0, keys, BATCH))),
                "rocks_updates_s": _rate(disk, _drawn(_uniform, keys)),
                "rocks_zipf_updates_s": _rate(disk, _drawn(_zipf, keys)),
                "rocks_hot_updates_s": _rate(disk, _drawn(_hot, keys)),
            }
            checkpoints = _checkpoints(disk, keys)
    return {"rocks_rows": keys, **rates, **checkpoints, "rocks_peak_over_budget": peak.nbytes / memory}


def _new(directory: Path, memory: int) -> Disk:
    values = {"n": pa.int64(), "total": pa.int64(), "mean": pa.float64()}
    return Disk("counts", {"id": pa.int64()}, values, directory=directory, memory=memory)


def _add(disk: Disk, keys: Keys) -> None:
    disk.add(keys, n=1, total=keys, mean=0.5)


def _touch_all(directory: Path) -> None:
    """Loads and compiles what takes memory once for all containers."""
    with closing(_new(directory / "first", BATCH)) as disk:
        for _ in range(2):
            _add(disk, np.arange(BATCH))


# --- keys -------------------------------------------------------------------------------------------------------------


def _in_turn(first: int, keys: int) -> Keys:
    """Each key once, neighbours far apart."""
    return np.arange(first, min(first + BATCH, keys)) * _TURN % keys


def _drawn(draw: Callable[[np.random.Generator, int], Keys], keys: int) -> Iterable[Keys]:
    random = np.random.default_rng(2)
    return (draw(random, keys) for _ in range(BATCHES))


def _uniform(random: np.random.Generator, keys: int) -> Keys:
    return random.integers(0, keys, BATCH)


def _zipf(random: np.random.Generator, keys: int) -> Keys:
    return random.zipf(1.1, BATCH) % keys * _TURN % keys


def _hot(random: np.random.Generator, keys: int) -> Keys:
    hot = random.random(BATCH) < _HOT
    return np.where(hot, random.integers(0, keys // 100, BATCH), random.integers(0, keys, BATCH)) * _TURN % keys


# --- what is measured -------------------------------------------------------------------------------------------------


def _rate(disk: Disk, batches: Iterable[Keys]) -> float:
    count, seconds = 0, 0.0
    for batch in batches:
        begin = process_time()
        _add(disk, batch)
        seconds += process_time() - begin
        count += len(batch)
    return count / seconds


def _checkpoints(disk: Disk, keys: int) -> dict[str, float]:
    """Measures incremental checkpoints with 1 % of the keys changed, relative to a full one: their mean and maximum."""
    every = SlotSet.full(disk.slot_bits)
    full = disk.snapshot(every).nbytes
    disk.mark(0)
    shares = []
    for epoch in range(1, ROUNDS + 1):
        _change(disk, keys, epoch)
        shares.append(disk.snapshot(every, epoch - 1).nbytes / full)
        disk.mark(epoch)
        disk.release(epoch)
    return {"rocks_incremental_share": mean(shares), "rocks_incremental_share_at_most": max(shares)}


def _change(disk: Disk, keys: int, epoch: int) -> None:
    """Changes a hundredth of all keys, other ones in each epoch."""
    changed = (np.arange(keys // 100) + epoch * (keys // 100)) * _TURN % keys
    for first in range(0, len(changed), BATCH):
        _add(disk, changed[first : first + BATCH])


class Peak:
    """A context that measures the largest growth of memory, without memory-mapped files.

    Maps of files are the page cache's: it gives way to whoever needs memory.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._before = anonymous()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak")

    def _run(self) -> None:
        while not self._over.wait(_LOOK):
            self.nbytes = max(self.nbytes, anonymous() - self._before)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def anonymous() -> int:
    """Bytes of memory of this process that are not of files."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))
