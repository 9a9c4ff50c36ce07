"""Plans: changes of the topology from an epoch on; the manager remembers them until they are complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from operator import or_
from typing import NamedTuple

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.view import Incarnation


class Refusal(Enum):
    """The reason for refusing a plan."""

    NOT_RUNNING = "the query is not running"
    ENDING = "the query is about to end"
    BUSY = "another plan of the same operator, or of the same slots, is not complete yet"
    UNKNOWN = "it names an operator, instance or slot that does not exist"
    OVERLAP = "a slot cannot go to two instances"
    NO_STATE = "only an operator with state is split; move the slots of others"
    NOT_NEW = "the parts of a split go to new instances, with numbers that none ever had"
    EVERYTHING = "a split leaves its origin some slots; move them if all are to go"
    NO_BACKUP = "there is no backup to split"
    OLD_BACKUP = "its last backup is from before the operator's last change"
    NOT_ON_A_NODE = "no node keeps backups of it that could be split: they are in storage, or there are none"
    NO_NODE = "no node is free"
    EMPTIED = "an instance that lost all its slots cannot get new ones"
    NOTHING = "it moves nothing"
    TOO_SOON = "it cannot be prepared until then, or another plan of the operator is effective later"


class Accepted(NamedTuple):
    plan: int


class Refused(NamedTuple):
    why: Refusal


@dataclass(slots=True)
class Move:
    """A plan of kind 1: slots change owners at a future epoch, by handover if they have state."""

    plan: int
    operator: str
    first: int
    version: int  #: the version of the view that announced it
    slots: SlotSet
    concerned: tuple[InstanceId, ...]  #: the instances that own slots at `first`, and gain or lose some
    sealed: bool = False  #: whether every live node knows it, and knows the lost nodes


@dataclass(slots=True)
class Split:
    """A plan of kind 3 in preparation: the origin's backup is divided and restored, while the origin works."""

    plan: int
    origin: InstanceId
    parts: Mapping[InstanceId, SlotSet]
    holder: str
    origin_is_dead: bool
    epoch: int | None = None  #: the epoch of the backup that was divided
    standby: dict[InstanceId, tuple[Incarnation, str]] = field(default_factory=dict)
    restored: set[InstanceId] = field(default_factory=set)

    def stands_on(self, node: str) -> bool:
        return node == self.holder or any(node == where for _, where in self.standby.values())


class OpenPlans:
    """The moves and splits that are not complete, by number. No number is given twice."""

    def __init__(self) -> None:
        self.moves: dict[int, Move] = {}
        self.splits: dict[int, Split] = {}
        self._last = 0

    def next_number(self) -> int:
        """Returns the number of a plan that begins now."""
        self._last += 1
        return self._last

    def moves_of(self, operator: str) -> list[Move]:
        return [move for move in self.moves.values() if move.operator == operator]

    def splits_operator(self, operator: str) -> bool:
        """Returns whether an instance of the operator is being split."""
        return any(split.origin.operator == operator for split in self.splits.values())

    def reserved_nodes(self) -> list[str]:
        """Yields the nodes that splits use for stand-bys or for a backup, once for each use; no view has them yet."""
        return [
            node for split in self.splits.values() for node in (*(n for _, n in split.standby.values()), split.holder)
        ]


def union_of(parts: Iterable[SlotSet]) -> SlotSet:
    """Returns the slots that are in any of the parts."""
    return reduce(or_, parts, SlotSet.empty())


def overlap(parts: Mapping[int, SlotSet]) -> bool:
    """Returns whether a slot is in two of the parts."""
    return sum(map(len, parts.values())) > len(union_of(parts.values()))
