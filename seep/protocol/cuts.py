"""Cuts: copies of the whole query's state after one epoch, in a storage outside of the query, and starts from them.

A view announces a cut a few epochs ahead. As with a move, its epoch is not opened before every live node knows it, so
each stateful instance writes its state right after that epoch, and continues. The cut is complete when all instances
have written and the sinks have committed the epoch. With the positions of the sources at that epoch, a new run can
begin there, with any parallelism. After a failure in between, the cut is abandoned, and the next one is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from primitives.graph import InstanceId
from primitives.slots import SlotSet


class Cut(NamedTuple):
    """A request to copy the state of all instances after an epoch."""

    id: int
    epoch: int
    base: int | None  #: the epoch of the last complete cut, for instances that still know what has changed since
    only: str | None = None  #: the one operator to copy, for a user who inspects it; no run begins from such a cut


class CutPart(NamedTuple):
    """The part of a cut that one instance has written."""

    slots: SlotSet
    base: int | None  #: the epoch since which the part tells the changes; None if it has all state
    reference: Any  #: the place in the storage; plain data


@dataclass(slots=True)
class CutUnderWay:
    """A cut, as the manager knows it until it is complete or abandoned."""

    cut: Cut
    version: int  #: the version of the view that announces it
    sealed: bool = False  #: whether every live node knows it
    positions: dict[str, dict[int, Any]] = field(default_factory=dict)  #: source operator -> partition -> position
    parts: dict[InstanceId, CutPart] = field(default_factory=dict)


class Persist(NamedTuple):
    """An instance's effect: the shell writes this to the storage, and answers the manager with `Persisted`."""

    owner: Any  #: Incarnation
    cut: Cut
    slots: SlotSet
    base: int | None
    chunks: tuple[Any, ...]


class Recall(NamedTuple):
    """An instance's effect: the shell reads these slots from the cut of the beginning, and answers with `Recalled`."""

    owner: Any  #: Incarnation
    slots: SlotSet


class Recalled(NamedTuple):
    """The answer to an instance: chunks to restore in this order."""

    chunks: tuple[Any, ...]


class CutComplete(NamedTuple):
    """The manager's effect: the cut is complete, and a run can begin from it."""

    cut: Cut
    positions: Mapping[str, Mapping[int, Any]]
    parts: Mapping[InstanceId, CutPart]


class CutAbandoned(NamedTuple):
    """The manager's effect: the cut will never be complete."""

    cut: Cut
    why: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """The epoch and positions from which a run continues."""

    epoch: int
    positions: Mapping[str, Mapping[int, Any]]
    generation: int = 1  #: the number of the run in its line: its incarnations fence those of all earlier runs

    @property
    def first_incarnation(self) -> int:
        """The first incarnation number, higher than all that instances had in earlier runs of the query."""
        return self.generation << 20
