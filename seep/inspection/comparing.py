"""Compares two checkpoints: rows that were added, removed or changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.keys import same_rows
from seep.inspection.container import StoredContainer
from seep.inspection.stored import Stored

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of one container between two checkpoints, in the form it is stored; see `readable`."""

    operator: str
    container: str
    identity: tuple[str, ...]  #: the columns that identify a row
    added: pa.RecordBatch
    removed: pa.RecordBatch
    before: pa.RecordBatch  #: the old values of changed rows
    after: pa.RecordBatch  #: the new values of the same rows, in the same order

    def __bool__(self) -> bool:
        return any(map(len, (self.added, self.removed, self.after)))


def diff(before: Stored, after: Stored, operator: str, container: str | None = None) -> list[Difference]:
    """Returns the differences of an operator's state, for each container that either checkpoint has.

    It reads the slots in groups, and skips slots for which both have the same blobs. The columns of its identity
    identify a row; it has changed if a stored value has other bytes, such as a dict in another order.
    """
    present = [stored for stored in (before, after) if operator in stored.operators()]
    if not present:
        after.component(operator)  # raises an error that lists the operators
    names = dict.fromkeys(name for stored in present for name in stored.containers(operator))
    if container is not None and container not in names:
        after.container(operator, container)
    wanted = names if container is None else [container]
    return [_difference(_of(before, operator, name), _of(after, operator, name)) for name in wanted]


def _of(stored: Stored, operator: str, name: str) -> StoredContainer | None:
    there = operator in stored.operators() and name in stored.containers(operator)
    return stored.container(operator, name) if there else None


def _difference(before: StoredContainer | None, after: StoredContainer | None) -> Difference:
    """Compares a container; one that a checkpoint does not have counts as empty."""
    one = after or before
    assert one is not None
    if before and after:
        _check_alike(before, after)
    none = (one.like.rows,) * 4
    parts = zip(none, *_parts(before, after, one), strict=True)
    return Difference(one.operator, one.name, one.like.identity, *map(pa.concat_batches, parts))


def _check_alike(before: StoredContainer, after: StoredContainer) -> None:
    old, new = before.like, after.like
    same = (old.slot_bits, old.keys, old.identity) == (new.slot_bits, new.keys, new.identity)
    if not same or not before.schema.equals(after.schema):
        raise UserError(
            f"state {after.name!r} of operator {after.operator!r} is not of the same form in both checkpoints, so "
            f"rows cannot be compared: it was\n{_in_words(before)}\nand is\n{_in_words(after)}"
        )


def _in_words(container: StoredContainer) -> str:
    columns = ", ".join(f"{field.name}: {field.type}" for field in container.schema)
    return f"  {columns}, told apart by {', '.join(container.like.identity)}, in 2^{container.like.slot_bits} slots"


def _parts(
    before: StoredContainer | None, after: StoredContainer | None, one: StoredContainer
) -> Iterator[tuple[pa.RecordBatch, ...]]:
    for slots in one.groups():
        if not (before and after and after.is_same_in(before, slots)):
            yield compared(_rows(before, slots, one), _rows(after, slots, one), one.like.identity)


def _rows(container: StoredContainer | None, slots: SlotSet, one: StoredContainer) -> pa.RecordBatch:
    return container.chunk(slots).rows if container else one.like.rows


def compared(old: pa.RecordBatch, new: pa.RecordBatch, identity: tuple[str, ...]) -> tuple[pa.RecordBatch, ...]:
    """Returns the rows added, those removed, and the old and the new values of those changed."""
    place_in_old, place_in_new = _places(old, new, identity)
    added, removed = place_in_old < 0, place_in_new < 0
    both = ~(added | removed)
    left, right = old.take(pa.array(place_in_old[both])), new.take(pa.array(place_in_new[both]))
    values = [name for name in old.schema.names if name not in identity]
    changed = pa.array(~_same(left.select(values), right.select(values)))
    return (
        new.take(pa.array(place_in_new[added])),
        old.take(pa.array(place_in_old[removed])),
        left.filter(changed),
        right.filter(changed),
    )


def _places(
    old: pa.RecordBatch, new: pa.RecordBatch, identity: tuple[str, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the positions of each row in the old and in the new batch; -1 where it is missing."""
    sides = [(old, np.arange(len(old)), np.full(len(old), -1)), (new, np.full(len(new), -1), np.arange(len(new)))]
    tables = [
        pa.Table.from_batches([batch.select(identity)])
        .rename_columns([f"k{place}" for place in range(len(identity))])
        .append_column("old", pa.array(in_old, pa.int64()))
        .append_column("new", pa.array(in_new, pa.int64()))
        for batch, in_old, in_new in sides
    ]
    names = tables[0].column_names[:-2]  # not the user's names, which could be equal to those of the positions
    found = pa.concat_tables(tables).group_by(names, use_threads=False).aggregate([("old", "max"), ("new", "max")])
    return found["old_max"].to_numpy(), found["new_max"].to_numpy()


def _same(left: pa.RecordBatch, right: pa.RecordBatch) -> Mask:
    """Says which rows are equal in all columns."""
    same = np.ones(len(left), np.bool_)
    for mine, other in zip(left.columns, right.columns, strict=True):
        same &= _same_nested(mine, other) if _is_nested(mine.type) else same_rows([mine], [other])
    return same


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_dictionary(kind))


def _same_nested(left: pa.Array, right: pa.Array) -> Mask:
    """Compares nested values as text, because Arrow cannot compare them, and NaN differs from itself in Python."""
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return np.array([repr(mine) == repr(other) for mine, other in pairs], np.bool_)
