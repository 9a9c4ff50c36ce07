"""Observation: the reports of all instances in one interval; History: all observations, the input of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from primitives.graph import InstanceId, QueryGraph


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """The measurements of one instance in one report interval."""

    instance: InstanceId
    node: str
    #: user + system CPU time of its part of its node's process, over what the node could have had: its CPU share, or
    #: less where other processes held the cores (stolen time); 1 is all of it, or more than that, as on credit
    utilisation: float
    busy: float  #: fraction of the interval in which its thread worked, on the CPU or waiting for disk, sink or lock
    rows_in: float  #: per second
    rows_out: float  #: per second
    waiting: int = 0  #: stream messages in its mailbox at the end
    unsent: int = 0  #: epochs of output that its slowest receiver has not fetched yet, at the end
    outbox_bytes: int = 0
    state_bytes: int = 0
    memory: float = 0.0  #: processing and buffer state on its node over the node's budget; 0 without a budget
    slots: int = 1  #: number of its slots


@dataclass(frozen=True, slots=True)
class Observation:
    """A query at the end of one report interval."""

    at: float  #: seconds since the query began to run
    seconds: float  #: length of the interval
    instances: Mapping[InstanceId, InstanceReport]
    #: source -> rows per second that are due by its rate; what it reads, if it has no rate
    offered: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, float] = field(default_factory=dict)  #: source -> rows that are due and not read
    latency: Mapping[str, float] = field(default_factory=dict)  #: p50, p95, p99, max of the interval, in seconds
    epochs_in_flight: int = 0
    warm_nodes: int = 0

    def of(self, operator: str) -> tuple[InstanceReport, ...]:
        """The reports of an operator's instances, by index."""
        return tuple(self.instances[i] for i in sorted(self.instances) if i.operator == operator)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an operator's number of instances, or a recovery; reports during it say little."""

    operator: str
    begun: float
    before: int
    after: int
    done: float | None = None  #: None while it goes on


@dataclass(frozen=True, slots=True)
class History:
    """The whole input of a policy, so that any decision can be replayed."""

    graph: QueryGraph
    observations: tuple[Observation, ...] = ()  #: oldest first
    changes: tuple[Change, ...] = ()  #: oldest first

    @property
    def now(self) -> float:
        return self.observations[-1].at if self.observations else 0.0

    def parallelism(self, operator: str) -> int:
        """Returns the number of an operator's instances at the latest observation."""
        return len(self.observations[-1].of(operator)) if self.observations else 0

    def is_changing(self, operator: str) -> bool:
        return any(change.operator == operator and change.done is None for change in self.changes)

    def settled(self, operator: str) -> tuple[Observation, ...]:
        """Returns the observations whose whole interval is after the operator's last change; none during a change."""
        if self.is_changing(operator):
            return ()
        since = max((c.done for c in self.changes if c.operator == operator and c.done is not None), default=0.0)
        return tuple(each for each in self.observations if each.at - each.seconds >= since)
