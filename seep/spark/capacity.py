"""Task slots of a Spark cluster: how many there are, how many are busy. (Spark's slots, not ours.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL = 0.1


@dataclass(frozen=True, slots=True)
class Capacity:
    """Task slots over all executors."""

    executors: int
    slots: int
    busy: int

    @property
    def free(self) -> int:
        return max(0, self.slots - self.busy)

    def __str__(self) -> str:
        return f"{self.slots} task slots on {self.executors} executors, {self.busy} busy, {self.free} free"


def capacity(context: SparkContext) -> Capacity:
    """What there is now; other tasks may come and go, and Spark's own figures lag behind by a tenth of a second."""
    found = context._jsc.sc().statusStore().executorList(True)
    hosts = [each for each in (found.apply(number) for number in range(found.size())) if each.maxTasks() > 0]
    return Capacity(len(hosts), sum(each.maxTasks() for each in hosts), sum(each.activeTasks() for each in hosts))


def await_capacity(
    context: SparkContext,
    needed: int,
    seconds: float,
    settled: float = 0.0,
    look: Callable[[SparkContext], Capacity] = capacity,
) -> Capacity:
    """The capacity once `needed` task slots are free, or as it is after `seconds`: executors take time to come.

    With `settled`, it is also awaited that no executor has come for so many seconds, so that all are counted.
    """
    begun = came = time.monotonic()
    found = look(context)
    while (now := time.monotonic()) < begun + seconds and (found.free < needed or now < came + settled):
        time.sleep(_POLL)
        before, found = found, look(context)
        came = time.monotonic() if found.executors != before.executors else came
    return found
