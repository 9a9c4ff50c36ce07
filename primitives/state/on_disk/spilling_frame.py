"""SpillingFrame: a frame that spills its least recently used slots to local disk, and reads them back on use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.budget import MemoryBudget, MemoryUse
from primitives.state.frame import Frame, Keys, Rows
from primitives.state.on_disk.cold import PartlyOnDisk, in_parts

Taken = TypeVar("Taken", pa.Array, pa.RecordBatch)

_NOWHERE = np.empty(0, np.int64)

#: Bits of a row number in the frame; the bits above count the spills before the number was returned.
_NUMBERS = 40

#: Assumed bytes of a column in a row while there are no rows.
_COLUMN_SIZE = 16


class SpillingFrame(PartlyOnDisk, Frame):
    """A `Frame` whose least recently used slots are spilled to disk when all containers of a budget exceed it.

    It differs from a frame in one respect: a row number becomes invalid after a spill, which any call with keys, of any
    container of the budget, may cause. The use of an invalid number raises an error. A batch that touches more slots
    than fit is processed some slots at a time, so not all returned numbers may be valid.

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
        self._spills = 0
        self._begin(budget, directory)

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

    def _deleted_since(self, since: int, slots: SlotSet) -> list[pa.Array]:
        return super()._deleted_since(since, slots - self._cold.slots)  # the files know these

    # --- to disk and back ---------------------------------------------------------------------------------------------

    def held(self) -> MemoryUse:
        """See `Spillable.held`."""
        counts = super().rows_per_slot()
        return MemoryUse((counts * self._row_size()).astype(np.int64), self._used, counts > 0)

    def spill(self, slots: SlotSet) -> None:
        """See `Spillable.spill`."""
        self._write(slots)
        self.evict(slots)
        self._spills += 1

    def settle(self) -> None:
        """See `Spillable.settle`; row numbers that are used too late are detected."""

    def _row_size(self) -> float:
        held = Frame.__len__(self)
        return Frame.size(self) / held if held else _COLUMN_SIZE * len(self._declared.all)

    def _numbered(self, keys: Keys, values: Mapping[str, Any], work: Callable[..., Rows]) -> Rows:
        """Returns the row numbers from `work`, which is called for some slots at a time."""
        batch = self._keys_from(keys)
        columns = {name: self._declared.value_from(name, given, len(batch)) for name, given in values.items()}
        rows = np.empty(len(batch), np.int64)
        for at in self._parts(batch):
            rows[at] = self._tagged(work(_taken(batch, at), **{name: _taken(columns[name], at) for name in columns}))
        return rows

    def _parts(self, keys: pa.RecordBatch) -> Iterator[Rows]:
        """Returns positions in a batch, in parts whose slots are all in memory until the next part is requested."""
        slots = slots_of(hash_keys(keys.columns[: len(self._slot_keys)]), self.slot_bits)
        new = np.bincount(slots, minlength=1 << self.slot_bits)
        sizes = self.held().sizes + self._cold.sizes + (new * self._row_size()).astype(np.int64)
        for part in in_parts(np.where(new > 0, np.maximum(sizes, 1), 0), self._budget.limit // 2):
            mask = part.mask(self.slot_bits)
            self._warm(part, int(new[mask].sum() * self._row_size()))
            yield np.flatnonzero(mask[slots])

    def _warm(self, slots: SlotSet, growth: int) -> None:
        """Reads slots into memory that are about to be used, and makes room for them to grow."""
        self._used[slots.array] = self._budget.tick()
        self._budget.make_room(self._cold.size(slots), self, slots, growth)
        self._cold.bring_back(slots, self._declared.keys, self.admit)

    def _keys_from(self, keys: Keys) -> pa.RecordBatch:
        return pa.record_batch(self._declared.keys_from(keys), schema=self._declared.keys)


def _taken(column: Taken, at: Rows) -> Taken:
    """Returns the rows of a column or batch at ascending positions."""
    return column if len(at) == len(column) else column.take(pa.array(at))
