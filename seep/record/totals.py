"""Totals: counters of a run that never go back, also when an instance is lost and its rows are processed again.

The counters of a report have exactly the rows that count, so they go back when an instance is lost. Totals count the
work that was done: a row that is processed again is counted again.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.record.events import Balanced, CheckpointStored, InstanceRecovered, MigrationOver, ScalingDone
from seep.record.histogram import DurationCounts, Histogram
from seep.record.reports import HandedPart, InstanceFigures

#: Name of a duration -> the events that have it.
TIMED: Mapping[str, type[Event]] = {
    "recovery": InstanceRecovered,
    "scaling": ScalingDone,
    "migration": MigrationOver,
    "balancing": Balanced,
    "checkpoint": CheckpointStored,
}


class InstanceTotals(NamedTuple):
    """The counters of an instance, or of all instances of an operator, over all incarnations."""

    rows_in: int = 0
    rows_out: int = 0
    cpu: float = 0.0  #: seconds of its thread
    late: int = 0  #: late rows
    dead_letters: int = 0


class SourceTotals(NamedTuple):
    """The rows of a source by its position, each counted once even after failures."""

    read: int = 0
    shed: int = 0  #: rows skipped because they were overdue


class HandedTotals(NamedTuple):
    """All handovers to the instances of an operator, as far as they have reported."""

    bytes: int = 0  #: handed over between two epochs
    bytes_ahead: int = 0  #: bytes of prefetched backups
    held_back: int = 0  #: rows that waited for them


class PushTotals(NamedTuple):
    """Pushes of metrics, or of traces, to a collector."""

    delivered: int = 0
    failed: int = 0  #: not taken by the collector, or not whole
    dropped: int = 0  #: traces that were given up

    def plus(self, failed: bool, dropped: int) -> PushTotals:
        """Counts one more push.

        >>> PushTotals(delivered=2).plus(failed=True, dropped=3)
        PushTotals(delivered=2, failed=1, dropped=3)
        """
        return PushTotals(self.delivered + (not failed), self.failed + failed, self.dropped + dropped)


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The totals of a run at one moment. None of them goes back while the run lasts."""

    instances: Mapping[str, Mapping[int, InstanceTotals]] = field(default_factory=dict)  #: live ones, by operator
    operators: Mapping[str, InstanceTotals] = field(default_factory=dict)  #: with ended instances
    sources: Mapping[str, SourceTotals] = field(default_factory=dict)
    handed: Mapping[str, HandedTotals] = field(default_factory=dict)  #: by operator
    events: Mapping[str, int] = field(default_factory=dict)  #: number of events by kind
    latency: DurationCounts = field(default_factory=DurationCounts)  #: of epochs, from their oldest row to the commit
    durations: Mapping[str, DurationCounts] = field(default_factory=dict)  #: of ended changes, by name
    pushes: Mapping[str, PushTotals] = field(default_factory=dict)  #: by what is pushed, `metrics` or `traces`


class TotalCounters:
    """Adds up the reports of all incarnations; keeps those of live instances one by one."""

    def __init__(self) -> None:
        self._reported: dict[Incarnation, InstanceTotals] = {}
        self._instances: dict[InstanceId, InstanceTotals] = {}
        self._operators: dict[str, InstanceTotals] = {}
        self._handed: dict[str, HandedTotals] = {}

    def note(self, figures: InstanceFigures) -> None:
        """Adds the growth of an instance's counters since its last report."""
        who, before = figures.identity, self._reported.get(figures.identity, InstanceTotals())
        highest = _highest(_counted(figures), before)
        grown = [new - old for new, old in zip(highest, before, strict=True)]
        operator = who.instance.operator
        self._reported[who] = highest
        self._instances[who.instance] = _more(self._instances.get(who.instance, InstanceTotals()), grown)
        self._operators[operator] = _more(self._operators.get(operator, InstanceTotals()), grown)
        for part in figures.handed:
            self._note_handed(operator, part)

    def ended(self, who: Incarnation) -> None:
        """Notes that an incarnation reports no more; its counters stay counted."""
        self._reported.pop(who, None)

    def keep(self, placed: Container[InstanceId]) -> None:
        """Removes the counters of retired instances, whose indexes are not used again, from those kept one by one."""
        self._instances = {who: totals for who, totals in self._instances.items() if who in placed}

    @property
    def instances(self) -> dict[str, dict[int, InstanceTotals]]:
        found: dict[str, dict[int, InstanceTotals]] = {}
        for who, totals in self._instances.items():
            found.setdefault(who.operator, {})[who.index] = totals
        return found

    @property
    def operators(self) -> dict[str, InstanceTotals]:
        return dict(self._operators)

    @property
    def handed(self) -> dict[str, HandedTotals]:
        return dict(self._handed)

    def _note_handed(self, operator: str, part: HandedPart) -> None:
        before = self._handed.get(operator, HandedTotals())
        self._handed[operator] = HandedTotals(*(a + b for a, b in zip(before, part[1:], strict=True)))


class Durations:
    """Histograms of the seconds that changes took, by the events of their ends. Thread-safe."""

    def __init__(self) -> None:
        self._histograms = {name: Histogram() for name in TIMED}
        self._lock = threading.Lock()

    def hear(self, event: Event) -> None:
        """Counts the event if it has a duration of a kind that is counted."""
        name = next((name for name, kind in TIMED.items() if isinstance(event, kind)), None)
        if name is not None and event.seconds is not None:
            with self._lock:
                self._histograms[name].add(np.array([event.seconds]))

    def counts(self) -> dict[str, DurationCounts]:
        with self._lock:
            return {name: histogram.counts() for name, histogram in self._histograms.items()}


def _counted(figures: InstanceFigures) -> InstanceTotals:
    counters = figures.counters
    late, dead_letters = counters.get("late", 0), counters.get("dead_letters", 0)
    return InstanceTotals(figures.rows_in, figures.rows_out, figures.cpu, late, dead_letters)


def _highest(new: InstanceTotals, old: InstanceTotals) -> InstanceTotals:
    return InstanceTotals(*(max(a, b) for a, b in zip(new, old, strict=True)))  # type: ignore[arg-type]


def _more(totals: InstanceTotals, grown: list[float]) -> InstanceTotals:
    rows_in, rows_out, cpu, late, dead_letters = (a + b for a, b in zip(totals, grown, strict=True))
    return InstanceTotals(int(rows_in), int(rows_out), cpu, int(late), int(dead_letters))
