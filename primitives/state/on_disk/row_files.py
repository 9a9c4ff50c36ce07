"""Reads rows by slot from RocksDB's files, of a container or of a chunk of files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from primitives.errors import EnvironmentFault
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk
from primitives.state.files import disk_faults
from primitives.state.on_disk.rocks import RowStore
from primitives.state.on_disk.row_codec import RowCodec

#: Approximate bytes of rows that are read at a time.
PIECE = 64 << 20

#: No write memory for files that are only read.
_WRITE_BUFFER = 1 << 20


def read_rows(store: RowStore, like: Chunk, slots: SlotSet, expected: int) -> pa.RecordBatch:
    """Returns the rows of some slots.

    Raises EnvironmentFault unless there are as many as expected, because a scan silently ends at a damaged place.
    `like` is a chunk of the container.
    """
    rows = pa.concat_batches([like.rows.slice(0, 0), *_scan(store, like, slots)])
    if len(rows) != expected:
        raise EnvironmentFault(
            f"of {expected} rows of state '{like.name}', {len(rows)} can be read from {store.directory}: corruption or "
            "a lost file; see that the disk is sound, then restore from a checkpoint"
        )
    return rows


def read_pieces(chunk: FileChunk, piece: int = PIECE, directory: Path | None = None) -> Iterator[Chunk]:
    """Returns chunks of rows with the effect of a chunk of files, for some slots at a time; at least one.

    Each has about `piece` bytes; a slot is never divided, however large it is. Meanwhile the files are linked or
    written to a temporary place in `directory`, which is not needed for files of this process.
    """
    inside = chunk.links.directory.parent if chunk.links and directory is None else directory
    with disk_faults(f"read the files of state '{chunk.name}'"), tempfile.TemporaryDirectory(dir=inside) as place:
        chunk.place_in(Path(place))
        with closing(RowStore(Path(place), _WRITE_BUFFER, compacts=False)) as store:
            for slots in _groups(chunk, piece):
                yield replace(
                    chunk.like, replaced=slots, rows=read_rows(store, chunk.like, slots, chunk.count_in(slots))
                )


def _groups(chunk: FileChunk, piece: int) -> list[SlotSet]:
    """Groups the chunk's slots up to a size."""
    slots = chunk.slots.array
    ends = np.cumsum(chunk.rows_in_slot[slots] * chunk.row_bytes)
    begins = np.concatenate(([0.0], ends[:-1])) if len(slots) else ends
    cuts = np.flatnonzero(np.diff(begins // piece)) + 1
    return [SlotSet(part) for part in np.split(slots, cuts)]


def _scan(store: RowStore, like: Chunk, slots: SlotSet) -> Iterator[pa.RecordBatch]:
    schema, width = like.rows.schema, len(like.identity)
    fields = list(schema)
    codec = RowCodec(pa.schema(fields[:width]), pa.schema(fields[width:]), len(like.keys))
    for first, last in slots.runs():
        for keys, rows in store.scan(*codec.bounds(first, last, like.slot_bits)):
            yield pa.record_batch([*codec.key_columns(keys), *codec.value_columns(rows)], schema=schema)
