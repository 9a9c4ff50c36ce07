"""A source instance: ticks open its epochs, and its rows leave only after the source log has their positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from primitives.emission import Emission
from primitives.graph import Edge
from primitives.slots import SlotSet
from seep.protocol.effects import Effect
from seep.protocol.instances.instance import Surroundings, Work
from seep.protocol.instances.keyed import KeyedInstance
from seep.protocol.logic import Piece, Reading, SourceLogic
from seep.protocol.messages import MAX_WATERMARK, FromLog, Logged, OffsetsRead, Positions, Tick, Trim
from seep.protocol.view import MANAGER, Incarnation

Batch = TypeVar("Batch")


class SourceInstance(KeyedInstance[Batch]):
    """An instance of a source: its slots are partitions, its state is their positions; it recovers by reading again."""

    def __init__(self, me: Incarnation, given: Surroundings[Batch], logic: SourceLogic[Batch]) -> None:
        super().__init__(me, given, logic.state)
        self._logic = logic
        self._ticked = 0
        self._final: int | None = None
        #: epochs that an earlier incarnation read and logged: they are read again as recorded
        self._records: dict[int, Positions] = {}
        #: rows that were read in pieces of the epoch that is being processed
        self._readings: list[Reading[Batch]] = []
        #: the last epoch that the source log has confirmed
        self._logged = 0
        #: processed epochs that the source log has not confirmed, so their rows may not leave
        self._unlogged: deque[tuple[int, Emission[Batch]]] = deque()
        self._handlers |= {Tick: self._on_tick, Logged: self._on_logged}

    def start(self, origin: FromLog, trimmed: int = 0) -> list[Effect]:
        self._trimmed = trimmed
        self.outbox.trim(trimmed)
        self._ticked, self._final = origin.ticked, origin.ticked if origin.final else None
        self._records = dict(origin.records)
        self._logged = self._left = origin.epoch
        self._logic.seek(origin.positions)
        self._begin(origin.epoch)
        return self._drain()

    def _on_tick(self, tick: Tick) -> None:
        self._ticked = max(self._ticked, tick.epoch)
        self._logic.committed(tick.committed)
        if tick.final:
            self._final = tick.epoch
        self._advance()

    def _on_trim(self, message: Trim) -> None:
        """Skips the epochs that all receivers already have: the log has the positions after them."""
        super()._on_trim(message)
        if message.epoch > self.processed and message.epoch in self._records:
            self.state.drop(SlotSet.full(self.view.topology.graph.operators[self.me.instance.operator].slot_bits))
            self._logic.seek(self._records[message.epoch])
            self._records = {epoch: positions for epoch, positions in self._records.items() if epoch > message.epoch}
            self._logged = message.epoch
            self._left = max(self._left, message.epoch)
            self.work, self._readings = None, []
            self.inbox.skip_to(message.epoch)
            self._advance()

    def _inputs_are_in(self, epoch: int) -> bool:
        return epoch <= self._ticked

    def _compute(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        recorded = self._records.get(piece.epoch)
        if recorded is None:
            reading = self._logic.read(piece.epoch, piece.slots)
        else:
            reading = self._logic.reread(piece.epoch, piece.slots, {slot: recorded[slot] for slot in piece.slots})
        self._readings.append(reading)
        return reading.outputs

    def _deliver(self, work: Work[Batch]) -> None:
        readings, self._readings = self._readings, []
        watermark = MAX_WATERMARK if work.epoch == self._final else min(r.watermark for r in readings)
        created = min((r.created for r in readings if r.created), default=0.0)
        emission = Emission(self._combined(work.outputs), watermark, created)
        if self._records.pop(work.epoch, None) is not None:
            self._logged = work.epoch
            self._emit(work.epoch, emission)
            return
        self._unlogged.append((work.epoch, emission))
        positions = {slot: position for r in readings for slot, position in r.positions.items()}
        self._post(MANAGER, OffsetsRead(self.me, work.epoch, positions, all(r.exhausted for r in readings)))

    def _on_logged(self, message: Logged) -> None:
        while self._unlogged and self._unlogged[0][0] <= message.epoch:
            self._logged = self._unlogged[0][0]
            self._emit(*self._unlogged.popleft())
        for epoch in self.view.topology.boundaries(self.me.instance.operator, after=self._left):
            self._depart(epoch)

    def _depart(self, epoch: int) -> None:
        """Hands over positions no sooner than the rows: another incarnation might continue from other positions."""
        if epoch <= self._logged + 1:
            super()._depart(epoch)
