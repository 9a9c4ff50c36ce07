"""Aggregates of all rows of each key, put out when they change or at the end."""

from __future__ import annotations

import pyarrow as pa

from primitives.state.columnar.bitmap import Bitmap
from primitives.state.frame import Frame
from primitives.state.on_disk.disk import Disk
from seep.operators.aggregation.folding import Aggregates
from seep.operators.base import BatchLogic
from seep.operators.definition import OperatorSetting
from seep.operators.keys import Keys
from seep.operators.room import StateBudget
from seep.protocol.logic import Piece
from seep.protocol.messages import MAX_WATERMARK


class Totals(BatchLogic):
    """Keeps one row of state for each key."""

    def __init__(
        self, setting: OperatorSetting, keys: Keys, aggregates: Aggregates, *, at_end: bool, on_disk: bool = False
    ) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._at_end = at_end
        self._totals: Frame | Disk
        if on_disk:
            self._room = setting.room or StateBudget()  # held here: a temporary one is closed when unused
            self._totals = aggregates.disk("totals", keys.kinds, self._room, slot_bits=setting.slot_bits)
        else:
            self._totals = aggregates.frame("totals", keys.kinds, slot_bits=setting.slot_bits)
        super().__init__(setting, self._totals)
        self.evolution = aggregates.evolution(self._totals.name)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        batch = self.rows(piece)
        changed = Bitmap()
        if len(batch):
            rows = self._totals.locate(self._keys.of(batch))
            self._aggregates.fold(self._totals, rows, self._aggregates.of_rows(batch))
            if not self._at_end:
                changed.add(rows)
        if not self._at_end:
            return self._results(self._totals.take(changed.rows()))
        return self._all(piece) if piece.watermark == MAX_WATERMARK else None

    def _all(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch:
        """Returns all results, and deletes the state, so that they are put out once."""
        totals = self._totals.to_arrow(piece.slots)
        self._totals.drop(piece.slots)
        return self._results(totals)

    def _results(self, state: pa.RecordBatch) -> pa.RecordBatch:
        columns = [state.column(name) for name in self._keys.kinds]
        return pa.record_batch([*columns, *self._aggregates.results(state)], schema=self.setting.output)
