"""persist_state and compact_state: write the processing state of a checkpoint to storage as blobs, and read it back.

At a cut after one epoch of the whole query no buffer state (β) is needed, because every receiver is at that epoch too,
and the sources continue from there. Written blobs count once a manifest refers to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from formats.avro_file import Compression, Piece
from formats.blob import avro_name, read_blob, write_blob
from formats.manifest import BlobReading, BlobRef, Component, ContainerState, ManifestPart, component_of
from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import SlotSet, split_evenly
from primitives.state.chunk import Chunk
from primitives.state.chunk_chain import merged, settled
from primitives.state.file_chunk import FileChunk
from primitives.state.on_disk.row_files import PIECE, read_pieces

#: Stores data, given in parts, under a name that is unique within the operator and checkpoint; returns its key.
Put: TypeAlias = Callable[[str, Sequence[Piece]], str]

#: Returns a number of bytes at a position of the data that is stored under a key.
GetRange: TypeAlias = Callable[[str, int, int], Piece]


def persist_state(
    checkpoint: Checkpoint,
    put: Put,
    codec: Compression = Compression.NONE,
    *,
    slot_bits: int,
    slots: SlotSet | None = None,
    piece: int = PIECE,
) -> ManifestPart:
    """Writes a blob for each chunk of rows; returns its entry in a manifest (see `component_of`).

    The checkpoint may be a delta. `slots` are those that its owner has after the epoch; the checkpoint may also cover
    slots that the owner has handed over. Chunks of files are written in full, as rows in the order of slots, about
    `piece` bytes at a time, so that they need not fit into memory.
    """
    owner, mine = checkpoint.owner, checkpoint.slots if slots is None else slots
    containers: dict[str, ContainerState] = {}
    for place, chunk in enumerate(_in_rows(checkpoint, mine, piece)):
        name = f"{owner.index}-{avro_name(chunk.name)}-{place}"
        written = _write(chunk, checkpoint.epoch, mine, put, name, codec)
        earlier = containers[chunk.name].blobs if chunk.name in containers else ()
        containers[chunk.name] = written.model_copy(update={"blobs": (*earlier, *written.blobs)})
    return ManifestPart(
        operator=owner.operator,
        instance=owner.index,
        epoch=checkpoint.epoch,
        base=checkpoint.base,
        slots=mine,
        slot_bits=slot_bits,
        containers=containers,
    )


def retrieve_state(component: Component, slots: SlotSet, get: GetRange) -> tuple[Chunk, ...]:
    """Returns the state of `slots` as chunks, to be restored in this order; reads only the necessary parts of blobs.

    Raises EnvironmentFault, with the key, if a blob is missing or damaged.
    """
    return tuple(_read(reading, get) for readings in component.needed(slots).values() for reading in readings)


def _in_rows(checkpoint: Checkpoint, mine: SlotSet, piece: int) -> Iterator[Chunk]:
    """Yields the chunks of the owner's slots, in an order in which they take effect."""
    for name in dict.fromkeys(chunk.name for chunk in checkpoint.state):
        for chunk in settled(chunk for chunk in checkpoint.state if chunk.name == name):
            if isinstance(chunk, FileChunk):
                yield from read_pieces(chunk.select(mine), piece)
            else:
                yield _own(chunk, checkpoint.slots, mine)


def _own(chunk: Chunk, covered: SlotSet, mine: SlotSet) -> Chunk:
    """Returns the owner's part of a chunk; a delta also voids slots that have left, which others describe."""
    if covered <= mine:
        return replace(chunk, replaced=chunk.replaced & mine)
    return chunk.select(mine)


def _write(chunk: Chunk, epoch: int, slots: SlotSet, put: Put, name: str, codec: Compression) -> ContainerState:
    blob = write_blob(chunk, codec)
    key = put(name, blob.parts)
    ref = BlobRef(key=key, epoch=epoch, slots=slots, replaced=chunk.replaced, index=blob.index)
    return ContainerState(avro_schema=blob.schema, blobs=(ref,))


def _read(reading: BlobReading, get: GetRange) -> Chunk:
    key = reading.blob.key
    pieces = [get(key, start, length) for start, length in reading.ranges]
    return read_blob(reading.blob.index, reading.slots, pieces, key)


#: The stored bytes in a group of slots, if slots are about equally full.
_GROUP = 64 << 20


def compact_state(
    operator: str,
    component: Component,
    get: GetRange,
    put: Put,
    codec: Compression = Compression.NONE,
    group_bytes: int = _GROUP,
) -> Component:
    """Returns a component of the same state whose blobs need no earlier ones; reads and writes all state in parts.

    Law: `retrieve_state` of any slots, merged, gives the same as before.
    """
    parts = [
        persist_state(checkpoint, put, codec, slot_bits=component.slot_bits)
        for checkpoint in _checkpoints(operator, component, get, group_bytes)
    ]
    return component_of(parts).model_copy(update={"parallelism": component.parallelism})


def stored_bytes(component: Component) -> int:
    """Returns the number of bytes that are read for all slots."""
    everything = SlotSet.full(component.slot_bits)
    return sum(reading.nbytes for readings in component.needed(everything).values() for reading in readings)


def _checkpoints(operator: str, component: Component, get: GetRange, group_bytes: int) -> Iterator[Checkpoint]:
    """Yields one checkpoint for each group of slots, as if each group had an instance."""
    count = min(1 << component.slot_bits, 1 + stored_bytes(component) // group_bytes)
    for index, slots in enumerate(split_evenly(SlotSet.full(component.slot_bits), count)):
        chunks = retrieve_state(component, slots, get)
        names = dict.fromkeys(chunk.name for chunk in chunks)
        state = [part for name in names for part in merged([chunk for chunk in chunks if chunk.name == name])]
        owner = InstanceId(operator, index)
        yield Checkpoint(owner, 0, 0, component.epoch, None, slots, tuple(state), (), trimmed=component.epoch)
