"""Standing: state of instances elsewhere, made from their backups ahead, for successors that begin on this node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.logic import Logic
from seep.protocol.view import Incarnation

#: Makes the logic of an operator whose state is to stand ready; None if it is not to, or cannot.
MakesStanding = Callable[[str], Logic[Any] | None]


class HandedStates:
    """States that the holder of a node has handed to instances of the same node, until these take them.

    The holder gives and an instance takes, each perhaps on its own thread: every method is one operation of a dict.
    """

    def __init__(self) -> None:
        self._given: dict[Incarnation, Logic[Any]] = {}

    def give(self, asker: Incarnation, logic: Logic[Any]) -> None:
        self._given[asker] = logic

    def take(self, asker: Incarnation) -> Logic[Any] | None:
        """Returns what was given to an instance, and forgets it."""
        return self._given.pop(asker, None)

    def __len__(self) -> int:
        return len(self._given)


@dataclass(slots=True)
class _Ready:
    """An operator whose state is what its owner's backups say, up to one of them."""

    logic: Logic[Any]
    order: tuple[int, int] | None = None  #: of the newest checkpoint that it has; None before the first
    slots: SlotSet = field(default_factory=SlotSet.empty)  #: what it may have something of


class Standing:
    """For each owner an operator like its own, to which every checkpoint is applied after it has been stored.

    The backups are what counts: what stands can be made from them again at any time, and is, whenever they do not
    build on what it has.
    """

    def __init__(self, make: MakesStanding | None) -> None:
        self._make = make
        self._ready: dict[InstanceId, _Ready] = {}
        #: operators that cannot stand
        self._unfit: set[str] = set()

    def serves(self, owner: InstanceId) -> bool:
        """Whether an owner's state is to stand ready here."""
        return self._ready_for(owner) is not None

    def follow(self, owner: InstanceId, chain: Sequence[Checkpoint]) -> Logic[Any] | None:
        """Applies the checkpoints of the owner's backup that it lacks; returns the operator that has the state then."""
        ready = self._ready_for(owner)
        if ready is None:
            return None
        for checkpoint in _missing(chain, ready.order):
            if checkpoint.base is None:
                ready.logic.state.drop(ready.slots)
            ready.logic.state.restore(checkpoint.state)
            ready.order, ready.slots = checkpoint.order, ready.slots | checkpoint.slots
        return ready.logic

    def take(self, owner: InstanceId, chain: Sequence[Checkpoint]) -> Logic[Any] | None:
        """Gives away the operator with the state of the owner's backup, to the owner's successor on this node."""
        if owner not in self._ready:
            return None
        logic = self.follow(owner, chain)
        ready = self._ready.pop(owner)
        ready.logic.state.drop(ready.slots - chain[-1].slots)
        return logic

    def forget(self, owner: InstanceId) -> None:
        """Drops the state of an owner whose backups are not kept here any more, or were replaced."""
        self._ready.pop(owner, None)

    def _ready_for(self, owner: InstanceId) -> _Ready | None:
        if owner not in self._ready and self._make is not None and owner.operator not in self._unfit:
            logic = self._make(owner.operator)
            if logic is None:
                self._unfit.add(owner.operator)
            else:
                self._ready[owner] = _Ready(logic)
        return self._ready.get(owner)


def _missing(chain: Sequence[Checkpoint], order: tuple[int, int] | None) -> Sequence[Checkpoint]:
    """The checkpoints of a chain after the one with that order; all of them if it has none."""
    orders = [checkpoint.order for checkpoint in chain]
    return chain[orders.index(order) + 1 :] if order in orders else chain
