"""Departures: state that an instance owes to the new owners of slots that have left it.

The state of departed slots stays in the container, frozen, until the new owner is safe. So it can be sent again after
any failure, is part of checkpoints as if it were still owned, and is never copied as a precaution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from primitives.checkpoint import ProcessingState
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.messages import Attach, StateMoved
from seep.protocol.view import Incarnation

#: The number of parts in which state is dropped, with an epoch between two of them, so that no epoch is delayed long.
PARTS = 128
_DONE = object()


class Departures:
    """The handovers of which one instance is the origin; its half of plan kind 1."""

    def __init__(self, me: Incarnation, state: ProcessingState) -> None:
        self._me = me
        self._state = state
        #: epoch -> new owner -> slots: exactly the slots whose state is frozen here
        self.held: dict[int, dict[InstanceId, SlotSet]] = {}
        #: the last request of each new owner
        self._asked: dict[InstanceId, Attach] = {}
        self._released = 0
        #: slots that no instance needs any more, of which some state is still to be dropped
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
        """The epochs of backups that new owners hold: they may ask for changes since then."""
        return tuple(
            base for attach in self._asked.values() for epoch, base in attach.bases.items() if epoch > self._released
        )

    def begin(self, epoch: int, targets: Mapping[InstanceId, SlotSet]) -> list[StateMoved]:
        """Marks slots as left before `epoch`; returns the messages to new owners that have asked for them."""
        for slots in targets.values():
            self.returned(slots)  # slots that leave for a second time have been here in between
        self.held[epoch] = dict(targets)
        asked = [self._asked[target] for target in targets if target in self._asked]
        return [moved for attach in asked for moved in self._served(epoch, attach)]

    def attach(self, attach: Attach) -> list[StateMoved]:
        """Records that a new owner asks for its slots; returns the messages to it."""
        self._asked[attach.receiver.instance] = attach
        return [moved for epoch in sorted(self.held) for moved in self._served(epoch, attach)]

    def release(self, up_to: int) -> None:
        """Forgets the state of slots that left up to this epoch: all their new owners are safe."""
        self._released = max(self._released, up_to)
        gone = SlotSet.empty()
        for epoch in [e for e in self.held if e <= up_to]:
            for slots in self.held.pop(epoch).values():
                gone |= slots
        if gone:
            self._drop_later(self._gone | gone)

    def drop_some(self) -> None:
        """Drops a part of the state that is not needed any more; called between two epochs."""
        if self._gone and next(self._dropping, _DONE) is _DONE:
            self._gone = SlotSet.empty()

    def _drop_later(self, slots: SlotSet) -> None:
        self._gone, self._dropping = slots, self._state.drop_in_parts(slots, PARTS)

    def returned(self, slots: SlotSet) -> None:
        """Releases slots that are owned here again, or were: their former owners must be safe."""
        if not self._gone.isdisjoint(slots):
            self._drop_later(self._gone - slots)
        for targets in self.held.values():
            for target in targets:
                targets[target] -= slots

    def forget(self, stale: Iterable[InstanceId]) -> None:
        """Forgets requests of older incarnations of new owners: the newer ones ask again."""
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
        # A delta also names other slots that were replaced here since its base; they do not concern the new owner.
        return usable, tuple(chunk.select(slots) for chunk in self._state.snapshot(slots, usable))
