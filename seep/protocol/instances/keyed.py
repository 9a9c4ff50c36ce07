"""Instances with data per slot, whose slots can leave and arrive: the base of stateful instances and sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from primitives.checkpoint import ProcessingState
from primitives.graph import InstanceId
from primitives.outbox import nbytes_of
from primitives.slots import SlotSet
from seep.protocol.events import StateTakenIn
from seep.protocol.instances.departures import Departures
from seep.protocol.instances.instance import Instance, InstancePhase, Surroundings, Work
from seep.protocol.messages import Attach, StateMoved, Trim
from seep.protocol.view import Incarnation, View

Batch = TypeVar("Batch")


class Warm(NamedTuple):
    """A backup of slots that will arrive: its epoch, and its chunks that are not restored yet."""

    epoch: int
    chunks: tuple[Any, ...]


class KeyedInstance(Instance[Batch]):
    """Both halves of plan kind 1: hands over slots that leave, and waits for the state of slots that arrive."""

    def __init__(self, me: Incarnation, given: Surroundings[Batch], state: ProcessingState) -> None:
        super().__init__(me, given)
        self._use(state)
        #: (epoch of the handover, origin) -> state of arriving slots, fetched ahead
        self._warm: dict[tuple[int, InstanceId], Warm] = {}
        #: the last epoch before which slots have left
        self._left = 0
        #: the new owners of slots that left up to this epoch are safe
        self._trimmed = 0
        self._handlers[StateMoved] = self._on_state_moved

    def _use(self, state: ProcessingState) -> None:
        """Uses a state as its own, of which nothing has left yet."""
        self.state = state
        self.departures = Departures(self.me, state)

    def _close(self, work: Work[Batch]) -> None:
        super()._close(work)
        self.departures.drop_some()

    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.departures.held and self.phase is InstancePhase.RUNNING:
            topology, following = self.view.topology, self.processed + 1
            owned = topology.slots(self.me.instance, following)
            for arriving in topology.arrivals(self.me.instance, following).values():
                owned -= arriving
            if not self.departures.slots.isdisjoint(owned):
                yield f"{self.me} holds slots as departed that it owns at epoch {following}"

    # -- slots that leave ---------------------------------------------------------------------------------------------

    def _depart(self, epoch: int) -> None:
        targets = self.view.topology.departures(self.me.instance, epoch)
        if targets and epoch > self._left:
            self._left = epoch
            self._send_state(self.departures.begin(epoch, targets))
            self.departures.release(self._trimmed)

    def _serve(self, attach: Attach) -> None:
        if attach.receiver.instance.operator != self.me.instance.operator:
            super()._serve(attach)
        else:
            self._send_state(self.departures.attach(attach))

    def _send_state(self, messages: Iterable[StateMoved]) -> None:
        for message in messages:
            self._post(self.view.placement[message.receiver.instance].node, message)

    def _on_trim(self, message: Trim) -> None:
        super()._on_trim(message)
        self._trimmed = message.epoch
        self.departures.release(message.epoch)

    def _resume_departures(self, restored: SlotSet) -> None:
        """Holds departed slots again after a restore, if new owners may still ask for them; forgets the others."""
        topology, me = self.view.topology, self.me.instance
        for epoch in topology.boundaries(me.operator, after=self._trimmed):
            targets = topology.departures(me, epoch)
            if targets and epoch <= self.processed:
                self._left = epoch
                self.departures.begin(epoch, targets)
        self.departures.returned(topology.slots(me, self.processed))
        if gone := restored - self._slots_kept():
            self.state.drop(gone)

    # -- slots that arrive --------------------------------------------------------------------------------------------

    def _on_state_moved(self, message: StateMoved) -> None:
        if self._is_attached(message.sender) and self.inbox.accept_state(message):
            self._advance()

    def _absorb_arrivals(self) -> None:
        work = self.work
        assert work is not None
        for origin in list(work.waiting):
            message = self.inbox.take_state(work.epoch, origin)
            if message is not None:
                slots = work.waiting.pop(origin)
                self._take_in(message, slots)
                self._process(work, slots)

    def _take_in(self, message: StateMoved, slots: SlotSet) -> None:
        warm = self._warm.pop((message.epoch, message.sender.instance), None)
        before: tuple[Any, ...] = ()
        if message.base is not None:
            assert warm is not None, "a handover that builds on a base was asked for with that base"
            before = warm.chunks
        self.state.restore((*before, *message.chunks))  # in one call, as chunks of files build on one another
        self.state.adopt(slots)
        self.departures.returned(slots)
        nbytes = sum(map(nbytes_of, message.chunks))
        taken = StateTakenIn(
            subject=self.me.instance, origin=message.sender.instance, first=message.epoch, bytes=nbytes
        )
        self._effects.append(taken)

    def _bases_from(self, sender: InstanceId) -> dict[int, int]:
        return {epoch: warm.epoch for (epoch, origin), warm in self._warm.items() if origin == sender}

    # -- views --------------------------------------------------------------------------------------------------------

    def _on_view(self, view: View) -> None:
        stale = [receiver.instance for receiver in self.departures.receivers if not view.is_current(receiver)]
        self.departures.forget(stale)
        super()._on_view(view)

    def _slots_kept(self) -> SlotSet:
        """Returns the slots of a checkpoint: owned before or after the next boundary, or departed and still held."""
        topology, me = self.view.topology, self.me.instance
        return topology.slots(me, self.processed) | topology.slots(me, self.processed + 1) | self.departures.slots

    def halt(self) -> None:
        super().halt()
        self._warm.clear()
