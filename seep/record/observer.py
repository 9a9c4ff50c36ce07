"""The observer: combines the nodes' reports to one observation of all instances, at the end of each interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from policies.observation import Observation
from primitives.graph import InstanceId
from seep.record.comparison import compared
from seep.record.latencies import percentiles
from seep.record.reports import NodeReport
from seep.rows.position import Position
from seep.rows.rate import Rate

#: source operator -> partition -> position
Positions = Mapping[str, Mapping[int, Any]]


class SourceDemand(NamedTuple):
    """The rows that a source is to read, as far as known."""

    rate: Rate | None  #: rate of all its partitions; None: no limit
    partitions: int
    by_time: bool = False  #: whether its partitions are read one after the other


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The state of a run at one moment, for an observer."""

    at: float  #: seconds since the query began to run
    clock: float  #: unix time
    nodes: Mapping[str, NodeReport]
    slots: Mapping[InstanceId, int]  #: number of slots of each instance
    positions: Positions
    latencies: Sequence[float] = ()  #: latencies of the epochs committed since the last snapshot
    epochs_in_flight: int = 0
    warm_nodes: int = 0


@dataclass(slots=True)
class Observer:
    """Compares each snapshot of a run with the one before. Instances that are not in both are left out."""

    sources: Mapping[str, SourceDemand]
    _before: RunSnapshot | None = field(default=None)

    def observe(self, sight: RunSnapshot) -> Observation | None:
        """Returns the observation of the time since the last call; None at the first call."""
        before, self._before = self._before, sight
        if before is None or sight.at <= before.at:
            return None
        reports = [
            report
            for name, node in sight.nodes.items()
            if name in before.nodes
            for report in compared(name, before.nodes[name], node, sight.slots)
        ]
        seconds = sight.at - before.at
        return Observation(
            at=sight.at,
            seconds=seconds,
            instances={report.instance: report for report in reports},
            offered=self._offered(before, sight),
            behind=self._behind(sight),
            latency=percentiles(sight.latencies),
            epochs_in_flight=sight.epochs_in_flight,
            warm_nodes=sight.warm_nodes,
        )

    def _offered(self, before: RunSnapshot, now: RunSnapshot) -> dict[str, float]:
        """Returns rows offered per second, by source: from its rate if it has one, else from the rows read."""
        return {
            source: (self._due(source, now) - self._due(source, before)) / (now.clock - before.clock)
            for source in self.sources
        }

    def _behind(self, now: RunSnapshot) -> dict[str, float]:
        return {
            source: max(0.0, self._due(source, now) - sum(p.passed for p in _positions(source, now)))
            for source in self.sources
        }

    def _due(self, source: str, sight: RunSnapshot) -> float:
        rate, partitions, by_time = self.sources[source]
        if rate is None:
            return float(sum(position.passed for position in _positions(source, sight)))
        if by_time:
            return _due_in_all(rate, list(_positions(source, sight)), sight.clock)
        begun = [p for p in _positions(source, sight) if p.start and not p.ended]
        ended = sum(p.passed for p in _positions(source, sight) if p.ended)
        return ended + sum(rate.rows_due(sight.clock - p.start) for p in begun) / partitions


def _due_in_all(rate: Rate, positions: list[Position], now: float) -> float:
    """Returns the rows due if partitions are read in sequence: the rate is that of all, until all have ended."""
    starts = [position.start for position in positions if position.start]
    if not starts or all(position.ended for position in positions):
        return float(sum(position.passed for position in positions))
    return rate.rows_due(now - min(starts))


def _positions(source: str, sight: RunSnapshot) -> Iterable[Position]:
    return (Position(*position) for position in sight.positions.get(source, {}).values())
