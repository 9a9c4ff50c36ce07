"""Commands: what the steward asks its shell to do. Those with a number are answered in later facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from primitives.event import Event
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment


class MoveSlots(NamedTuple):
    """Have the manager announce a move. Answer: `Accepted` or `Refused`."""

    number: int
    operator: str
    parts: Mapping[int, SlotSet]
    first: int | None = None
    prepare: bool = True
    vertical: bool = False


class SplitBackup(NamedTuple):
    """Have the manager split the backup of an instance. Answer: `Accepted` or `Refused`."""

    number: int
    origin: InstanceId
    parts: Mapping[int, SlotSet]


class TakeCheckpoints(NamedTuple):
    """Have these instances take a checkpoint now."""

    instances: tuple[InstanceId, ...]


class PlaceBackups(NamedTuple):
    """From now on these nodes keep the backups of these instances."""

    groups: Mapping[InstanceId, tuple[str, ...]]


class LeaveNode(NamedTuple):
    """A node will go: nothing new is put on it, and its VM ends when nothing is left there."""

    node: str


class WantNodes(NamedTuple):
    """So many free nodes are needed now, beyond the reserve."""

    nodes: int


class WatchSlots(NamedTuple):
    """From now on nodes count the rows of each slot of these operators, and of no others."""

    operators: frozenset[str]


class EndWindow(NamedTuple):
    """What was counted since the last call. Answer: `SlotLoads`; None while not all instances have told of it."""

    number: int
    operator: str
    seconds: float
    assignment: Assignment
    moving: SlotSet


class Consult(NamedTuple):
    """Work that is not the steward's own, as it may be slow or fail: done elsewhere. Answer: what it returns."""

    number: int
    kind: str  #: policy, balancer or steps: one at a time of each kind
    name: str  #: for messages
    work: Callable[[], Any]


class MigrationEnded(NamedTuple):
    """Whoever waits for a migration need not wait any more."""

    number: int


class Tell(NamedTuple):
    """Something that people should know."""

    event: Event


Command = (
    MoveSlots
    | SplitBackup
    | TakeCheckpoints
    | PlaceBackups
    | LeaveNode
    | WantNodes
    | WatchSlots
    | EndWindow
    | Consult
    | MigrationEnded
    | Tell
)
