"""Plans: changes of topology with one effective epoch, as the manager remembers them until they are complete."""

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
    """Why a plan is refused."""

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
    """Plan kind 1: slots change hands at a future epoch, by handover where they have state."""

    plan: int
    operator: str
    first: int
    version: int  #: of the view that announced it
    slots: SlotSet
    concerned: tuple[InstanceId, ...]  #: those that own slots at `first` and win or lose some
    sealed: bool = False  #: every live node knows it, and knows who is not alive


@dataclass(slots=True)
class Split:
    """Plan kind 3 while it is prepared: the origin's backup is cut, the parts are restored, the origin goes on."""

    plan: int
    origin: InstanceId
    parts: Mapping[InstanceId, SlotSet]
    holder: str
    origin_is_dead: bool
    epoch: int | None = None  #: of the backup that was cut
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
        """The number of a plan that begins now."""
        self._last += 1
        return self._last

    def moves_of(self, operator: str) -> list[Move]:
        return [move for move in self.moves.values() if move.operator == operator]

    def splits_operator(self, operator: str) -> bool:
        """Whether an instance of the operator is being split."""
        return any(split.origin.operator == operator for split in self.splits.values())

    def reserved_nodes(self) -> list[str]:
        """Nodes on which splits have stand-bys or cut a backup, once for each; no view tells of that yet."""
        return [
            node for split in self.splits.values() for node in (*(n for _, n in split.standby.values()), split.holder)
        ]


def union_of(parts: Iterable[SlotSet]) -> SlotSet:
    """All slots that are in any of the parts."""
    return reduce(or_, parts, SlotSet.empty())


def overlap(parts: Mapping[int, SlotSet]) -> bool:
    """Whether a slot is in two of the parts."""
    return sum(map(len, parts.values())) > len(union_of(parts.values()))
