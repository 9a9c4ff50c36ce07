"""Reading what was pushed: a source instance's positions are numbers of batches, and rows in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from primitives.errors import EnvironmentFault
from primitives.slots import SlotSet
from seep.protocol.logic import Reading
from seep.rows.batches import concat
from seep.rows.position import Position
from seep.sources.logic import PartitionedLogic
from seep.sources.reader import Block, SourceReader
from seep.sources.time_order import TakenRows
from seep.spark.inlet.pieces import Directory, Key, PushedBatch, PushedPiece

#: The number of a batch, and of a row among those of it that a slot reads.
Offset = Sequence[int]


class PieceLookup(Protocol):
    """Where what was pushed can be had: the intake of a node."""

    def directory(self, source: str) -> Directory:
        """All batches of a source that can be read."""
        ...

    def rows(self, key: Key, piece: PushedPiece) -> pa.RecordBatch:
        """The rows of a piece; EnvironmentFault if nobody gives them."""
        ...

    def reload(self, source: str) -> None:
        """Others may hold pieces now than when this was last told."""
        ...


class PushedReader(SourceReader):
    """Reads the pieces of a slot, batch after batch, as far as they are admitted."""

    def __init__(self, source: str, slots: int, intake: PieceLookup, schema: pa.Schema) -> None:
        self._source, self._slots, self._intake, self._schema = source, slots, intake, schema
        #: slot -> the piece that it reads at the moment: what another node gave is not asked for again
        self._open: dict[int, tuple[str, pa.RecordBatch]] = {}

    def start(self, partition: int) -> list[int]:  # noqa: ARG002
        """See `SourceReader`."""
        return [self._directory.first, 0]

    def read(self, partition: int, offset: Offset, limit: int) -> Block:
        """See `SourceReader`."""
        (number, row), taken = offset, []
        while limit and (batch := self._directory.get(number)) is not None:
            rows = list(self._rows(batch, partition, row, limit))
            count = sum(map(len, rows))
            taken += rows
            limit -= count
            is_done = row + count >= _rows_of(batch.of_slot(partition, self._slots))
            number, row = (number + 1, 0) if is_done else (number, row + count)
        return Block(concat(taken, self._schema), [number, row], self.is_at_end([number, row]))

    def between(self, partition: int, first: Offset, after: Offset) -> list[pa.RecordBatch]:
        """The rows from one offset up to another."""
        taken: list[pa.RecordBatch] = []
        for number in range(first[0], after[0] + bool(after[1])):
            batch = self._directory.get(number)
            if batch is None:
                raise EnvironmentFault(f"batch {number} of source {self._source!r} was read and is not known any more")
            begin = first[1] if number == first[0] else 0
            end = after[1] if number == after[0] else _rows_of(batch.of_slot(partition, self._slots))
            taken += self._rows(batch, partition, begin, end - begin)
        return taken

    def is_at_end(self, offset: Offset) -> bool:
        """Whether nothing will ever come after it."""
        return self._directory.is_over(offset[0])

    def latest_before(self, number: int) -> int | None:
        """The highest event time of the batch right before; None if that is let go of."""
        directory = self._directory
        batch = directory.get(number - 1) if number > directory.first else None
        return batch.latest if batch is not None else None

    def release(self, partition: int) -> None:
        """See `SourceReader`."""
        self._open.pop(partition, None)

    def _rows(self, batch: PushedBatch, slot: int, row: int, limit: int) -> Iterator[pa.RecordBatch]:
        """Some rows of a slot's part of a batch, from a row on."""
        for piece in batch.of_slot(slot, self._slots):
            if limit <= 0:
                return
            if row < piece.rows:
                rows = self._piece(slot, batch, piece).slice(row, limit)
                yield rows
                limit -= len(rows)
            row = max(row - piece.rows, 0)

    def _piece(self, slot: int, batch: PushedBatch, piece: PushedPiece) -> pa.RecordBatch:
        token, rows = self._open.get(slot, ("", None))
        if token != piece.token:
            rows = self._fetched(Key(self._source, batch.stream, batch.id), batch.number, piece)
            self._open[slot] = (piece.token, rows)
        return rows

    def _fetched(self, key: Key, number: int, piece: PushedPiece) -> pa.RecordBatch:
        try:
            return self._intake.rows(key, piece)
        except EnvironmentFault:
            self._intake.reload(self._source)  # others may hold it by now
        batch = self._directory.get(number)
        same = next((p for p in batch.pieces if p.token == piece.token), piece) if batch is not None else piece
        return self._intake.rows(key, same)

    @property
    def _directory(self) -> Directory:
        return self._intake.directory(self._source)


class PushedLogic(PartitionedLogic):
    """Reads again from offset to offset. A slot that has passed a batch knows the event time of all of it: one whose
    partitions bring no rows does not hold the watermark back."""

    _reader: PushedReader

    def read(self, epoch: int, slots: SlotSet) -> Reading[pa.RecordBatch]:
        """See `SourceLogic`. What was the end for the run before need not be it for this one."""
        for slot, position in self._positions.items():
            if position.ended and slot < self._rows.partitions and not self._reader.is_at_end(position.offset):
                self._positions[slot] = position._replace(ended=False)
        return super().read(epoch, slots)

    def _retake(self, slot: int, target: Position) -> TakenRows:
        position = self._position(slot)
        batches = self._reader.between(slot, position.offset, target.offset) if slot < self._rows.partitions else []
        self._check_same(slot, sum(map(len, batches)) == target.rows - position.rows)
        return TakenRows(batches, position._replace(at=target.at), target)

    def _block(self, slot: int, position: Position, limit: int) -> tuple[pa.RecordBatch, Position]:
        rows, after = super()._block(slot, position, limit)
        return rows, after._replace(latest=max(after.latest, self._latest_passed(position, after)))

    def _latest_passed(self, position: Position, after: Position) -> int:
        if self._rows.time is None:
            return after.latest
        passed = range(position.offset[0] + 1, after.offset[0] + 1)
        known = [latest for number in passed if (latest := self._reader.latest_before(number)) is not None]
        return max(known, default=after.latest)


def _rows_of(pieces: list[PushedPiece]) -> int:
    return sum(piece.rows for piece in pieces)
