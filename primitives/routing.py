"""Applies routing state to batches: selects the rows for each instance, and the rows of some slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from primitives.errors import InternalError, UserError
from primitives.kernels import kernel
from primitives.slots import SlotSet

Slots = NDArray[np.uint32]
Owners = NDArray[np.int32]


def split_batch(batch: pa.RecordBatch, slots: Slots, owners: Owners) -> dict[int, pa.RecordBatch]:
    """The rows of each owner, given the slot of every row and the owner of every slot; owners without rows are absent.

    Every row is in exactly one part, and rows keep their order within it. One owner gets the very same batch. Several
    get slices of one reordered copy: the cost is a gather per column, whatever the number of owners.

    >>> batch = pa.record_batch({"word": ["a", "b", "c", "d"]})
    >>> parts = split_batch(batch, slots=np.array([0, 3, 1, 2], np.uint32), owners=np.array([0, 0, 5, 5], np.int32))
    >>> {owner: part["word"].to_pylist() for owner, part in parts.items()}
    {0: ['a', 'c'], 5: ['b', 'd']}
    """
    _check_one_slot_per_row(batch, slots)
    if not batch.num_rows:
        return {}
    owner_of_row, lowest, highest = _owner_of_row(slots, owners)
    if lowest == highest:
        return {lowest: batch}
    order, starts = _grouped(owner_of_row, highest + 1)
    rows = take_rows(batch, order)
    bounds = starts.tolist()
    return {
        owner: rows.slice(bounds[owner], bounds[owner + 1] - bounds[owner])
        for owner in range(lowest, highest + 1)
        if bounds[owner] < bounds[owner + 1]
    }


def rows_in(batch: pa.RecordBatch, slots: Slots, slot_set: SlotSet) -> pa.RecordBatch:
    """The rows whose slot is in the set, in order; the very same batch if that is all of them.

    >>> batch = pa.record_batch({"word": ["a", "b", "c"]})
    >>> rows_in(batch, np.array([0, 3, 1], np.uint32), SlotSet([1, 3]))["word"].to_pylist()
    ['b', 'c']
    """
    _check_one_slot_per_row(batch, slots)
    if not batch.num_rows or not slot_set:
        return batch.slice(0, 0)
    slot_bits = max(int(slots.max()), int(slot_set.array[-1])).bit_length()
    selected = places_in(slot_set.mask(slot_bits), slots)
    return batch if len(selected) == batch.num_rows else take_rows(batch, selected)


def places_in(mask: NDArray[np.bool_], slots: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the positions of rows whose slots are in a mask, in order; releases Python's lock."""
    places = np.empty(len(slots), np.int64)
    return places[: _choose(mask, slots, places)]


def take_rows(batch: pa.RecordBatch, order: NDArray[np.int64]) -> pa.RecordBatch:
    """The rows at these positions, in this order, whatever the types of the columns."""
    rows = pa.array(order)
    try:
        return batch.take(rows)
    except pa.ArrowNotImplementedError:
        columns = [_take(field, column, rows) for field, column in zip(batch.schema, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _take(field: pa.Field, column: pa.Array, rows: pa.Array) -> pa.Array:
    """`take` with a detour for the types that Arrow cannot gather directly."""
    if pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type):
        plain = pa.large_string() if pa.types.is_string_view(field.type) else pa.large_binary()
        return column.cast(plain).take(rows).cast(field.type)
    if pa.types.is_run_end_encoded(field.type):
        return pc.run_end_encode(pc.run_end_decode(column).take(rows), run_end_type=field.type.run_end_type)
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError as error:
        raise UserError(
            f"column {field.name!r} of type {field.type} cannot be split by slot: {error}; cast it to a plain type"
        ) from error


def _check_one_slot_per_row(batch: pa.RecordBatch, slots: Slots) -> None:
    if len(slots) != batch.num_rows:
        raise InternalError(f"{len(slots)} slots were given for a batch of {batch.num_rows} rows")


def _owner_of_row(slots: Slots, owners: Owners) -> tuple[Owners, int, int]:
    """The owner of every row, and the lowest and the highest of them."""
    owner_of_row = np.empty(len(slots), np.int32)
    lowest, highest = _look_up(slots, owners, owner_of_row)
    if lowest < 0:
        slot = slots[np.flatnonzero(owner_of_row < 0)[0]]
        raise InternalError(f"slot {slot} has no owner in the routing table of {len(owners)} slots")
    return owner_of_row, int(lowest), int(highest)


@kernel
def _look_up(slots: Slots, owners: Owners, owner_of_row: Owners) -> tuple[np.int32, np.int32]:
    """Fills in `owner_of_row`, with -1 for a slot beyond the table, and returns the lowest and the highest owner."""
    nobody = np.int32(-1)
    lowest, highest = np.int32(np.iinfo(np.int32).max), nobody
    for row in range(len(slots)):
        slot = slots[row]
        owner = owners[slot] if slot < len(owners) else nobody
        owner_of_row[row] = owner
        lowest = min(lowest, owner)
        highest = max(highest, owner)
    return lowest, highest


@kernel
def _grouped(owner_of_row: Owners, owners: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A counting sort: the rows by owner, stable, and where each owner's rows start (with the end of the last)."""
    starts = np.zeros(owners + 1, np.int64)
    for owner in owner_of_row:
        starts[owner + 1] += 1
    for owner in range(owners):
        starts[owner + 1] += starts[owner]
    free = starts.copy()
    order = np.empty(len(owner_of_row), np.int64)
    for row in range(len(owner_of_row)):
        owner = owner_of_row[row]
        order[free[owner]] = row
        free[owner] += 1
    return order, starts


@kernel
def _choose(mask: NDArray[np.bool_], slots: NDArray[Any], places: NDArray[np.int64]) -> int:
    """Writes the places; returns how many these are."""
    count = 0
    for at in range(len(slots)):
        places[count] = at
        count += mask[slots[at]]  # without a branch, as it could not be predicted
    return count
