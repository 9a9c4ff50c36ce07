"""InitialState: the state that operators have before the first tuple, if they do not start empty.

It is the state of one expressway after some hours. Each expressway of the query gets a copy, with its own vehicle ids.
Nothing on one expressway affects another, so this is the state that they would have after those hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.columnar.fixed import to_numbers
from primitives.state.frame import Frame

#: The epoch at which operators load their initial state. A restored run begins later.
FIRST_EPOCH = 1
_ROADS_PER_XWAY = 2


@dataclass(frozen=True, slots=True)
class InitialState:
    """Files with the rows of containers, in a folder that all nodes can read."""

    folder: Path
    xways: int
    vehicles: int  #: difference of vehicle ids between two expressways

    def write(self, containers: Mapping[str, pa.RecordBatch]) -> None:
        """Writes the rows of expressway 0, one file per container."""
        for name, rows in containers.items():
            with pa.OSFile(str(self._path(name)), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_batch(rows)

    def fill(self, frame: Frame, slots: SlotSet) -> None:
        """Adds the initial rows of these slots to a frame."""
        first = self.rows(frame.name)
        frame.reserve(self.xways * len(first) * len(slots) >> frame.slot_bits)
        for xway in range(self.xways):
            frame.append(_within(self._moved(first, xway), slots, frame.slot_bits))

    def rows(self, container: str) -> pa.RecordBatch:
        """Reads the rows of expressway 0."""
        with pa.ipc.open_file(pa.memory_map(str(self._path(container)))) as file:
            return file.get_batch(0)

    def _moved(self, rows: pa.RecordBatch, xway: int) -> pa.RecordBatch:
        """Returns the rows with the ids of another expressway."""
        shifts = {"vid": xway * self.vehicles, "road": xway * _ROADS_PER_XWAY}
        return pa.record_batch(list(_shifted(rows, shifts)), schema=rows.schema)

    def _path(self, container: str) -> Path:
        return self.folder / f"{container}.arrow"


def _shifted(rows: pa.RecordBatch, shifts: Mapping[str, int]) -> Iterator[pa.Array]:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        numbers = to_numbers(column)
        yield pa.array(numbers + numbers.dtype.type(shifts[field.name])) if field.name in shifts else column


def _within(rows: pa.RecordBatch, slots: SlotSet, slot_bits: int) -> pa.RecordBatch:
    """Returns the rows whose key, the first column, belongs to these slots."""
    mask = slots.mask(slot_bits)
    if mask.all():
        return rows
    return rows.filter(pa.array(mask[slots_of(hash_keys([np.asarray(to_numbers(rows[0]))]), slot_bits)]))
