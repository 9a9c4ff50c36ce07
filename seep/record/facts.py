"""Facts: everything known of a run at one moment, as one immutable value, which the steward decides by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from policies.observation import Change, Observation
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Assignment, Topology
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.state import QueryPhase
from seep.protocol.view import Seat
from seep.record.status import Status


class OpenPlan(NamedTuple):
    """A plan that is not complete."""

    operator: str
    first: int | None  #: the epoch at which it is effective; None while a split is prepared
    slots: SlotSet


class Handover(NamedTuple):
    """The handover to the instances of an operator at an epoch, as far as they have reported."""

    nbytes: int = 0  #: handed over between two epochs
    nbytes_ahead: int = 0  #: bytes of prefetched backups
    held_back: int = 0  #: rows that waited for it


class Latencies(Protocol):
    """The latencies of committed epochs, as far back as they are kept."""

    def percentiles_since(self, at: float) -> Mapping[str, float]:
        """Returns p50, p95, p99 and max of those reported since a time of the run; empty if there is none."""
        ...


class NoLatencies:
    """The latencies of a run that measures none."""

    def percentiles_since(self, at: float) -> Mapping[str, float]:  # noqa: ARG002
        return {}


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """The manager's knowledge: owners of slots, placement, and open plans."""

    topology: Topology
    phase: QueryPhase
    ending: bool  #: whether the input is to end, or has
    ticked: int
    committed: int
    lead: int  #: epochs between the announcement of a plan and its effect
    window: int  #: number of epochs that may be open
    placement: Mapping[InstanceId, Seat]
    nodes: frozenset[str]  #: live nodes
    leaving: frozenset[str]  #: live nodes that get nothing new
    used: frozenset[str]  #: live nodes that host an instance, or keep the only copy of a backup
    vms: Mapping[str, str]  #: VMs of nodes, where known
    fresh: Mapping[str, int]  #: by operator: the lowest index that no instance has ever had
    moves: Mapping[int, OpenPlan]
    splits: Mapping[int, OpenPlan]
    safe: Mapping[InstanceId, int]  #: the epochs up to which placed instances are backed up, or have committed
    unkept: frozenset[str]  #: operators without backups
    not_on_nodes: frozenset[str]  #: operators whose backups are never on nodes
    groups: Mapping[InstanceId, tuple[str, ...]]  #: the chosen holders of backups

    @property
    def graph(self) -> QueryGraph:
        return self.topology.graph

    def latest(self, operator: str) -> Assignment:
        """Returns the owners of slots after all announced plans."""
        return self.topology.history[operator][-1].assignment

    def instances(self, operator: str) -> int:
        """Returns the number of instances that own slots then."""
        return len(self.latest(operator).parts)

    def soonest(self, operator: str) -> int:
        """The epoch at which a move of the operator can be effective if it is announced now."""
        return max(self.ticked + 1 + self.lead, self.topology.history[operator][-1].first + 1)

    def is_planned(self, operator: str) -> bool:
        """Whether a plan that gives slots of the operator to others is under way."""
        return any(plan.operator == operator for plan in (*self.moves.values(), *self.splits.values()))

    def was_born(self, instance: InstanceId) -> bool:
        """Whether the instance exists or ever existed."""
        return instance in self.placement or instance.index < self.fresh[instance.operator]

    def hosted_by(self, node: str) -> list[InstanceId]:
        return [instance for instance, seat in self.placement.items() if seat.node == node]

    def of_kind(self, kind: Kind) -> list[InstanceId]:
        """The placed instances of one kind of operator."""
        return [instance for instance in self.placement if self.graph.kind(instance.operator) is kind]

    @property
    def kept(self) -> list[InstanceId]:
        """Live instances whose state is backed up."""
        return [
            instance
            for instance in self.of_kind(Kind.STATEFUL)
            if instance.operator not in self.unkept and self.placement[instance].node in self.nodes
        ]


def query_facts(manager: Manager) -> QueryFacts:
    """Returns the present facts of a manager."""
    placement = dict(manager.placement)
    operators = manager.graph.order
    return QueryFacts(
        topology=manager.topology,
        phase=manager.phase,
        ending=manager.ending,
        ticked=manager.ticked,
        committed=manager.committed,
        lead=manager.settings.lead,
        window=manager.settings.window,
        placement=placement,
        nodes=frozenset(manager.nodes),
        leaving=frozenset(manager.roster.leaving),
        used=frozenset(manager.used_nodes()),
        vms=dict(manager.roster.vms),
        fresh={operator: manager.fresh_index(operator) for operator in operators} if placement else {},
        moves={plan: OpenPlan(move.operator, move.first, move.slots) for plan, move in manager.moves.items()},
        splits={plan: OpenPlan(split.origin.operator, None, SlotSet.empty()) for plan, split in manager.splits.items()},
        safe={instance: manager.safe.of(instance) for instance in placement},
        unkept=manager.settings.unkept,
        not_on_nodes=frozenset(
            o for o in manager.graph.of_kind(Kind.STATEFUL) if placement and not manager.has_backups_on_nodes(o)
        ),
        groups=manager.replication.groups,
    )


class Answer(NamedTuple):
    """The answer to a command; an exception if the command failed."""

    number: int  #: number of the command
    value: Any


@dataclass(frozen=True, slots=True)
class Facts:
    """A run at one moment. Times are seconds since the query began to run."""

    at: float
    query: QueryFacts
    free: tuple[str, ...] = ()  #: warm nodes that new instances may take
    answers: tuple[Answer, ...] = ()  #: answers to earlier commands, since the last facts
    observation: Observation | None = None  #: the observation of the last report interval
    recoveries: tuple[Change, ...] = ()  #: the newest ended ones, and all open ones
    reported: Mapping[InstanceId, int] = field(default_factory=dict)  #: the last epoch that each instance has reported
    state_bytes: Mapping[InstanceId, int] = field(default_factory=dict)
    handed: Mapping[tuple[str, int], Handover] = field(default_factory=dict)  #: handovers by operator and epoch
    latencies: Latencies = field(default_factory=NoLatencies)
    #: status of instances, operators, nodes, VMs, checkpoints and open decisions, at most half a second old
    status: Status | None = None
