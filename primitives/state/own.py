"""OwnState: state in an operator's own data structure, accessed by SEEP's get- and set-processing-state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet, check_slot_bits, slots_of
from primitives.state.changes import Changes, Tracked
from primitives.state.chunk import Chunk
from primitives.state.codec import Decode, Encode, ValueCodec
from primitives.state.container import check_fits

_KEYS = ("slot_key",)


class OwnProcessingState(Protocol):
    """The interface of an operator that keeps state in its own structure; it must know the slot of each part.

    The slot of a key is `slots_of(hash_keys(…), slot_bits)`, or of a single one `slot_of(hash_key(…), slot_bits)`.
    """

    def get_processing_state(self, slots: SlotSet) -> Mapping[int, Any]:
        """Returns the state of each of `slots`, as plain data; slots without any state may be left out."""
        ...

    def set_processing_state(self, state: Mapping[int, Any]) -> None:
        """Adds state that `get_processing_state` once returned, for slots that hold none now."""
        ...

    def drop_processing_state(self, slots: SlotSet) -> None:
        """Drops the state of `slots`."""
        ...


@runtime_checkable
class Measured(Protocol):
    """The optional interface of an operator that can measure its state faster than by getting it."""

    def processing_state_size(self, slots: SlotSet) -> int:
        """Returns the approximate number of bytes that `get_processing_state` would return."""
        ...


class OwnState(Tracked[None]):
    """A container around state that an operator keeps by itself; beside others, it goes into `Containers`.

    It cannot tell what changed: a snapshot carries the slots completely, also as a delta. So it is for small state, or
    for structures that no container offers. The state of a slot is stored as a value is in `Values`: as msgpack, or as
    the Arrow type `value`; `encode` and `decode` turn other objects into such values and back.

    >>> class Clicks:
    ...     total = {0: 5, 3: 8}  # by slot
    ...
    ...     def get_processing_state(self, slots):
    ...         return {slot: count for slot, count in self.total.items() if slot in slots}
    ...
    ...     def set_processing_state(self, state):
    ...         self.total |= state
    ...
    ...     def drop_processing_state(self, slots):
    ...         self.total = {slot: count for slot, count in self.total.items() if slot not in slots}
    >>> clicks = Clicks()
    >>> state = OwnState("clicks", clicks, slot_bits=2)
    >>> chunk = state.snapshot(SlotSet([2, 3]))
    >>> state.drop(SlotSet.full(2))
    >>> state.restore([chunk])
    >>> clicks.total
    {3: 8}
    """

    def __init__(
        self,
        name: str,
        operator: OwnProcessingState,
        *,
        slot_bits: int = DEFAULT_SLOT_BITS,
        value: pa.DataType | None = None,
        encode: Encode | None = None,
        decode: Decode | None = None,
        version: int = 0,
    ) -> None:
        self.name = name
        self.slot_bits = check_slot_bits(slot_bits)
        self.version = version
        self._operator = operator
        self._codec = ValueCodec(name, value, encode, decode)
        self._identity = pa.schema([pa.field(key, pa.int64()) for key in _KEYS])
        self._schema = self._identity.append(pa.field("value", self._codec.type))
        self._changes = Changes(name, lambda: None)

    def __len__(self) -> int:
        """Returns the number of slots that hold state. Costs getting all of it."""
        return len(self._get(SlotSet.full(self.slot_bits)))

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`; it always replaces `slots`, with all their state."""
        state = self._get(slots)
        keys = pa.array(_key_in_each_slot(self.slot_bits)[list(state)])
        values = self._codec.column(list(state.values()), lambda at: f"slot {list(state)[at]}")
        return Chunk(
            name=self.name,
            version=self.version,
            slot_bits=self.slot_bits,
            replaced=slots if since is None else slots | self._changes.replaced_since(since),
            keys=_KEYS,
            identity=_KEYS,
            rows=pa.record_batch([keys, values], schema=self._schema),
            deleted=pa.RecordBatch.from_pylist([], self._identity),
        )

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`; the operator gets all slots in one call."""
        state: dict[int, Any] = {}
        for chunk in chunks:
            check_fits(chunk, self, self.version, _KEYS, self._schema)
            self.drop(chunk.replaced)
            state = {slot: value for slot, value in state.items() if slot not in chunk.replaced}
            state |= zip(chunk.slots_of_rows().tolist(), self._codec.values(chunk.rows.column("value")), strict=True)
        self._operator.set_processing_state(state)

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`."""
        self._operator.drop_processing_state(slots)
        self._changes.replace(slots)

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`. Costs a snapshot, unless the operator is `Measured`."""
        wanted = SlotSet.full(self.slot_bits) if slots is None else slots
        if isinstance(self._operator, Measured):
            return self._operator.processing_state_size(wanted)
        return self.snapshot(wanted).nbytes

    def changed(self, since: int) -> int:
        """Returns the number of slots that hold state: any of them may have changed since."""
        self._changes.since(since)
        return len(self)

    def _get(self, slots: SlotSet) -> dict[int, Any]:
        state = self._operator.get_processing_state(slots)
        if extra := SlotSet(state) - slots:
            raise UserError(
                f"state '{self.name}': get_processing_state was asked for {slots}, and returned {extra} as well; "
                "return only what is asked for, as the other slots may belong to another instance"
            )
        return {slot: state[slot] for slot in sorted(state)}


@cache
def _key_in_each_slot(slot_bits: int) -> NDArray[np.int64]:
    """Returns the first of 0, 1, 2, … in each slot: chunks identify the slot by this key, because they hash keys.

    Takes about slot_bits rounds, each with as many numbers as there are slots, until every slot has one.
    """
    keys = np.full(1 << slot_bits, -1)
    numbers = np.arange(1 << slot_bits)
    while (keys < 0).any():
        slots = slots_of(hash_keys([numbers]), slot_bits)
        hits = np.flatnonzero(keys[slots] < 0)[::-1]  # reversed, so that the first of several numbers remains
        keys[slots[hits]] = numbers[hits]
        numbers += len(numbers)
    return keys
