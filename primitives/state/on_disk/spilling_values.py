"""SpillingValues: values that spill their least recently used slots to local disk, and read them back on use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from primitives.slots import SlotSet
from primitives.state.budget import MemoryBudget, MemoryUse
from primitives.state.chunk import Chunk
from primitives.state.keys import Key
from primitives.state.on_disk.cold import PartlyOnDisk, in_parts, slots_of_keys
from primitives.state.values import Cell, Values, is_immutable

#: A container measures its size again when it may have grown by this share of the budget.
_GROWTH = 0.05


class SpillingValues(PartlyOnDisk, Values):
    """`Values` whose least recently used slots are spilled to disk when all containers of a budget exceed it.

    A slot stays in memory while the user may hold an object of it that can change in place: until `mark`, or until the
    budget is told that the epoch has ended (`MemoryBudget.settle`). The slots that one epoch uses must fit.

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
        self._out = np.zeros(1 << self.slot_bits, np.bool_)  #: slots with an object that may still change in place
        self._unmeasured = 0  #: values written since the size was measured
        self._patience = 1  #: limit of these before it is measured again
        self._restoring = False  #: while true, no slot may be spilled
        self._begin(budget, directory)

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

    def clear(self) -> None:
        """See `Values.clear`."""
        for key in list(self):
            del self[key]

    def _on_disk(self, slot: int) -> list[tuple[Key, Any]]:
        """Returns keys and values of a cold slot, in order."""
        (chunk,) = self._cold.chunks(SlotSet([slot]))
        values = self._codec.values(chunk.rows.column("value"))
        pairs = zip(self._keys.from_columns(chunk.rows.columns[:-1]), values, strict=True)
        return sorted(pairs, key=lambda pair: self._keys.sort_key(pair[0]))

    def _find(self, key: Any) -> Cell | None:
        normal = self._keys.normal(key)
        if normal not in self._cells and self._cold.slots:
            slot = SlotSet([self._keys.slot(normal)])
            if slot <= self._cold.slots:
                self._warm(slot)
        return self._cells.get(normal)

    def _handed_out(self, cell: Cell) -> Any:
        self._used[cell.slot] = self._budget.tick()
        return super()._handed_out(cell)

    def _touch(self, cell: Cell) -> None:
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

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`; restores some slots at a time."""
        for chunk in chunks:
            for part in chunk.split(self._slices(chunk)):
                self._restore(part)

    def _slices(self, chunk: Chunk) -> list[SlotSet]:
        """Divides all slots into parts of limited size in the chunk and on disk."""
        rows = np.bincount(chunk.slots_of_rows(), minlength=1 << self.slot_bits)
        sizes = rows * chunk.nbytes // max(len(chunk.rows), 1) + self._cold.sizes
        parts = in_parts(sizes, self._budget.limit // 2)
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

    def held(self) -> MemoryUse:
        """See `Spillable.held`."""
        sizes = np.zeros(1 << self.slot_bits, np.int64)
        row_size = self._row_size()
        for slot, cells in self._slots.items():
            sizes[slot] = len(cells) * row_size
        return MemoryUse(sizes, self._used, ~self._out)

    def spill(self, slots: SlotSet) -> None:
        """See `Spillable.spill`."""
        self._write(slots)
        self.evict(slots)

    def settle(self) -> None:
        """See `Spillable.settle`."""
        self._out[:] = False

    def _row_size(self) -> float:
        return Values.size(self) / max(Values.__len__(self), 1) or 1.0

    def _warm(self, slots: SlotSet) -> None:
        """Reads slots into memory that are about to be used."""
        self._used[slots.array] = self._budget.tick()
        self._budget.make_room(self._cold.size(slots), self, slots)
        self._cold.bring_back(slots, self._identity, self.admit)
