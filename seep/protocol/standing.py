"""Stand-by state: state of instances on other nodes, restored from their backups ahead for successors on this node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.logic import Logic
from seep.protocol.view import Incarnation

#: A factory of logic whose state is to be kept ready; returns None if an operator's state must not or cannot be.
MakesStanding = Callable[[str], Logic[Any] | None]


class HandedStates:
    """States that the holder of a node gives to new instances of the same node, until these take them.

    The holder and the instances may run on different threads: every method is one operation of a dict.
    """

    def __init__(self) -> None:
        self._given: dict[Incarnation, Logic[Any]] = {}

    def give(self, asker: Incarnation, logic: Logic[Any]) -> None:
        self._given[asker] = logic

    def take(self, asker: Incarnation) -> Logic[Any] | None:
        """Returns and removes the state that was given to an instance."""
        return self._given.pop(asker, None)

    def __len__(self) -> int:
        return len(self._given)


@dataclass(slots=True)
class _Ready:
    """An operator with the state of its owner's backups up to one of them."""

    logic: Logic[Any]
    order: tuple[int, int] | None = None  #: the order of the newest checkpoint that it has; None before the first
    slots: SlotSet = field(default_factory=SlotSet.empty)  #: the slots of which it may have state


class Standing:
    """Operators with ready state, one for each owner; every checkpoint is applied after it has been stored.

    The backups remain the reference: the ready state can be made from them again at any time, and is, whenever they do
    not build on it.
    """

    def __init__(self, make: MakesStanding | None) -> None:
        self._make = make
        self._ready: dict[InstanceId, _Ready] = {}
        #: operators whose state cannot be kept ready
        self._unfit: set[str] = set()

    def serves(self, owner: InstanceId) -> bool:
        """Returns whether an owner's state is to be kept ready here."""
        return self._ready_for(owner) is not None

    def follow(self, owner: InstanceId, chain: Sequence[Checkpoint]) -> Logic[Any] | None:
        """Applies the missing checkpoints of the owner's backup; returns the operator that then has the state."""
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
        """Removes and returns the operator with the state of the owner's backup, for its successor on this node."""
        if owner not in self._ready:
            return None
        logic = self.follow(owner, chain)
        ready = self._ready.pop(owner)
        ready.logic.state.drop(ready.slots - chain[-1].slots)
        return logic

    def forget(self, owner: InstanceId) -> None:
        """Drops the state of an owner whose backups were replaced, or are no longer kept here."""
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
    """Returns the checkpoints of a chain after the one with that order; all of them if `order` is None."""
    orders = [checkpoint.order for checkpoint in chain]
    return chain[orders.index(order) + 1 :] if order in orders else chain
