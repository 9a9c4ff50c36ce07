"""compact_state: what a component has in storage, in full checkpoints and deltas on them, as one full checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from formats.avro_file import Compression
from formats.manifest import Component, component_of
from formats.persist import GetRange, Put, persist_state, retrieve_state
from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import SlotSet, split_evenly
from primitives.state.chunk_chain import merged

#: Stored bytes that are worked on at a time, if slots are about equally full.
_GROUP = 64 << 20


def compact_state(
    operator: str,
    component: Component,
    get: GetRange,
    put: Put,
    codec: Compression = Compression.NONE,
    group_bytes: int = _GROUP,
) -> Component:
    """A component of the same state whose blobs build on nothing; reads and writes all of it, some slots at a time.

    Law: `retrieve_state` of any slots, merged, gives the same as before.
    """
    parts = [
        persist_state(checkpoint, put, codec, slot_bits=component.slot_bits)
        for checkpoint in _checkpoints(operator, component, get, group_bytes)
    ]
    return component_of(parts).model_copy(update={"parallelism": component.parallelism, "extras": component.extras})


def stored_bytes(component: Component) -> int:
    """Bytes that are read for all slots."""
    everything = SlotSet.full(component.slot_bits)
    return sum(reading.nbytes for readings in component.needed(everything).values() for reading in readings)


def _checkpoints(operator: str, component: Component, get: GetRange, group_bytes: int) -> Iterator[Checkpoint]:
    """As if there were an instance for each group of slots."""
    count = min(1 << component.slot_bits, 1 + stored_bytes(component) // group_bytes)
    for index, slots in enumerate(split_evenly(SlotSet.full(component.slot_bits), count)):
        chunks = retrieve_state(component, slots, get)
        names = dict.fromkeys(chunk.name for chunk in chunks)
        state = [part for name in names for part in merged([chunk for chunk in chunks if chunk.name == name])]
        owner = InstanceId(operator, index)
        yield Checkpoint(owner, 0, 0, component.epoch, None, slots, tuple(state), (), trimmed=component.epoch)
