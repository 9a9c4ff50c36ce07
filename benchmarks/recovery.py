"""Recovery: how long the sink gets nothing when the node of a count with 1 M keys is killed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkContext

import seep
from benchmarks import pipelines
from benchmarks.keys import KEYS, in_turn
from benchmarks.notes import Noted

RATE = 100_000
KILLS = 3
#: Seconds between two kills, at least: for some checkpoints, and for the next spare node to warm up.
_APART = 3.0
#: Seconds that a recovery, or the start of a node, may take.
_PATIENCE = 60.0


class Kill(NamedTuple):
    at: float  #: unix time
    recovery: dict[str, Any]  #: what the report says of it


def measure(spark: SparkContext, seconds: float) -> dict[str, float]:
    """The median and the worst of several kills within one run; the parts are those of the median."""
    with tempfile.TemporaryDirectory() as directory:
        query = pipelines.due_counts(in_turn, Path(directory))
        with seep.launch(query, spark, rate=seep.Rate(RATE), epoch=0.02, checkpoint=1.0, spare=1) as run:
            pipelines.watch(run, KEYS / RATE + 1)  # until every key is there
            kills = [_kill(run, max(seconds / KILLS, _APART)) for _ in range(KILLS)]
            pipelines.finish(run)
        noted = Noted.read(Path(directory))
    pauses = [(noted.longest_pause(at, at + recovery["seconds"]), recovery) for at, recovery in kills]
    pauses.sort(key=itemgetter(0))
    pause, recovery = pauses[KILLS // 2]
    parts = {f"recovery_{part}_s": recovery[part] for part in ("detected", "restored", "replayed")}
    return {"recovery_gap_s": pause, "recovery_gap_worst_s": pauses[-1][0], **parts}


def _kill(run: seep.Run, pause: float) -> Kill:
    """Kills the count once there is a spare node and some time has passed; returns when all is well again."""
    _wait(run, lambda: run.status().idle_nodes > 0, "a spare node")
    pipelines.watch(run, pause)
    before, at = len(_recoveries(run)), time.time()
    run.kill("count")
    _wait(run, lambda: len(_recoveries(run)) > before, "the recovery")
    return Kill(at, _recoveries(run)[-1])


def _recoveries(run: seep.Run) -> list[dict[str, Any]]:
    return list(run.report()["summary"]["recoveries"])


def _wait(run: seep.Run, happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            raise seep.InternalError(f"{what} has not come within {_PATIENCE:g} s; events: {[*map(str, run.events)]}")
        pipelines.watch(run, 0.1)
