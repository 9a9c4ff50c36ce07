"""Commands: what the steward asks its shell to do. Those with a number are answered in later facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, assert_never

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
    """Have a call made on another thread, as it may be slow or fail. Answer: what it returns, or the exception."""

    number: int
    kind: str  #: policy, balancer or steps: one at a time of each kind
    name: str  #: for messages
    work: Callable[[], Any]


class MigrationEnded(NamedTuple):
    """Whoever waits for a migration need not wait any more."""

    number: int


class Tell(NamedTuple):
    """Record an event."""

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
