"""What `Disk` makes of one core with state four times its memory budget: updates, checkpoints in full and of changes.

`python benchmarks/disk_state.py [--memory MIB] [--json]`. Rates are by the processor time of all threads, those of
RocksDB included, so they are for one core whatever else runs on the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.table import Target, table
from primitives.slots import SlotSet
from primitives.state.disk import Disk
from primitives.state.frame import warm_up

BATCH = 1 << 18
BATCHES = 8
ROUNDS = 10

TARGETS = {
    "uniform_updates_per_s": Target("Updates of keys at random, per core", "1/s", 1, 150_000, at_least=True),
    "skewed_updates_per_s": Target("Updates of keys by Zipf's law, per core", "1/s", 1, 150_000, at_least=True),
    "linked_1pct_ratio": Target("Files shipped after 1 % of the keys changed, to all", "", 1, 0.1),
    "memory_to_budget": Target("Memory taken, to the budget", "", 1, 1.2),
    "delta_1pct_ratio": Target("Rows shipped after 1 % of the keys changed, to all", "", 1, 0.1),
}


def run(memory: int) -> dict[str, float]:
    """Counts by key over `memory` bytes of budget and four times that of state."""
    warm_up()
    before = _anonymous()
    with tempfile.TemporaryDirectory() as directory, closing(_new(Path(directory, "disk"), memory)) as disk:
        keys = 4 * memory // 16  # of 8 bytes, with a count of 8
        filled = _rate(disk, _shuffled(keys))
        return {
            "rows": keys,
            "inserts_per_s": filled,
            "uniform_updates_per_s": _rate(disk, _uniform(keys)),
            "skewed_updates_per_s": _rate(disk, _skewed(keys)),
            **_checkpoints(disk, keys, Path(directory)),
            "memory_to_budget": (_anonymous() - before) / memory,
        }


def _new(directory: Path, memory: int) -> Disk:
    return Disk("counts", {"id": pa.int64()}, {"n": pa.int64()}, directory=directory, memory=memory)


def _shuffled(keys: int) -> Iterator[NDArray[np.int64]]:
    order = np.random.default_rng(1).permutation(keys)
    return (order[start : start + BATCH] for start in range(0, keys, BATCH))


def _uniform(keys: int) -> Iterator[NDArray[np.int64]]:
    random = np.random.default_rng(2)
    return (random.integers(0, keys, BATCH) for _ in range(BATCHES))


def _skewed(keys: int) -> Iterator[NDArray[np.int64]]:
    random = np.random.default_rng(3)
    return (random.zipf(1.1, BATCH) % keys for _ in range(BATCHES))


def _rate(disk: Disk, batches: Iterator[NDArray[np.int64]]) -> float:
    count, seconds = 0, 0.0
    for batch in batches:
        start = process_time()
        disk.add(batch, n=1)
        seconds += process_time() - start
        count += len(batch)
    return count / seconds


def _checkpoints(disk: Disk, keys: int, directory: Path) -> dict[str, float]:
    """Both kinds, each time 1 % of the keys has changed; the mean, for now and then files are rewritten."""
    known = disk.link_files(directory / "first")
    changes = np.random.default_rng(4).permutation(keys)[: ROUNDS * (keys // 100)].reshape(ROUNDS, -1)
    rounds = []
    for epoch, changed in enumerate(changes):
        disk.mark(epoch)
        disk.release(epoch)
        disk.add(changed, n=1)
        start = process_time()
        delta = disk.snapshot(SlotSet.full(disk.slot_bits), epoch)
        delta_seconds = process_time() - start
        files = disk.link_files(directory / f"after {epoch}")
        shipped = sum(size for name, size in files.items() if not (name.endswith(".sst") and name in known))
        rounds.append((shipped / sum(files.values()), delta.nbytes / disk.size(), delta_seconds))
        known |= files
    linked, sent, seconds = np.array(rounds).T
    return {
        "linked_1pct_ratio": float(linked.mean()),
        "linked_1pct_ratio_at_most": float(linked.max()),
        "delta_1pct_ratio": float(sent.mean()),
        "delta_1pct_s": float(seconds.mean()),
    }


def _anonymous() -> int:
    """Bytes of memory that are not of files, now; the maps of files give way to whoever needs memory."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, default=128, help="the budget, in MiB (128)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = run(options.memory << 20)
    print(json.dumps(measured) if options.json else table(TARGETS, measured))


if __name__ == "__main__":
    main()
