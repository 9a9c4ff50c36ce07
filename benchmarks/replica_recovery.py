"""Recovery from replicas (Rhino), from storage and from upstream: how long it takes for once, 4 and 16 times the state.

The node of a count is killed. What is told is the time from when the manager knows it: until the state is restored, and
until the sinks are past all that was open then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from pyspark import SparkContext

from benchmarks.filled import Filled, Load, filled
from benchmarks.script import progress
from policies.backup import BackupSection, BackupSettings, BackupStrategy
from seep.storage.settings import StorageSettings

#: Rows per second; few, as what has to be replayed is no matter of the size of the state.
RATE = 10_000.0
CHECKPOINT = 1.0
#: Seconds from when the count is backed up until its node is killed: whoever is new among the holders is done with it.
SETTLED = 5.0
TIMES = (1, 4, 16)
#: Bytes of memory for each key of the smallest state on disk: less than it takes, so that all of them are in files.
MEMORY = 8

#: How the state is kept, and backed up.
WAYS: Mapping[str, tuple[bool, BackupSettings]] = {
    "replica": (False, BackupSettings(strategy=BackupStrategy.REPLICAS, replicas=1)),
    "replica_on_disk": (True, BackupSettings(strategy=BackupStrategy.REPLICAS, replicas=1)),
    "upstream": (False, BackupSettings(strategy=BackupStrategy.UPSTREAM)),
    "storage": (False, BackupSettings(strategy=BackupStrategy.STORAGE)),
    "storage_on_disk": (True, BackupSettings(strategy=BackupStrategy.STORAGE)),
}

Figures = dict[str, float]


def measure(spark: SparkContext, keys: int, kills: int, ways: Sequence[str] = tuple(WAYS)) -> Figures:
    """The medians of so many kills, for so many keys and multiples of them."""
    found: Figures = {}
    for way in ways:
        for times in TIMES:
            progress(f"recovery, {way}, {keys * times:,} keys")
            memory = max(1 << 20, keys * MEMORY)
            figures = _of(spark, way, keys * times, memory, kills)
            found |= {f"{way}_{times}x_{part}": value for part, value in figures.items()}
    return found | ratios(found)


def ratios(found: Figures) -> Figures:
    """Returns the ratios that have targets, as far as their figures were measured."""
    wanted = {f"{way}_recovery_16x_over_1x": (f"{way}_16x_s", f"{way}_1x_s") for way in WAYS}
    wanted |= {
        f"replica_over_{other}_recovery{suffix}": (f"replica{suffix}_16x_s", f"{other}{suffix}_16x_s")
        for other, suffix in (("storage", ""), ("upstream", ""), ("storage", "_on_disk"))
    }
    return {name: found[a] / found[b] for name, (a, b) in wanted.items() if a in found and b in found}


def _of(spark: SparkContext, way: str, keys: int, memory: int, kills: int) -> Figures:
    on_disk, backup = WAYS[way]
    with ExitStack() as stack:
        options: dict[str, Any] = {"checkpoint": CHECKPOINT, "spare": 1, "state_budget": memory}
        options["backup"] = BackupSection(default=backup)
        if backup.strategy is BackupStrategy.STORAGE:
            location = stack.enter_context(tempfile.TemporaryDirectory())
            options["storage"] = StorageSettings(location=location, every=1_000_000)
        load = Load(keys, RATE, parallelism=1, on_disk=on_disk)
        query = stack.enter_context(filled(spark, load, **options))
        recoveries = [_killed(query) for _ in range(kills)]
    return {
        "restored_s": median(each["restored"] for each in recoveries),
        "s": median(each["seconds"] - each["detected"] for each in recoveries),
        "detected_s": median(each["detected"] for each in recoveries),
    }


def _killed(query: Filled) -> dict[str, Any]:
    """Kills the count once it is backed up as it stands and a node is free; returns what is told of its recovery."""
    query.until(lambda: query.run.status().idle_nodes > 0, "a free node")
    query.backed_up()
    query.watch(SETTLED)
    before = len(_recoveries(query))
    query.run.kill("count")
    query.until(lambda: len(_recoveries(query)) > before, "the recovery")
    return _recoveries(query)[-1]


def _recoveries(query: Filled) -> list[dict[str, Any]]:
    return list(query.run.report()["summary"]["recoveries"])
