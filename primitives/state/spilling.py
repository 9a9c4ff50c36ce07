"""SpillingFrame and SpillingValues: containers whose cold slots go to local disk, and come back when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.chunk import Chunk
from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.budget import Held, MemoryBudget
from primitives.state.cold import ColdSlots, slots_of_keys
from primitives.state.frame import Frame, Keys, Rows
from primitives.state.keys import Key
from primitives.state.values import Values, _Cell, is_immutable

Taken = TypeVar("Taken", pa.Array, pa.RecordBatch)

_NOWHERE = np.empty(0, np.int64)

#: Row numbers are below this; above, they say how often slots had gone to disk when they were given out.
_NUMBERS = 40

#: What is worked on at a time takes up to this share of the budget, where it can be taken apart.
_SHARE = 0.5

#: A container looks at its size again when it may have grown by this share of the budget.
_GROWTH = 0.05

#: Bytes that are assumed for a column of a row as long as there is none.
_COLUMN_SIZE = 16


class SpillingFrame(Frame):
    """A `Frame` whose least recently used slots go to disk when all containers of a budget exceed it.

    It is a frame in every respect but one: a row number may not be used any more after rows have gone to disk, which
    any call that takes keys, of any container of the budget, may cause. That is found, and told. A batch that touches
    more slots than fit is worked on some slots after the other, so not all the numbers that it returns may be usable.

    >>> import tempfile
    >>> counts = SpillingFrame(
    ...     "counts", {"id": pa.int64()}, {"n": pa.int64()}, budget=MemoryBudget(1 << 20), directory=tempfile.mkdtemp()
    ... )
    >>> counts.take(counts.add([7, 9], n=1)).to_pydict()
    {'id': [7, 9], 'n': [1, 1]}
    >>> counts.close()
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        *,
        budget: MemoryBudget,
        directory: Path | str,
        **options: Any,
    ) -> None:
        super().__init__(name, keys, values, **options)
        self._cold = ColdSlots(directory, self.slot_bits)
        self._used = np.zeros(1 << self.slot_bits, np.int64)
        self._spills = 0
        self._budget = budget
        budget.join(self)

    # --- by key -------------------------------------------------------------------------------------------------------

    def locate(self, keys: Keys, *, create: bool = True) -> Rows:
        """See `Frame.locate`."""
        return self._numbered(keys, {}, partial(super().locate, create=create))

    def locate_new(self, keys: Keys) -> tuple[Rows, Rows]:
        """See `Frame.locate_new`."""
        batch = self._keys_from(keys)
        rows, new = np.empty(len(batch), np.int64), [_NOWHERE]
        for at in self._parts(batch):
            numbers, created = super().locate_new(_taken(batch, at))
            rows[at] = self._tagged(numbers)
            new.append(at[created])
        return rows, np.sort(np.concatenate(new))

    def put(self, keys: Keys, /, **values: Any) -> Rows:
        """See `Frame.put`."""
        return self._numbered(keys, values, super().put)

    def get(self, keys: Keys) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
        """See `Frame.get`."""
        batch = self._keys_from(keys)
        parts = [(at, *super(SpillingFrame, self).get(_taken(batch, at))) for at in self._parts(batch)]
        positions, values, found = zip(*parts, strict=True)
        order = np.argsort(np.concatenate(positions))
        return pa.concat_batches(values).take(pa.array(order)), np.concatenate(found)[order]

    def delete(self, keys: Keys) -> int:
        """See `Frame.delete`."""
        batch = self._keys_from(keys)
        return sum(super(SpillingFrame, self).delete(_taken(batch, at)) for at in self._parts(batch))

    def _fold(self, fold: str, keys: Keys, values: Mapping[str, Any]) -> Rows:
        folded = super()._fold
        return self._numbered(keys, values, lambda part, **given: folded(fold, part, given))

    # --- by row number ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return super().__len__() + len(self._cold)

    def to_arrow(self, slots: SlotSet | None = None) -> pa.RecordBatch:
        """See `Frame.to_arrow`; slots on disk stay there."""
        chosen = SlotSet.full(self.slot_bits) if slots is None else slots
        return pa.concat_batches([super().to_arrow(slots), *(chunk.rows for chunk in self._cold.chunks(chosen))])

    def rows_per_slot(self) -> NDArray[np.int64]:
        """See `Frame.rows_per_slot`."""
        return super().rows_per_slot() + self._cold.counts

    def _tagged(self, rows: Rows) -> Rows:
        return np.where(rows < 0, rows, rows | self._spills << _NUMBERS)

    def _checked(self, rows: Rows) -> Rows:
        numbers = np.asarray(rows)
        if numbers.dtype.kind in "iu":
            numbers = numbers.astype(np.int64)
            if np.any((numbers >= 0) & (numbers >> _NUMBERS != self._spills)):
                raise UserError(
                    f"rows of state '{self.name}' went to disk after these row numbers were given out; read them by "
                    "key, or work on smaller batches, or raise the memory budget"
                )
            numbers = np.where(numbers < 0, numbers, numbers & ((1 << _NUMBERS) - 1))
        return super()._checked(numbers)

    # --- a State ------------------------------------------------------------------------------------------------------

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

    def _deleted_since(self, since: int, slots: SlotSet) -> list[pa.Array]:
        return super()._deleted_since(since, slots - self._cold.slots)  # of those, the files know

    # --- to disk and back ---------------------------------------------------------------------------------------------

    def held(self) -> Held:
        """See `Spillable.held`."""
        counts = super().rows_per_slot()
        return Held((counts * self._row_size()).astype(np.int64), self._used, counts > 0)

    def spill(self, slots: SlotSet) -> None:
        """See `Spillable.spill`."""
        deltas = {mark: super(SpillingFrame, self).snapshot(slots, mark) for mark in self.marks}
        self._cold.store(slots, super().snapshot(slots), deltas)
        self.evict(slots)
        self._spills += 1

    def settle(self) -> None:
        """See `Spillable.settle`; row numbers are found out when they are used too late."""

    def close(self) -> None:
        """Deletes what is on disk; the container is not to be used any more."""
        self._budget.leave(self)
        self._cold.close()

    def _row_size(self) -> float:
        held = super().__len__()
        return super().size() / held if held else _COLUMN_SIZE * len(self._declared.all)

    def _numbered(self, keys: Keys, values: Mapping[str, Any], work: Callable[..., Rows]) -> Rows:
        """The row numbers that `work` returns for some slots after the other."""
        batch = self._keys_from(keys)
        columns = {name: self._declared.value_from(name, given, len(batch)) for name, given in values.items()}
        rows = np.empty(len(batch), np.int64)
        for at in self._parts(batch):
            rows[at] = self._tagged(work(_taken(batch, at), **{name: _taken(columns[name], at) for name in columns}))
        return rows

    def _parts(self, keys: pa.RecordBatch) -> Iterator[Rows]:
        """Positions in a batch, in parts whose slots are all in memory until the next one is asked for."""
        slots = slots_of(hash_keys(keys.columns[: len(self._slot_keys)]), self.slot_bits)
        new = np.bincount(slots, minlength=1 << self.slot_bits)
        sizes = self.held().sizes + self._cold.sizes + (new * self._row_size()).astype(np.int64)
        for part in _grouped(np.where(new > 0, np.maximum(sizes, 1), 0), int(self._budget.limit * _SHARE)):
            mask = part.mask(self.slot_bits)
            self._warm(part, int(new[mask].sum() * self._row_size()))
            yield np.flatnonzero(mask[slots])

    def _warm(self, slots: SlotSet, growth: int) -> None:
        """Brings slots into memory that are about to be used, and makes room for them to grow."""
        self._used[slots.array] = self._budget.tick()
        self._budget.make_room(self._cold.size(slots), self, slots, growth)
        self._cold.bring_back(slots, self._declared.keys, self.admit)

    def _keys_from(self, keys: Keys) -> pa.RecordBatch:
        return pa.record_batch(self._declared.keys_from(keys), schema=self._declared.keys)


class SpillingValues(Values):
    """`Values` whose least recently used slots go to disk when all containers of a budget exceed it.

    A slot stays in memory as long as an object of it is out that can change in place: until `mark`, or until the budget
    is told that the epoch is over (`MemoryBudget.settle`). Slots must not be that many that one epoch's do not fit.

    >>> import tempfile
    >>> budget, directory = MemoryBudget(1 << 20), tempfile.mkdtemp()
    >>> carts = SpillingValues("carts", {"user": pa.int64()}, budget=budget, directory=directory)
    >>> carts.setdefault(7, []).append("tea")
    >>> carts[7]
    ['tea']
    >>> carts.close()
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        *,
        budget: MemoryBudget,
        directory: Path | str,
        **options: Any,
    ) -> None:
        super().__init__(name, keys, **options)
        self._cold = ColdSlots(directory, self.slot_bits)
        self._used = np.zeros(1 << self.slot_bits, np.int64)
        self._out = np.zeros(1 << self.slot_bits, np.bool_)  #: slots with an object that may yet change in place
        self._unmeasured = 0  #: values written since the container looked at its size
        self._patience = 1  #: how many may be before it looks again
        self._restoring = False  #: if so, no slot may leave
        self._budget = budget
        budget.join(self)

    # --- a mapping ----------------------------------------------------------------------------------------------------

    def scan(self, slots: SlotSet | None = None) -> Iterator[tuple[Key, Any]]:
        """See `Values.scan`; slots on disk stay there."""
        for slot in SlotSet.full(self.slot_bits) if slots is None else slots:
            if slot in self._cold.slots:
                yield from self._on_disk(slot)
            else:
                yield from list(super().scan(SlotSet([slot])))

    def __iter__(self) -> Iterator[Any]:
        for slot in SlotSet(list(self._slots)) | self._cold.slots:
            yield from [key for key, _ in self._on_disk(slot)] if slot in self._cold.slots else self._ordered(slot)

    def __len__(self) -> int:
        return super().__len__() + len(self._cold)

    def clear(self) -> None:
        """See `Values.clear`."""
        for key in list(self):
            del self[key]

    def _on_disk(self, slot: int) -> list[tuple[Key, Any]]:
        """Keys and values of a cold slot, in order."""
        (chunk,) = self._cold.chunks(SlotSet([slot]))
        values = self._codec.values(chunk.rows.column("value"))
        pairs = zip(self._keys.from_columns(chunk.rows.columns[:-1]), values, strict=True)
        return sorted(pairs, key=lambda pair: self._keys.sort_key(pair[0]))

    def _find(self, key: Any) -> _Cell | None:
        normal = self._keys.normal(key)
        if normal not in self._cells and self._cold.slots:
            slot = SlotSet([self._keys.slot(normal)])
            if slot <= self._cold.slots:
                self._warm(slot)
        return self._cells.get(normal)

    def _handed_out(self, cell: _Cell) -> Any:
        self._used[cell.slot] = self._budget.tick()
        return super()._handed_out(cell)

    def _touch(self, cell: _Cell) -> None:
        super()._touch(cell)
        if self._restoring:
            return
        self._used[cell.slot] = self._budget.tick()
        self._out[cell.slot] |= not is_immutable(cell.value)
        self._unmeasured += 1
        if self._unmeasured >= self._patience:
            self._measure(SlotSet([cell.slot]))

    def _measure(self, kept: SlotSet) -> None:
        self._unmeasured = 0
        self._patience = max(int(self._budget.limit * _GROWTH / self._row_size()), 1)
        self._budget.make_room(0, self, kept)

    # --- a State ------------------------------------------------------------------------------------------------------

    def mark(self, epoch: int) -> None:
        """See `State.mark`."""
        super().mark(epoch)
        self.settle()

    def release(self, epoch: int) -> None:
        """See `State.release`."""
        super().release(epoch)
        self._cold.release(epoch)

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`; slots on disk stay there."""
        return self._cold.complete(super().snapshot(slots, since), slots, since)

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`; works on some slots after the other."""
        for chunk in chunks:
            for part in chunk.split(self._slices(chunk)):
                self._restore(part)

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

    def _slices(self, chunk: Chunk) -> list[SlotSet]:
        """All slots, in parts of which no more than can be worked on at a time is in the chunk and on disk."""
        rows = np.bincount(chunk.slots_of_rows(), minlength=1 << self.slot_bits)
        sizes = rows * chunk.nbytes // max(len(chunk.rows), 1) + self._cold.sizes
        parts = _grouped(sizes, int(self._budget.limit * _SHARE))
        return [*parts, SlotSet(np.flatnonzero(sizes == 0))]

    def _restore(self, part: Chunk) -> None:
        named = [SlotSet(slots_of_keys(batch, part)) for batch in (part.rows, part.deleted)]
        self._warm((named[0] | named[1]) - part.replaced)
        self._budget.make_room(part.nbytes, self, named[0])
        self._restoring = True
        try:
            super().restore([part])
        finally:
            self._restoring = False

    # --- to disk and back ---------------------------------------------------------------------------------------------

    def held(self) -> Held:
        """See `Spillable.held`."""
        sizes = np.zeros(1 << self.slot_bits, np.int64)
        row_size = self._row_size()
        for slot, cells in self._slots.items():
            sizes[slot] = len(cells) * row_size
        return Held(sizes, self._used, ~self._out)

    def spill(self, slots: SlotSet) -> None:
        """See `Spillable.spill`."""
        deltas = {mark: super(SpillingValues, self).snapshot(slots, mark) for mark in self.marks}
        self._cold.store(slots, super().snapshot(slots), deltas)
        self.evict(slots)

    def settle(self) -> None:
        """See `Spillable.settle`."""
        self._out[:] = False

    def close(self) -> None:
        """Deletes what is on disk; the container is not to be used any more."""
        self._budget.leave(self)
        self._cold.close()

    def _row_size(self) -> float:
        return super().size() / max(super().__len__(), 1) or 1.0

    def _warm(self, slots: SlotSet) -> None:
        """Brings slots into memory that are about to be used."""
        self._used[slots.array] = self._budget.tick()
        self._budget.make_room(self._cold.size(slots), self, slots)
        self._cold.bring_back(slots, self._identity, self.admit)


def _grouped(sizes: NDArray[np.int64], limit: int) -> list[SlotSet]:
    """The slots that have a size, in parts that exceed the limit by less than a slot; one without slots if none has."""
    slots = np.flatnonzero(sizes)
    if not len(slots):
        return [SlotSet.empty()]
    parts = (np.cumsum(sizes[slots]) - sizes[slots]) // max(limit, 1)
    return [SlotSet(slots[parts == part]) for part in np.unique(parts)]


def _taken(column: Taken, at: Rows) -> Taken:
    """The rows of a column or batch at some positions, which ascend."""
    return column if len(at) == len(column) else column.take(pa.array(at))
