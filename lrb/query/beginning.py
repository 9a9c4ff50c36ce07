"""InitialState: state that operators start with before the first tuple, if they do not start empty.

It is the state that one expressway has after some hours, and each expressway of the query gets it, with vehicles of its
own. As nothing on one expressway concerns another, that is what they would know had they seen all these hours.
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

#: The epoch at which operators that begin with something take it in; a run that is restored begins with a later one.
FIRST_EPOCH = 1
_ROADS_PER_XWAY = 2


@dataclass(frozen=True, slots=True)
class InitialState:
    """Files of containers' rows, in a folder that all nodes see."""

    folder: Path
    xways: int
    vehicles: int  #: by so much are the vehicle ids of an expressway higher than those of the one before

    def write(self, containers: Mapping[str, pa.RecordBatch]) -> None:
        """The rows of expressway 0, by container."""
        for name, rows in containers.items():
            with pa.OSFile(str(self._path(name)), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_batch(rows)

    def fill(self, frame: Frame, slots: SlotSet) -> None:
        """Puts into a frame what it has of these slots."""
        first = self.rows(frame.name)
        frame.reserve(self.xways * len(first) * len(slots) >> frame.slot_bits)
        for xway in range(self.xways):
            frame.append(_within(self._moved(first, xway), slots, frame.slot_bits))

    def rows(self, container: str) -> pa.RecordBatch:
        """Those of expressway 0."""
        with pa.ipc.open_file(pa.memory_map(str(self._path(container)))) as file:
            return file.get_batch(0)

    def _moved(self, rows: pa.RecordBatch, xway: int) -> pa.RecordBatch:
        """As they are on another expressway."""
        shifts = {"vid": xway * self.vehicles, "road": xway * _ROADS_PER_XWAY}
        return pa.record_batch(list(_shifted(rows, shifts)), schema=rows.schema)

    def _path(self, container: str) -> Path:
        return self.folder / f"{container}.arrow"


def _shifted(rows: pa.RecordBatch, shifts: Mapping[str, int]) -> Iterator[pa.Array]:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        numbers = to_numbers(column)
        yield pa.array(numbers + numbers.dtype.type(shifts[field.name])) if field.name in shifts else column


def _within(rows: pa.RecordBatch, slots: SlotSet, slot_bits: int) -> pa.RecordBatch:
    """The rows whose key, the first column, is in some slots."""
    mask = slots.mask(slot_bits)
    if mask.all():
        return rows
    return rows.filter(pa.array(mask[slots_of(hash_keys([np.asarray(to_numbers(rows[0]))]), slot_bits)]))
