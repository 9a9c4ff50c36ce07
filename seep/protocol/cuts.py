"""Cuts: the state of the whole query after one epoch, taken to a storage outside of it, and a start from there.

A cut is announced in a view, a little ahead; as with a move, its epoch is not opened before every live node knows it.
So each stateful instance writes its state right after that epoch, and goes on. The cut is complete when all have
written and the sinks have committed the epoch; with the positions that the sources had then, a new run can begin there,
at any parallelism. What fails in between makes it be abandoned, and the next one is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from primitives.graph import InstanceId
from primitives.slots import SlotSet


class Cut(NamedTuple):
    """Which epoch to cut after."""

    id: int
    epoch: int
    base: int | None  #: the epoch of the last complete cut, for those that still know what changed since
    only: str | None = None  #: of this operator alone, for somebody who wants to see it; nothing is begun from it


class CutPart(NamedTuple):
    """What one instance has written."""

    slots: SlotSet
    base: int | None  #: it is what changed since the cut of this epoch; None: it is all
    reference: Any  #: to the storage; plain data


@dataclass(slots=True)
class CutUnderWay:
    """A cut, as the manager knows it until it is complete or abandoned."""

    cut: Cut
    version: int  #: of the view that announces it
    sealed: bool = False  #: every live node knows it
    positions: dict[str, dict[int, Any]] = field(default_factory=dict)  #: source operator -> partition -> position
    parts: dict[InstanceId, CutPart] = field(default_factory=dict)


class Persist(NamedTuple):
    """An instance's effect: write this to the storage, and answer the manager with `Persisted`."""

    owner: Any  #: Incarnation
    cut: Cut
    slots: SlotSet
    base: int | None
    chunks: tuple[Any, ...]


class Recall(NamedTuple):
    """An instance's effect: read what the cut it begins from has of these slots, and answer with `Recalled`."""

    owner: Any  #: Incarnation
    slots: SlotSet


class Recalled(NamedTuple):
    """The answer to the instance: chunks to restore in order."""

    chunks: tuple[Any, ...]


class CutComplete(NamedTuple):
    """The manager's effect: this is a whole that a run can begin from."""

    cut: Cut
    positions: Mapping[str, Mapping[int, Any]]
    parts: Mapping[InstanceId, CutPart]


class CutAbandoned(NamedTuple):
    """The manager's effect: it will never be complete."""

    cut: Cut
    why: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a run begins that does not begin from nothing."""

    epoch: int
    positions: Mapping[str, Mapping[int, Any]]
    generation: int = 1  #: counts the lives of a query: incarnations of a later one fence those of all earlier ones

    @property
    def first_incarnation(self) -> int:
        """An incarnation number above all that instances had in earlier lives of the query."""
        return self.generation << 20
