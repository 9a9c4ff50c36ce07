"""Task slots of a Spark cluster: their number, and how many are busy. (Spark's task slots, not slots of state.)"""

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
    """Returns the current capacity; Spark's figures may be a tenth of a second old."""
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
    """Waits at most `seconds` until `needed` task slots are free, as executors take time; returns the capacity.

    With `settled`, it also waits until no executor has started for so many seconds, so that all are counted.
    """
    begun = came = time.monotonic()
    found = look(context)
    while (now := time.monotonic()) < begun + seconds and (found.free < needed or now < came + settled):
        time.sleep(_POLL)
        before, found = found, look(context)
        came = time.monotonic() if found.executors != before.executors else came
    return found
