"""Slot meters: count the input rows of an operator by slot, and find its heaviest key, in 1 % of the CPU time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.checkpoint import ProcessingState
from primitives.graph import Edge
from primitives.hashing import Hashes, hash_keys
from primitives.kernels import kernel
from primitives.slots import slots_of
from seep.protocol.logic import Logic, Piece, SourceLogic
from seep.query.program import Program
from seep.record.reports import SlotRows

#: The part of an instance's CPU time that counting may take; and the most seconds that are saved up for later.
_SHARE, _SAVED = 0.01, 0.005
#: How many times longer two reports of counts are apart than one takes; and the most seconds between them.
_LATER, _LATEST = 100, 0.5
#: The rows of a slot in which its heaviest key is searched, and the most characters of the key in reports.
_SAMPLE, _LETTERS = 4096, 80


class _Sample(NamedTuple):
    """The rows that were counted last."""

    port: int
    batch: pa.RecordBatch
    hashes: Hashes


class SlotMeter:
    """The logic of one instance with a count of its input rows by slot; `take` is for another thread.

    It counts whole epochs. If there is no time for an epoch, it adds only the number of its rows, which are assumed to
    be spread like those of other epochs. A replay counts rows again that were counted before a failure, because only
    the record, which follows all instances, knows which these are.
    """

    def __init__(
        self,
        logic: Logic[pa.RecordBatch],
        keys: Mapping[int, tuple[str, ...]],
        slot_bits: int,
        is_wanted: Callable[[], bool],
        clock: Callable[[], float] = time.thread_time,  # the clock of the calling thread
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self.logic = logic
        self._keys = keys  #: the key columns of each input port; none: whole rows
        self._slot_bits = slot_bits
        self._is_wanted = is_wanted
        self._clock, self._wall = clock, wall
        self._lock = threading.Lock()
        self._credit = _SAVED  #: CPU seconds that counting may take now
        self._before = 0.0  #: the time when credit was last given
        self._epoch = 0  #: the last one that was processed, perhaps in several pieces
        self._next = 0.0  #: the time when the counts may be reported again
        self._restart()

    @property
    def state(self) -> ProcessingState:
        return self.logic.state

    def changed(self, since: int) -> int:
        """See `Logic.changed`."""
        return self.logic.changed(since)

    def process(self, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
        """See `Logic.process`."""
        if not self._is_wanted():
            return self.logic.process(piece)
        begun = self._clock()
        outputs = self.logic.process(piece)
        now = self._clock()
        with self._lock:  # rows and their CPU time at once, as an epoch may take longer than a window
            self._cpu += now - begun
            self._note(piece, now)
        return outputs

    def take(self) -> SlotRows | None:
        """Returns the counts since the last call; None if there are none. Each row is reported once."""
        begun, now = self._clock(), self._wall()
        with self._lock:
            if not self._is_wanted():
                self._restart()
            if not self._epochs or self._counted == 0 < self._rows or now < self._next:
                return None
            counts, sample = self._counts, self._sample
            cpu, seconds, epochs = self._cpu, now - self._since, self._epochs
            scale = self._rows / max(1, self._counted)
            self._restart()
        told = SlotRows.of(np.rint(counts * scale), cpu, seconds, epochs, self._heaviest(sample))
        self._next = now + min(_LATEST, _LATER * (self._clock() - begun))
        return told

    def _restart(self) -> None:
        self._counts = np.zeros(1 << self._slot_bits, np.uint32)
        self._rows = self._counted = self._epochs = 0
        self._sample: _Sample | None = None
        self._cpu, self._since = 0.0, self._wall()

    # -- counting -----------------------------------------------------------------------------------------------------

    def _note(self, piece: Piece[pa.RecordBatch], now: float) -> None:
        rows = sum(batch.num_rows for batches in piece.inputs.values() for batch in batches)
        self._rows += rows
        self._epochs += piece.epoch != self._epoch
        self._epoch = piece.epoch
        self._credit = min(_SAVED, self._credit + _SHARE * (now - self._before))
        self._before = now
        if rows and self._credit > 0:
            for port, batches in piece.inputs.items():
                for batch in filter(len, batches):
                    self._count(port, batch)
            self._counted += rows
            self._credit -= self._clock() - now

    def _count(self, port: int, batch: pa.RecordBatch) -> None:
        hashes = hash_keys(self._key_columns(port, batch))
        _add_up(hashes, np.uint64(64 - self._slot_bits), self._counts)
        self._sample = _Sample(port, batch, hashes)

    def _key_columns(self, port: int, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(name) for name in self._keys[port] or batch.schema.names]

    # -- the heaviest key ---------------------------------------------------------------------------------------------

    def _heaviest(self, sample: _Sample | None) -> tuple[int, str, float] | None:
        """Returns the slot with the most rows of the sample, its most frequent key as text, and the key's share."""
        if sample is None:
            return None
        slots = slots_of(sample.hashes[:: max(1, len(sample.hashes) // _SAMPLE)], self._slot_bits)
        slot = int(np.bincount(slots).argmax())
        rows = np.flatnonzero(slots_of(sample.hashes, self._slot_bits) == slot)[:_SAMPLE]
        _, places, counts = np.unique(sample.hashes[rows], return_index=True, return_counts=True)
        most = int(counts.argmax())
        row = int(rows[places[most]])
        key = ", ".join(str(column[row].as_py()) for column in self._key_columns(sample.port, sample.batch))
        return slot, key[:_LETTERS], float(counts[most] / len(rows))


@dataclass(frozen=True, slots=True)
class MeteredOperators:
    """The operators of a program, with a slot meter for each instance whose rows can be counted."""

    program: Program
    counted: Callable[[], Container[str]]  #: operators whose rows are counted now

    def logic(self, operator: str) -> Logic[pa.RecordBatch]:
        return self._metered(operator, self.program.logic(operator))

    def _metered(self, operator: str, logic: Logic[pa.RecordBatch]) -> Logic[pa.RecordBatch]:
        graph = self.program.graph
        slot_bits = graph.operators[operator].slot_bits
        if not slot_bits:  # there is nothing to balance
            return logic
        keys = {edge.port: self.program.keys[edge] for edge in graph.inputs[operator]}
        return SlotMeter(logic, keys, slot_bits, lambda: operator in self.counted())

    def standing(self, operator: str) -> Logic[pa.RecordBatch] | None:
        logic = self.program.standing(operator)
        return None if logic is None else self._metered(operator, logic)

    def source(self, operator: str) -> SourceLogic[pa.RecordBatch]:
        return self.program.source(operator)


@kernel
def _add_up(hashes: Hashes, shift: np.uint64, counts: NDArray[np.uint32]) -> None:
    for row in range(len(hashes)):
        counts[hashes[row] >> shift] += np.uint32(1)


def warm_up() -> None:
    """Compiles or loads the kernel of counting, so that this does not count as time of counting."""
    _add_up(np.zeros(1, np.uint64), np.uint64(63), np.zeros(2, np.uint32))
