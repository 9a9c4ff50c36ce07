"""Commands: the steward's requests to its shell. Those with a number are answered in later facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, assert_never

from primitives.event import Event
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Assignment


class MoveSlots(NamedTuple):
    """Makes the manager announce a move. Answer: `Accepted` or `Refused`."""

    number: int
    operator: str
    parts: Mapping[int, SlotSet]
    first: int | None = None
    prepare: bool = True
    vertical: bool = False


class SplitBackup(NamedTuple):
    """Makes the manager split the backup of an instance. Answer: `Accepted` or `Refused`."""

    number: int
    origin: InstanceId
    parts: Mapping[int, SlotSet]


class TakeCheckpoints(NamedTuple):
    """Makes these instances take a checkpoint now."""

    instances: tuple[InstanceId, ...]


class PlaceBackups(NamedTuple):
    """Sets the nodes that keep the backups of these instances from now on."""

    groups: Mapping[InstanceId, tuple[str, ...]]


class LeaveNode(NamedTuple):
    """Marks a node as leaving: it gets nothing new, and its VM is stopped when nothing is left there."""

    node: str


class WantNodes(NamedTuple):
    """Sets the number of free nodes that are needed now, beyond the reserve."""

    nodes: int


class WatchSlots(NamedTuple):
    """Makes nodes count the rows of each slot of these operators, and of no others, from now on."""

    operators: frozenset[str]


class EndWindow(NamedTuple):
    """Requests the counts since the last call. Answer: `SlotLoads`; None until all instances have reported."""

    number: int
    operator: str
    seconds: float
    assignment: Assignment
    moving: SlotSet


class Consult(NamedTuple):
    """Requests a call on another thread, because it may be slow or fail. Answer: its result or exception."""

    number: int
    kind: str  #: policy, balancer or steps: one question of each kind at a time
    name: str  #: name for messages
    work: Callable[[], Any]


class MigrationEnded(NamedTuple):
    """Wakes those who wait for a migration."""

    number: int


class Tell(NamedTuple):
    """Records an event."""

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


def brief(command: Command) -> str:
    """A command in a few words, for the story of the steward."""
    match command:
        case MoveSlots(number, operator, parts, first):
            return f"MoveSlots({number}, {operator}, {_sizes(parts)}, at epoch {first})"
        case SplitBackup(number, origin, parts):
            return f"SplitBackup({number}, {origin}, {_sizes(parts)})"
        case TakeCheckpoints(instances):
            return f"TakeCheckpoints({', '.join(map(str, instances))})"
        case PlaceBackups(groups):
            return f"PlaceBackups(of {len(groups)} instances)"
        case WatchSlots(operators):
            return f"WatchSlots({', '.join(sorted(operators))})"
        case EndWindow(number, operator, seconds):
            return f"EndWindow({number}, {operator}, {seconds:.1f} s)"
        case Consult(number, _, name):
            return f"Consult({number}, {name})"
        case Tell(event):
            return f"Tell({event})"
        case LeaveNode() | WantNodes() | MigrationEnded():
            return str(command)
    assert_never(command)


def _sizes(parts: Mapping[int, SlotSet]) -> str:
    return ", ".join(f"{len(slots)} slots to {index}" for index, slots in parts.items())
