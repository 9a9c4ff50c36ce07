"""Slots on their way out: what an instance owes to the new owners of slots that left it.

The state of departed slots stays in the container, frozen, until the new owner is safe: so it can be sent again after
any failure, goes into checkpoints as if it were still owned, and is never copied for safekeeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from primitives.checkpoint import ProcessingState
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.messages import Attach, StateMoved
from seep.protocol.view import Incarnation

#: In how many parts state is dropped, with an epoch between two of them: so that none has to wait long.
PARTS = 128
_DONE = object()


class Departures:
    """The handovers of one instance as their origin; its half of plan kind 1."""

    def __init__(self, me: Incarnation, state: ProcessingState) -> None:
        self._me = me
        self._state = state
        #: epoch -> new owner -> slots: exactly those whose state is frozen here
        self.held: dict[int, dict[InstanceId, SlotSet]] = {}
        #: what each new owner last asked for
        self._asked: dict[InstanceId, Attach] = {}
        self._released = 0
        #: slots that nobody needs any more, of which some state is still to be dropped
        self._gone = SlotSet.empty()
        self._dropping: Iterator[None] = iter(())

    @property
    def slots(self) -> SlotSet:
        found = SlotSet.empty()
        for targets in self.held.values():
            for slots in targets.values():
                found |= slots
        return found

    @property
    def pinned(self) -> tuple[int, ...]:
        """The epochs of backups that new owners hold: changes since then may be asked for."""
        return tuple(
            base for attach in self._asked.values() for epoch, base in attach.bases.items() if epoch > self._released
        )

    def begin(self, epoch: int, targets: Mapping[InstanceId, SlotSet]) -> list[StateMoved]:
        """The epoch before `epoch` is processed: slots leave now. Returns what is to be sent to who has asked."""
        for slots in targets.values():
            self.returned(slots)  # those that leave for a second time were here in between
        self.held[epoch] = dict(targets)
        asked = [self._asked[target] for target in targets if target in self._asked]
        return [moved for attach in asked for moved in self._served(epoch, attach)]

    def attach(self, attach: Attach) -> list[StateMoved]:
        """A new owner asks for its slots; returns what is to be sent to it."""
        self._asked[attach.receiver.instance] = attach
        return [moved for epoch in sorted(self.held) for moved in self._served(epoch, attach)]

    def release(self, up_to: int) -> None:
        """All new owners of slots that left up to this epoch are safe: forget the state."""
        self._released = max(self._released, up_to)
        gone = SlotSet.empty()
        for epoch in [e for e in self.held if e <= up_to]:
            for slots in self.held.pop(epoch).values():
                gone |= slots
        if gone:
            self._drop_later(self._gone | gone)

    def drop_some(self) -> None:
        """Between two epochs: drops a part of the state that is not needed any more."""
        if self._gone and next(self._dropping, _DONE) is _DONE:
            self._gone = SlotSet.empty()

    def _drop_later(self, slots: SlotSet) -> None:
        self._gone, self._dropping = slots, self._state.drop_in_parts(slots, PARTS)

    def returned(self, slots: SlotSet) -> None:
        """Slots are (or were) owned here again: whoever had them before is safe, or they could not have come back."""
        if not self._gone.isdisjoint(slots):
            self._drop_later(self._gone - slots)
        for targets in self.held.values():
            for target in targets:
                targets[target] -= slots

    def forget(self, stale: Iterable[InstanceId]) -> None:
        """New owners with a newer incarnation ask again by themselves."""
        for target in stale:
            self._asked.pop(target, None)

    @property
    def receivers(self) -> tuple[Incarnation, ...]:
        return tuple(attach.receiver for attach in self._asked.values())

    def _served(self, epoch: int, attach: Attach) -> Iterator[StateMoved]:
        slots = self.held[epoch].get(attach.receiver.instance)
        if slots is not None and epoch >= attach.first:
            base, chunks = self._changes(slots, attach.bases.get(epoch))
            yield StateMoved(self._me, attach.receiver, epoch, base, chunks)

    def _changes(self, slots: SlotSet, base: int | None) -> tuple[int | None, tuple[object, ...]]:
        usable = base if base in self._state.marks else None
        # A delta also names other slots that were replaced here since its base: none of the new owner's business.
        return usable, tuple(chunk.select(slots) for chunk in self._state.snapshot(slots, usable))
