"""Metrics of a run: the nodes' reports put together, now and over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, field
from itertools import islice, takewhile
from types import MappingProxyType
from typing import Any

import numpy as np

from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.record.facts import Handover
from seep.runtime.comparison import NodeReport, compared, identity_of
from seep.runtime.histogram import Histogram
from seep.runtime.slot_counts import SlotCounts
from seep.runtime.tally import Tally

#: Seconds that the percentiles of "now" are taken from; or so many latencies, if there is none in that time.
_RECENT, _FEW = 5.0, 10
#: Latencies that the summary is taken from, spread evenly over the run.
_SAMPLE = 200_000
#: Weight of the last report in what instances take in now.
_WEIGHT = 0.2
#: Handovers, by operator and epoch, that are kept for whoever asks.
_HANDOVERS = 100_000


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
    #: by operator with several instances: how many times the mean of them the fullest one takes in
    imbalance: Mapping[str, float] = field(default_factory=dict)
    balanced: tuple[str, ...] = ()  #: operators that are balanced

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
    instance: InstanceId
    report: Mapping[str, Any]
    utilisation: float = 0.0


@dataclass(slots=True)
class Metrics:
    """Takes in reports, hands out statuses; used by one thread at a time."""

    sources: frozenset[str]
    slot_bits: InitVar[Mapping[str, int]] = MappingProxyType({})
    #: rows by slot, of operators that are balanced
    slots: SlotCounts = field(init=False)
    #: node -> its last report
    nodes: dict[str, NodeReport] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    #: node -> rows per second that go into each of its instances
    _rates: dict[str, dict[InstanceId, float]] = field(default_factory=dict)
    #: those that their nodes have last told of, and no others
    _instances: dict[Incarnation, _Last] = field(default_factory=dict)
    #: rows that sources have read which have left
    _read_before: int = 0
    #: (operator, epoch) -> what was handed over, as far as it was reported
    handovers: dict[tuple[str, int], Handover] = field(default_factory=dict)
    #: (when heard, latency) of committed epochs
    _latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLE))
    #: (time, rows read so far) of the last seconds
    _progress: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=50))
    #: of all committed epochs, however many they are
    histogram: Histogram = field(default_factory=Histogram)

    def __post_init__(self, slot_bits: Mapping[str, int]) -> None:
        self.slots = SlotCounts(slot_bits)

    def take(self, node: str, report: Mapping[str, Any], now: float) -> None:
        """A node's report: from now on it hosts the instances that are in it."""
        since = list(compared(node, self.nodes.get(node, {}), report))
        used = {each.instance: each.utilisation for each in since}
        before = self._rates.get(node, {})
        self._rates[node] = {each.instance: _smoothed(before.get(each.instance), each.rows_in) for each in since}
        self.nodes[node] = report
        self._forget(node)
        for each in report["instances"]:
            identity = identity_of(each)
            if not self.tally.has_left(identity):
                last = _Last(node, identity.instance, each, used.get(identity.instance, 0.0))
                self._instances[identity] = last
                self._note(identity, each, report["cores"], now)
        self._progress.append((now, self.rows_read))

    def left(self, node: str, last_word: Mapping[str, Any], now: float) -> None:
        """What an instance says that its node has ended as it was told to."""
        identity = identity_of(last_word)
        if self.tally.has_left(identity):
            return
        self._note(identity, last_word, self.nodes.get(node, {}).get("cores") or 1.0, now)
        self.tally.left(identity)
        self._instances.pop(identity, None)
        self._read_before += last_word["rows_out"] if identity.instance.operator in self.sources else 0

    def lost(self, identity: Incarnation, up_to: int | None) -> None:
        """An instance is gone without a last word; epochs after `up_to` are processed again by another."""
        self.tally.lost(identity, up_to)
        self._instances.pop(identity, None)

    def drop(self, node: str) -> None:
        """The node is gone."""
        self.nodes.pop(node, None)
        self._rates.pop(node, None)
        self._forget(node)

    def _forget(self, node: str) -> None:
        for identity in [identity for identity, last in self._instances.items() if last.node == node]:
            self._instances.pop(identity)

    def _note(self, identity: Incarnation, told: Mapping[str, Any], cores: float, now: float) -> None:
        """What is told once, and what was counted so far."""
        self.tally.note(identity, told["counted"], told["counters"])
        self._note_handed(told["operator"], told["handed"])
        if "slots" in told:
            self.slots.take(identity, told["slots"], cores)
        self._latencies.extend((now, latency) for latency in told["latencies"])
        self.histogram.add(np.asarray(told["latencies"]))

    def _note_handed(self, operator: str, handed: list[list[int]]) -> None:
        for epoch, *part in handed:
            known = self.handovers.get((operator, epoch), Handover())
            self.handovers[operator, epoch] = Handover(*(a + b for a, b in zip(known, part, strict=True)))
        while len(self.handovers) > _HANDOVERS:
            del self.handovers[next(iter(self.handovers))]

    def reported_epochs(self) -> dict[InstanceId, int]:
        """The last epoch that each instance had processed when it last reported."""
        return {last.instance: last.report["epoch"] for last in self._instances.values()}

    def state_bytes(self) -> dict[InstanceId, int]:
        """The size of each instance's state, as it last reported."""
        return {last.instance: last.report["state_bytes"] for last in self._instances.values()}

    @property
    def rows_read(self) -> int:
        read = (last.report["rows_out"] for last in self._instances.values() if last.instance.operator in self.sources)
        return self._read_before + sum(map(int, read))

    def rate(self, now: float, seconds: float = 3.0) -> float:
        """Rows read per second, over the last seconds."""
        recent = [(at, rows) for at, rows in self._progress if at >= now - seconds]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return 0.0
        return max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))

    @property
    def imbalance(self) -> dict[str, float]:
        """By operator: how many times the mean of its instances the fullest one takes in, now."""
        rates: dict[str, list[float]] = {}
        for instance, rate in (each for of_node in self._rates.values() for each in of_node.items()):
            rates.setdefault(instance.operator, []).append(rate)
        return {each: max(of) * len(of) / sum(of) for each, of in rates.items() if len(of) > 1 and any(of)}

    def latency(self, now: float) -> dict[str, float]:
        """Of the recent past."""
        return percentiles(
            self.latencies(now - _RECENT) or [each for _, each in islice(reversed(self._latencies), _FEW)]
        )

    def latencies(self, since: float = 0.0) -> list[float]:
        """Of all epochs that were heard of after a time, newest first; costs as much as there are of these."""
        return [latency for _, latency in takewhile(lambda each: each[0] > since, reversed(self._latencies))]

    def timeline(self, begin: float, every: float = 0.25) -> list[dict[str, float]]:
        """Latencies of epochs by when after a time they were heard of, in stretches of so many seconds; none is empty.

        What it goes by is bounded: of a long run, it has the last part.
        """
        stretches: dict[int, list[float]] = {}
        for heard, latency in self._latencies:
            stretches.setdefault(int((heard - begin) // every), []).append(latency)
        return [{"at": n * every, "epochs": len(of), **percentiles(of)} for n, of in sorted(stretches.items())]

    def instances(self) -> tuple[InstanceStatus, ...]:
        """Those that live."""
        return tuple(sorted((_status(str(who), last) for who, last in self._instances.items()), key=lambda s: s.name))


def _smoothed(before: float | None, now: float) -> float:
    """Between two reports an epoch more or less counts for much."""
    return now if before is None else before + _WEIGHT * (now - before)


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
