"""Reads pushed rows: a source instance's positions are numbers of batches, and rows in them."""

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

#: The number of a batch, and the number of a row among the slot's rows of the batch.
Offset = Sequence[int]


class PieceLookup(Protocol):
    """Finds pushed rows: the intake of a node."""

    def directory(self, source: str) -> Directory:
        """Returns all batches of a source that can be read."""
        ...

    def rows(self, key: Key, piece: PushedPiece) -> pa.RecordBatch:
        """Returns the rows of a piece; raises EnvironmentFault if no holder has them."""
        ...

    def reload(self, source: str) -> None:
        """Loads the holders of pieces again, as they may have changed."""
        ...


class PushedReader(SourceReader):
    """Reads the pieces of a slot, batch by batch, up to the last admitted one."""

    def __init__(self, source: str, slots: int, intake: PieceLookup, schema: pa.Schema) -> None:
        self._source, self._slots, self._intake, self._schema = source, slots, intake, schema
        #: slot -> the piece that it is reading, so that it is fetched from another node only once
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
        """Returns the rows from one offset up to another."""
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
        """Whether the input ended before the offset."""
        return self._directory.is_over(offset[0])

    def latest_before(self, number: int) -> int | None:
        """Returns the highest event time of the batch right before; None if that was dropped."""
        directory = self._directory
        batch = directory.get(number - 1) if number > directory.first else None
        return batch.latest if batch is not None else None

    def release(self, partition: int) -> None:
        """See `SourceReader`."""
        self._open.pop(partition, None)

    def _rows(self, batch: PushedBatch, slot: int, row: int, limit: int) -> Iterator[pa.RecordBatch]:
        """Yields some rows of a slot's part of a batch, from a row."""
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
            self._intake.reload(self._source)  # its holders may have changed
        batch = self._directory.get(number)
        same = next((p for p in batch.pieces if p.token == piece.token), piece) if batch is not None else piece
        return self._intake.rows(key, same)

    @property
    def _directory(self) -> Directory:
        return self._intake.directory(self._source)


class PushedLogic(PartitionedLogic):
    """Rereads by offsets. A slot that has passed a batch uses the highest event time of the whole batch, so that a slot
    without rows does not hold back the watermark."""

    _reader: PushedReader

    def read(self, epoch: int, slots: SlotSet) -> Reading[pa.RecordBatch]:
        """See `SourceLogic`. The end of the earlier run's input need not be the end for this run."""
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
