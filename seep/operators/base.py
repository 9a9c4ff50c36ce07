"""The base class of all operators' logic: it takes one batch for each port, and puts one batch out on all edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from primitives.graph import Edge
from primitives.state.container import State
from primitives.state.processing import Containers
from seep.operators.definition import OperatorSetting
from seep.operators.errors import Guard
from seep.protocol.logic import Piece
from seep.record.reports import LetterSample
from seep.rows.batches import concat, conform, in_sequence


class BatchLogic:
    """The logic of an operator on Arrow batches: subclasses compute one batch from a piece.

    User code is called through `guard`. Rows on which it fails become dead letters in the output of the same piece.
    """

    def __init__(self, setting: OperatorSetting, *containers: State) -> None:
        self.setting = setting
        self.state = Containers(*containers)
        self.guard = Guard(setting)
        self.counters: Counter[str] = Counter()  #: for metrics: late rows, dead letters, …

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Updates the state of the piece's slots; returns the rows to put out, if any."""
        raise NotImplementedError

    def process(self, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
        """See `Logic.process`."""
        batch = self.compute(piece)
        outputs: dict[Edge, pa.RecordBatch] = {}
        if batch is not None and batch.num_rows:
            outputs = dict.fromkeys(self.setting.outputs, conform(self.setting.operator, batch, self.setting.output))
        if self.setting.dead_letters is not None and len(letters := self.guard.take()):
            self.counters["dead_letters"] += len(letters)
            outputs[self.setting.dead_letters] = letters
        return outputs

    def changed(self, since: int) -> int:
        """See `Logic.changed`."""
        return self.state.changed(since)

    def letter_samples(self) -> tuple[LetterSample, ...]:
        """Returns the newest dead letters since the last call; for another thread."""
        return self.guard.samples()

    def close(self) -> None:
        """Closes the containers, and deletes their files on disk."""
        self.state.close()

    def rows(self, piece: Piece[pa.RecordBatch], port: int = 0) -> pa.RecordBatch:
        """Returns all rows of a piece at a port, in no particular order; there may be none."""
        return concat(piece.inputs.get(port, ()), self.setting.inputs[port].schema)

    def rows_in_sequence(self, piece: Piece[pa.RecordBatch], port: int = 0) -> pa.RecordBatch:
        """Returns all rows of a piece at a port, sorted by event time, then by all columns."""
        return in_sequence(self.rows(piece, port), self.setting.inputs[port].time)
