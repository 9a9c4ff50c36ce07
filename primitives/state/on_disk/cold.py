"""ColdSlots: unused slots of a container, in files; PartlyOnDisk: a base of containers with such slots."""

# mypy: disable-error-code="safe-super"
# (`PartlyOnDisk` calls the container in memory that follows it among the bases.)

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.budget import MemoryBudget, MemoryUse
from primitives.state.changes import Tracked
from primitives.state.chunk import Chunk, read_chunk, write_chunk
from primitives.state.files import disk_faults, fresh_directory, read_file, write_file

Admit = Callable[[pa.RecordBatch, Mapping[int, pa.RecordBatch]], None]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk in a file."""

    path: Path
    rows: int
    deleted: int


class ColdSlots:
    """For each slot a file with all its rows, and one with its changes since each mark that the container had then.

    So a slot returns with its changes, and snapshots and deltas are read while it stays on disk. The files serve this
    process only: files of an earlier process in the directory are deleted, and none is left when it closes.
    """

    def __init__(self, directory: Path | str, slot_bits: int) -> None:
        self.directory = fresh_directory(Path(directory))
        self.slots = SlotSet.empty()
        self.sizes = np.zeros(1 << slot_bits, np.int64)  #: bytes that each slot would take in memory
        self.counts = np.zeros(1 << slot_bits, np.int64)  #: rows of each slot
        self._slot_bits = slot_bits
        self._full: dict[int, _Piece] = {}
        self._changed: dict[int, dict[int, _Piece]] = {}  #: by slot and mark, if there are changes

    # --- in and out ---------------------------------------------------------------------------------------------------

    def store(self, slots: SlotSet, full: Chunk, deltas: Mapping[int, Chunk]) -> None:
        """Writes slots, none of which is cold, given all their rows and their changes since each mark.

        If it fails, it leaves no file, and no slot is cold.
        """
        try:
            for slot, chunk in _by_slot(full, slots):
                self._full[slot] = self._write(f"{slot}", chunk)
                self._changed[slot] = {}
            for mark, delta in deltas.items():
                for slot, chunk in _by_slot(delta, slots):
                    if len(chunk.rows) + len(chunk.deleted):
                        self._changed[slot][mark] = self._write(f"{slot}-since-{mark}", chunk)
        except BaseException:
            self._forget_files(slots)
            raise
        self._count(slots, full)

    def _write(self, name: str, chunk: Chunk) -> _Piece:
        path = self.directory / f"{name}.chunk"
        write_file(path, write_chunk(chunk))
        return _Piece(path, len(chunk.rows), len(chunk.deleted))

    def _count(self, slots: SlotSet, full: Chunk) -> None:
        self.slots |= slots
        for slot in slots:
            self.counts[slot] = self._full[slot].rows
            self.sizes[slot] = full.rows.nbytes * self.counts[slot] // max(len(full.rows), 1)

    def chunks(self, slots: SlotSet, since: int | None = None) -> Iterator[Chunk]:
        """Returns chunks of the cold ones among some slots, one by one: all rows, or changes since a mark, if any."""
        for slot in slots & self.slots:
            piece = self._full[slot] if since is None else self._changed[slot].get(since)
            if piece is not None:
                yield read_chunk(read_file(piece.path))

    def bring_back(self, slots: SlotSet, keys: pa.Schema, admit: Admit) -> None:
        """Passes slots to `admit`, with the keys of their changes since each mark; they are not cold any more."""
        slots &= self.slots
        if slots:
            rows = pa.concat_batches([chunk.rows for chunk in self.chunks(slots)])
            marks = sorted({mark for slot in slots for mark in self._changed[slot]})
            admit(rows, {mark: _keys_of(self.chunks(slots, mark), keys) for mark in marks})
            self.forget(slots)

    def forget(self, slots: SlotSet) -> None:
        """Removes slots from disk: they are in memory again, or dropped."""
        slots &= self.slots
        self.slots -= slots
        self.sizes[slots.array] = self.counts[slots.array] = 0
        self._forget_files(slots)

    def _forget_files(self, slots: Iterable[int]) -> None:
        for slot in slots:
            full = self._full.pop(slot, None)
            self._delete([*([full] if full else []), *self._changed.pop(slot, {}).values()])

    def _delete(self, pieces: Iterable[_Piece]) -> None:
        with disk_faults(f"delete files in {self.directory}"):
            for piece in pieces:
                piece.path.unlink(missing_ok=True)

    # --- as part of a container ---------------------------------------------------------------------------------------

    def complete(self, warm: Chunk, slots: SlotSet, since: int | None) -> Chunk:
        """Adds the slots on disk to a snapshot of the slots in memory; replaced slots are complete."""
        whole = slots if since is None else slots & warm.replaced
        cold = [*self.chunks(whole), *self.chunks(slots - whole, since)]
        return replace(
            warm,
            rows=pa.concat_batches([warm.rows, *(chunk.rows for chunk in cold)]),
            deleted=pa.concat_batches([warm.deleted, *(chunk.deleted for chunk in cold)]),
        )

    def size(self, slots: SlotSet | None) -> int:
        """Bytes that some or all slots would take in memory."""
        return int(self.sizes.sum() if slots is None else self.sizes[slots.mask(self._slot_bits)].sum())

    def changed(self, since: int) -> int:
        """Number of rows written or deleted since a mark."""
        pieces = (self._changed[slot].get(since) for slot in self.slots)
        return sum(piece.rows + piece.deleted for piece in pieces if piece is not None)

    def release(self, epoch: int) -> None:
        """Removes changes since marks below `epoch`."""
        for by_mark in self._changed.values():
            self._delete([by_mark.pop(mark) for mark in list(by_mark) if mark < epoch])

    def __len__(self) -> int:
        return int(self.counts.sum())

    def close(self) -> None:
        """Deletes all files."""
        shutil.rmtree(self.directory, ignore_errors=True)


class PartlyOnDisk(Tracked[Any]):
    """Precedes a container in memory among the bases of a class, and adds the slots on disk to its results.

    The class itself spills slots, with `_write` among others, and reads them back.
    """

    _cold: ColdSlots
    _used: NDArray[np.int64]  #: when each slot was used last
    _budget: MemoryBudget

    def _begin(self, budget: MemoryBudget, directory: Path | str) -> None:
        """Completes the constructor."""
        self._cold = ColdSlots(directory, self.slot_bits)
        self._used = np.zeros(1 << self.slot_bits, np.int64)
        self._budget = budget
        budget.join(self)

    @abstractmethod
    def held(self) -> MemoryUse:
        """See `Spillable.held`."""

    @abstractmethod
    def spill(self, slots: SlotSet) -> None:
        """See `Spillable.spill`."""

    @abstractmethod
    def settle(self) -> None:
        """See `Spillable.settle`."""

    def __len__(self) -> int:
        return super().__len__() + len(self._cold)

    def release(self, epoch: int) -> None:
        """See `State.release`."""
        super().release(epoch)
        self._cold.release(epoch)

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`; slots on disk stay there."""
        return self._cold.complete(super().snapshot(slots, since), slots, since)

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`."""
        super().drop(slots)
        self._cold.forget(slots)

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`."""
        return super().size(slots) + self._cold.size(slots)

    def changed(self, since: int) -> int:
        """See `State.changed`."""
        return super().changed(since) + self._cold.changed(since)

    def close(self) -> None:
        """Deletes all files; the container can no longer be used."""
        self._budget.leave(self)
        self._cold.close()

    def _write(self, slots: SlotSet) -> None:
        """Writes slots to disk, with their changes since each mark."""
        deltas = {mark: super(PartlyOnDisk, self).snapshot(slots, mark) for mark in self.marks}
        self._cold.store(slots, super().snapshot(slots), deltas)


def _by_slot(chunk: Chunk, slots: SlotSet) -> Iterator[tuple[int, Chunk]]:
    """Returns the part of a chunk for each of some slots; looks at each row once."""
    whole = replace(chunk, rows=_sorted(chunk.rows, chunk), deleted=_sorted(chunk.deleted, chunk))
    rows, deleted = _bounds(whole.rows, whole, slots), _bounds(whole.deleted, whole, slots)
    for at, slot in enumerate(slots):
        yield (
            slot,
            replace(
                whole,
                replaced=chunk.replaced & SlotSet([slot]),
                rows=whole.rows.slice(rows[0][at], rows[1][at] - rows[0][at]),
                deleted=whole.deleted.slice(deleted[0][at], deleted[1][at] - deleted[0][at]),
            ),
        )


def _sorted(batch: pa.RecordBatch, chunk: Chunk) -> pa.RecordBatch:
    return batch.take(pa.array(np.argsort(slots_of_keys(batch, chunk), kind="stable")))


def slots_of_keys(batch: pa.RecordBatch, chunk: Chunk) -> NDArray[np.uint32]:
    """Returns the slot of each row in a part of a chunk."""
    return slots_of(hash_keys([batch.column(key) for key in chunk.keys]), chunk.slot_bits)


def _bounds(batch: pa.RecordBatch, chunk: Chunk, slots: SlotSet) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns the begin and end of each slot's rows in a sorted batch."""
    ordered = slots_of_keys(batch, chunk)
    return np.searchsorted(ordered, slots.array), np.searchsorted(ordered, slots.array, side="right")


def _keys_of(chunks: Iterable[Chunk], schema: pa.Schema) -> pa.RecordBatch:
    """Returns the keys in chunks, including those of deleted rows."""
    parts = [part for chunk in chunks for part in (chunk.rows.select(schema.names), chunk.deleted)]
    return pa.concat_batches([pa.RecordBatch.from_pylist([], schema), *parts])


def in_parts(sizes: NDArray[np.int64], limit: int) -> list[SlotSet]:
    """Divides the slots with a size into parts that exceed the limit by less than a slot; at least one part."""
    slots = np.flatnonzero(sizes)
    if not len(slots):
        return [SlotSet.empty()]
    parts = (np.cumsum(sizes[slots]) - sizes[slots]) // max(limit, 1)
    return [SlotSet(slots[parts == part]) for part in np.unique(parts)]
