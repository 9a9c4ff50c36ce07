"""A container of an operator in a checkpoint; it reads only the slots that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats.blob import empty_chunk
from formats.manifest import BlobRef, Component
from formats.persist import GetRange, retrieve_state
from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.chunk import Chunk, merge_chunks
from primitives.state.keys import KeyColumns, same_rows

#: The approximate number of stored bytes that are read at a time.
GROUP_BYTES = 32 << 20
#: The same, to read a few rows.
_HEAD_BYTES = 1 << 18


class StoredContainer:
    """A stored container. Raises EnvironmentFault that names the blob if a blob is damaged or missing."""

    def __init__(self, operator: str, name: str, component: Component, get: GetRange) -> None:
        self.operator, self.name = operator, name
        state = component.containers[name]
        self.like = empty_chunk(state.avro_schema)  #: a chunk of it without rows
        self._component = component.model_copy(update={"containers": {name: state}})
        self._get = get

    @property
    def schema(self) -> pa.Schema:
        """All columns, in the form they are stored."""
        return self.like.rows.schema

    @property
    def all_slots(self) -> SlotSet:
        return SlotSet.full(self.like.slot_bits)

    @property
    def blobs(self) -> tuple[BlobRef, ...]:
        """The blobs that the checkpoint refers to, in the order in which they apply."""
        return self._component.containers[self.name].blobs

    def is_same_in(self, other: StoredContainer, slots: SlotSet) -> bool:
        """Whether both checkpoints have the same blobs for some slots, which then do not differ."""
        mine, others = (each._component.needed(slots)[each.name] for each in (self, other))
        return [(blob.key, part) for blob, part in mine] == [(blob.key, part) for blob, part in others]

    # --- reading ------------------------------------------------------------------------------------------------------

    def chunk(self, slots: SlotSet | None = None) -> Chunk:
        """Returns all rows of some slots, or of all, with all deltas applied."""
        wanted = self.all_slots if slots is None else self._checked(slots)
        chunks = retrieve_state(self._component, wanted, self._get)
        if not chunks:
            return replace(self.like, replaced=wanted)
        return chunks[0] if len(chunks) == 1 else merge_chunks(chunks)

    def rows(self, slots: SlotSet | None = None, keys: Mapping[str, Any] | None = None) -> pa.RecordBatch:
        """Returns the stored rows of some slots, or of one key; for a key, it reads only its slot."""
        if keys is None:
            return self.chunk(slots).rows
        key = self._key(keys)
        slot = SlotSet(slots_of(hash_keys(key), self.like.slot_bits))
        rows = self.chunk(slot if slots is None else slot & self._checked(slots)).rows
        repeated = [column.take(pa.array(np.zeros(len(rows), np.int64))) for column in key]
        return rows.filter(pa.array(same_rows([rows.column(name) for name in self.like.keys], repeated)))

    def head(self, limit: int, slots: SlotSet | None = None) -> pa.RecordBatch:
        """Returns up to `limit` rows of the first slots; reads only as many slots as needed."""
        found: list[pa.RecordBatch] = [self.like.rows]
        for chunk in self.pieces(slots, _HEAD_BYTES):
            found.append(chunk.rows)
            if sum(map(len, found)) >= limit:
                break
        return pa.concat_batches(found)[:limit]

    def pieces(self, slots: SlotSet | None = None, group_bytes: int = GROUP_BYTES) -> Iterator[Chunk]:
        """Yields chunks of consecutive slots, each of about `group_bytes` stored bytes.

        A slot is never divided, however large it is.
        """
        for group in self.groups(slots, group_bytes):
            yield self.chunk(group)

    def groups(self, slots: SlotSet | None = None, group_bytes: int = GROUP_BYTES) -> list[SlotSet]:
        """Divides some slots, or all, into groups of consecutive slots with about `group_bytes` stored bytes."""
        wanted = self.all_slots if slots is None else self._checked(slots)
        if not wanted:
            return []
        ends = np.cumsum(self._stored_bytes()[wanted.array])
        begins = np.concatenate(([0.0], ends[:-1]))
        cuts = np.flatnonzero(np.diff(begins // group_bytes)) + 1
        return [SlotSet(part) for part in np.split(wanted.array, cuts)]

    def _stored_bytes(self) -> NDArray[np.float64]:
        """Estimates the stored bytes of each slot; it assumes that the slots of a block have equal shares."""
        sizes = np.zeros(1 << self.like.slot_bits, np.float64)
        for blob in self.blobs:
            for block in blob.index.blocks:
                sizes[block.first : block.last + 1] += block.length / (block.last - block.first + 1)
        return sizes

    def _checked(self, slots: SlotSet) -> SlotSet:
        if not slots <= self.all_slots:
            raise UserError(
                f"operator {self.operator!r} has no {slots - self.all_slots}: its slots are 0 to "
                f"{(1 << self.like.slot_bits) - 1}"
            )
        return slots

    # --- keys ---------------------------------------------------------------------------------------------------------

    @property
    def key_types(self) -> dict[str, pa.DataType]:
        """The columns that determine the slot of a row."""
        return {name: self.schema.field(name).type for name in self.like.keys}

    def normal_keys(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Returns the key columns of rows in a form in which equal keys are identical."""
        return self._key_columns().normal_columns([rows.column(name) for name in self.like.keys], len(rows))

    def _key_columns(self) -> KeyColumns:
        return KeyColumns(self.name, self.like.slot_bits, self.key_types, reserved=())

    def _key(self, keys: Mapping[str, Any]) -> list[pa.Array]:
        if keys.keys() != self.key_types.keys():
            raise UserError(
                f"a key of state {self.name!r} of operator {self.operator!r} is {', '.join(self.like.keys)}; got "
                f"{', '.join(keys) or 'nothing'}"
            )
        return self._key_columns().normal_columns([[keys[name]] for name in self.like.keys], 1)
