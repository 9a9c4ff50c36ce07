"""A stateless instance: has no state that its output needs, and recovers by replay alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from primitives.graph import Edge
from seep.protocol.cuts import Persist, Recall, Recalled
from seep.protocol.effects import Effect
from seep.protocol.instances.instance import Instance, InstancePhase, Surroundings, Work
from seep.protocol.logic import Logic, Piece
from seep.protocol.messages import FromCut, FromNothing, Trim
from seep.protocol.view import Incarnation

Batch = TypeVar("Batch")


class StatelessInstance(Instance[Batch]):
    """An instance of an operator without state; it is safe up to the epoch up to which all its receivers are safe.

    Its logic may have state that its output does not need, such as a cache: a cut includes it, and an instance that
    begins from the cut restores it.
    """

    def __init__(self, me: Incarnation, given: Surroundings[Batch], logic: Logic[Batch]) -> None:
        super().__init__(me, given)
        self._logic = logic
        self._origin: FromNothing | FromCut
        self._handlers[Recalled] = self._on_recalled

    def start(self, origin: FromNothing | FromCut, trimmed: int = 0) -> list[Effect]:
        self._origin = origin
        self.outbox.trim(trimmed)
        if isinstance(origin, FromCut):
            self._effects.append(Recall(self.me, self.view.topology.slots(self.me.instance, origin.epoch + 1)))
        else:
            self._begin(origin.epoch)
        return self._drain()

    def _on_recalled(self, message: Recalled) -> None:
        if self.phase is InstancePhase.RESTORING:
            if message.chunks:
                self._logic.state.restore(message.chunks)
            self._begin(self._origin.epoch)

    def _compute(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        return self._logic.process(piece)

    def _close(self, work: Work[Batch]) -> None:
        super()._close(work)
        self._persist_if_cut(work.epoch - 1)

    def _on_trim(self, message: Trim) -> None:
        """Skips epochs that all receivers already have; its senders may not have them any more."""
        super()._on_trim(message)
        before = self.processed
        if self.phase is InstancePhase.RUNNING and message.epoch > before:
            self.inbox.skip_to(message.epoch)
            self._persist_if_cut(before)
            self._advance()

    def _persist_if_cut(self, before: int) -> None:
        """Writes its state, if the epoch of a cut is one of those processed or skipped since `before`."""
        cut, topology, me = self.view.cut, self.view.topology, self.me.instance
        if cut is None or not before < cut.epoch <= self.processed or cut.only not in (None, me.operator):
            return
        slots = topology.slots(me, cut.epoch)
        if topology.graph.operators[me.operator].keeps_extra and slots:
            self._effects.append(Persist(self.me, cut, slots, None, tuple(self._logic.state.snapshot(slots))))
