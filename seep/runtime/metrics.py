"""Metrics of a run: the nodes' reports put together, now and over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice, takewhile
from typing import Any

import numpy as np

from seep.runtime.comparison import NodeReport, compared, identity_of

#: Seconds that the percentiles of "now" are taken from; or so many latencies, if there is none in that time.
_RECENT, _FEW = 5.0, 10
#: Latencies that the summary is taken from, spread evenly over the run.
_SAMPLE = 200_000


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One instance, as its node last told of it."""

    name: str
    operator: str
    node: str
    phase: str
    epoch: int
    rows_in: int
    rows_out: int
    cpu: float  #: seconds of its thread
    utilisation: float  #: of its CPU share, between the last two reports
    waiting: int  #: messages in its mailbox
    outbox_bytes: int
    state_bytes: int
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Status:
    """A run at one moment."""

    at: float
    ticked: int
    committed: int
    rows_read: int
    rows_per_second: float  #: read by the sources, over the last seconds
    latency: Mapping[str, float]  #: p50, p95, p99 and max of the recent past, in seconds; empty if nothing is known
    instances: tuple[InstanceStatus, ...]
    nodes: int
    idle_nodes: int
    offered: float = 0.0  #: rows per second that are due by the sources' rates; what they read, without a rate
    vms: Mapping[str, int] = field(default_factory=dict)  #: how many there are in each state

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def percentiles(latencies: Any) -> dict[str, float]:
    """p50, p95, p99 and the highest of some latencies."""
    if not len(latencies):
        return {}
    found = np.percentile(np.asarray(latencies), [50, 95, 99, 100])
    return dict(zip(("p50", "p95", "p99", "max"), map(float, found), strict=True))


@dataclass(slots=True)
class _Last:
    node: str
    report: Mapping[str, Any]
    utilisation: float = 0.0


@dataclass(slots=True)
class Metrics:
    """Takes in reports, hands out statuses; used by one thread at a time."""

    sources: frozenset[str]
    #: node -> its last report
    nodes: dict[str, NodeReport] = field(default_factory=dict)
    _instances: dict[str, _Last] = field(default_factory=dict)
    #: (when heard, latency) of committed epochs
    _latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLE))
    #: (time, rows read so far) of the last seconds
    _progress: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=50))

    def take(self, node: str, report: Mapping[str, Any], now: float) -> None:
        """A node's report."""
        used = {each.instance: each.utilisation for each in compared(node, self.nodes.get(node, {}), report)}
        self.nodes[node] = report
        for each in report["instances"]:
            identity = identity_of(each)
            self._instances[str(identity)] = _Last(node, each, used.get(identity.instance, 0.0))
            self._latencies.extend((now, latency) for latency in each["latencies"])
        self._progress.append((now, self.rows_read))

    def drop(self, node: str) -> None:
        """The node is gone; what its sources have read stays counted."""
        self.nodes.pop(node, None)
        for name in [name for name, last in self._instances.items() if last.node == node]:
            self._instances.pop(name)

    @property
    def rows_read(self) -> int:
        return sum(
            last.report["rows_out"] for last in self._instances.values() if last.report["operator"] in self.sources
        )

    def rate(self, now: float, seconds: float = 3.0) -> float:
        """Rows read per second, over the last seconds."""
        recent = [(at, rows) for at, rows in self._progress if at >= now - seconds]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return 0.0
        return max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))

    def latency(self, now: float) -> dict[str, float]:
        """Of the recent past."""
        return percentiles(
            self.latencies(now - _RECENT) or [each for _, each in islice(reversed(self._latencies), _FEW)]
        )

    def latencies(self, since: float = 0.0) -> list[float]:
        """Of all epochs that were heard of after a time, newest first; costs as much as there are of these."""
        return [latency for _, latency in takewhile(lambda each: each[0] > since, reversed(self._latencies))]

    def instances(self) -> tuple[InstanceStatus, ...]:
        return tuple(_status(name, last) for name, last in sorted(self._instances.items()))

    def counters(self) -> dict[str, int]:
        """All that operators count, summed."""
        total: dict[str, int] = {}
        for last in self._instances.values():
            for name, count in last.report["counters"].items():
                total[name] = total.get(name, 0) + int(count)
        return total


def _status(name: str, last: _Last) -> InstanceStatus:
    report = last.report
    return InstanceStatus(
        name=name,
        operator=report["operator"],
        node=last.node,
        phase=report["phase"],
        epoch=report["epoch"],
        rows_in=report["rows_in"],
        rows_out=report["rows_out"],
        cpu=report["cpu"],
        utilisation=last.utilisation,
        waiting=report["waiting"],
        outbox_bytes=report["outbox_bytes"],
        state_bytes=report["state_bytes"],
        counters=report["counters"],
    )
