"""Status: a run at one moment, for users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from inspect import get_annotations
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from policies.observation import InstanceReport
from primitives.event import plain
from seep.record.reports import BulkTransfer, InstanceFigures, NodeReport, Resources
from seep.record.slots.counts import HottestSlot
from seep.record.totals import RunTotals


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """The status of one instance, by its node's last report."""

    name: str
    operator: str
    node: str
    phase: str
    epoch: int
    rows_in: int
    rows_out: int
    cpu: float  #: seconds of its thread
    utilisation: float  #: fraction of its CPU share, between the last two reports
    waiting: int  #: messages in its mailbox
    outbox_bytes: int
    state_bytes: int
    counters: Mapping[str, int]
    rows_in_per_second: float = 0.0
    rows_out_per_second: float = 0.0
    unsent: int = 0  #: epochs of output that its slowest receiver has not fetched yet
    age: float = 0.0  #: seconds from the creation of the oldest row of its last epoch until its output
    #: distance of its watermark from the highest of the sources, in the unit of the event time; None if one is unknown
    watermark_behind: int | None = None
    index: int = 0  #: of the operator's instances


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """All instances of an operator together."""

    name: str
    instances: int
    epoch: int  #: the last epoch that all have processed
    rows_in_per_second: float
    rows_out_per_second: float
    utilisation: float  #: of the fullest instance
    age: float  #: of the slowest instance
    state_bytes: int
    outbox_bytes: int
    watermark_behind: int | None  #: of the slowest instance
    hottest: HottestSlot | None = None  #: in the last window of time, if rows are counted by slot


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of one node; flows are per second."""

    name: str
    cpu: float  #: used cores
    cores: float  #: number of cores that it may use
    rss: int  #: bytes of memory
    state_bytes: int  #: state of its instances, with their buffers
    read: float  #: bytes from disks
    written: float  #: bytes to disks
    received: float  #: bytes from other machines, by all processes of its machine
    sent: float  #: bytes to other machines, by all processes of its machine
    transfers: tuple[BulkTransfer, ...] = ()  #: state that it was sending at its last report
    cpu_seconds: float = 0.0  #: used so far
    resources: Resources = field(default_factory=Resources)  #: used so far
    state: str = "used"  #: used, idle (it hosts nothing), leaving (it gets nothing new), or lost


class OpenDecision(NamedTuple):
    """An open decision or request by hand."""

    kind: str  #: scaling, rebalance, balance, migration or drain
    subject: str  #: an operator, or a node
    since: float
    by_hand: bool
    why: str


class CheckpointStatus(NamedTuple):
    """A checkpoint that this run has stored."""

    id: int
    epoch: int
    age: float  #: seconds
    bytes: int  #: bytes of state, with the checkpoints that it builds on
    is_savepoint: bool


#: The part of its CPU share above which an instance is full, unless a run's settings say otherwise.
FULL = 0.7


@dataclass(frozen=True, slots=True)
class Status:
    """A run at one moment."""

    at: float
    ticked: int
    committed: int
    rows_read: int
    rows_per_second: float  #: rows read by the sources, over the last seconds
    latency: Mapping[str, float]  #: p50, p95, p99 and max of the recent past, in seconds; empty if unknown
    instances: tuple[InstanceStatus, ...]
    nodes: int
    idle_nodes: int
    offered: float = 0.0  #: rows per second that are due by the sources' rates, or that they read without one
    vms: Mapping[str, int] = field(default_factory=dict)  #: number of VMs in each state
    #: by operator with several instances: input of the fullest instance over their mean
    imbalance: Mapping[str, float] = field(default_factory=dict)
    balanced: tuple[str, ...] = ()  #: operators that are balanced
    operators: tuple[OperatorStatus, ...] = ()
    edges: Mapping[str, float] = field(default_factory=dict)  #: rows per second on each edge
    hosts: tuple[NodeStatus, ...] = ()  #: the nodes that have reported
    decisions: tuple[OpenDecision, ...] = ()  #: all open ones, with their reasons
    checkpoints: tuple[CheckpointStatus, ...] = ()  #: the newest that this run has stored, oldest first
    vm_seconds: float = 0.0  #: cost of all VMs so far
    totals: RunTotals = field(default_factory=RunTotals)  #: counters so far, none of which goes back
    rows_out_per_second: float = 0.0  #: rows that the sinks take
    window: int = 0  #: number of epochs that may be in flight; 0 if unknown
    since_commit: float = 0.0  #: seconds since all sinks have committed an epoch
    full: float = FULL  #: an instance that uses a larger part of its CPU share is full

    @property
    def in_flight(self) -> int:
        """Number of epochs that are opened and not committed."""
        return self.ticked - self.committed

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = _plain(self)
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Status:
        """Returns the status that `to_json` wrote, also after its way through JSON text."""
        return _statuses().validate_python(told)


@cache
def _statuses() -> TypeAdapter[Status]:
    return TypeAdapter(Status)


#: Types of values that are JSON values already, and their names.
_SCALARS = frozenset({int, float, str, bool, type(None)})
_SCALAR_NAMES = frozenset({"int", "float", "str", "bool", "None"})


class _Fields(NamedTuple):
    """How values of a class become JSON."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    others: tuple[str, ...]  #: the names of fields that may not be JSON values already


def _plain(value: object) -> Any:
    """Returns a value of a status as JSON, with the names of all fields; fast, because there may be many instances."""
    if type(value) in _SCALARS:
        return value
    found = _fields_of(type(value))  # type: ignore[arg-type]  # mypy takes the hash of instances for that of classes
    if found is not None:
        told = dict(zip(found.names, found.values(value), strict=True))
        for name in found.others:
            told[name] = _plain(told[name])
        return told
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else plain(value)


@cache
def _fields_of(kind: type) -> _Fields | None:
    """Returns the fields of a dataclass or of a named tuple; None for other classes."""
    if not is_dataclass(kind) and not hasattr(kind, "_fields"):
        return None
    types = {
        name: str(getattr(given, "__forward_arg__", given))
        for base in reversed(kind.__mro__)
        for name, given in get_annotations(base).items()
    }
    names = tuple(types)
    others = tuple(name for name, given in types.items() if not {*map(str.strip, given.split("|"))} <= _SCALAR_NAMES)
    return _Fields(names, attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),), others)


def instance_status(
    node: str, figures: InstanceFigures, now: InstanceReport | None, watermark_behind: int | None
) -> InstanceStatus:
    """Returns the status of one instance; `now` has its rates between its node's last two reports."""
    return InstanceStatus(
        name=str(figures.identity),
        operator=figures.identity.instance.operator,
        node=node,
        phase=figures.phase,
        epoch=figures.epoch,
        rows_in=figures.rows_in,
        rows_out=figures.rows_out,
        cpu=figures.cpu,
        utilisation=now.utilisation if now is not None else 0.0,
        waiting=figures.waiting,
        outbox_bytes=figures.outbox_bytes,
        state_bytes=figures.state_bytes,
        counters=figures.counters,
        rows_in_per_second=now.rows_in if now is not None else 0.0,
        rows_out_per_second=now.rows_out if now is not None else 0.0,
        unsent=figures.unsent,
        age=figures.age,
        watermark_behind=watermark_behind,
        index=figures.identity.instance.index,
    )


def operator_status(name: str, instances: Sequence[InstanceStatus], hottest: HottestSlot | None) -> OperatorStatus:
    """Combines the statuses of an operator's instances, of which there is at least one."""
    behind = [each.watermark_behind for each in instances if each.watermark_behind is not None]
    return OperatorStatus(
        name=name,
        instances=len(instances),
        epoch=min(each.epoch for each in instances),
        rows_in_per_second=sum(each.rows_in_per_second for each in instances),
        rows_out_per_second=sum(each.rows_out_per_second for each in instances),
        utilisation=max(each.utilisation for each in instances),
        age=max(each.age for each in instances),
        state_bytes=sum(each.state_bytes for each in instances),
        outbox_bytes=sum(each.outbox_bytes for each in instances),
        watermark_behind=max(behind, default=None),
        hottest=hottest,
    )


def node_status(name: str, state: str, report: NodeReport, before: NodeReport | None) -> NodeStatus:
    """Returns the status of one node; without an earlier report, rates are not known."""
    former = before if before is not None and report.at > before.at else report
    seconds = report.at - former.at or 1.0
    now, then = report.resources, former.resources
    return NodeStatus(
        name=name,
        cpu=(report.cpu - former.cpu) / seconds,
        cores=report.cores,
        rss=now.rss,
        state_bytes=report.kept,
        read=(now.read - then.read) / seconds,
        written=(now.written - then.written) / seconds,
        received=(now.received - then.received) / seconds,
        sent=(now.sent - then.sent) / seconds,
        transfers=report.transfers,
        cpu_seconds=report.cpu,
        resources=now,
        state=state,
    )
