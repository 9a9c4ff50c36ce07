"""Chunk: the content of some slots of a container, in full or as changes; the unit of backup and movement."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault, InternalError
from primitives.hashing import hash_keys
from primitives.kernels import kernel
from primitives.routing import places_in, take_rows
from primitives.slots import SlotSet, slots_of

_METADATA = b"seep.chunk"
_TRAILER = b"SEEPCHK1"  # follows the Arrow streams; after it comes their CRC-32

#: Rows are taken one by one, instead of by a filter, if they are fewer than one in this number.
_FEW = 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """State of some slots of one container, under one law for full and incremental chunks:

    new state = (old state minus the `replaced` slots minus the `deleted` rows), then upsert `rows`.

    A full chunk replaces all its slots. Containers write key columns normalised (one NaN, no -0.0), so that equal keys
    are equal bytes.
    """

    name: str  #: the container's name within its operator
    version: int  #: the operator's state version
    slot_bits: int
    replaced: SlotSet  #: slots whose earlier content is void
    keys: tuple[str, ...]  #: columns hashed into the slot
    identity: tuple[str, ...]  #: columns that identify a row
    rows: pa.RecordBatch  #: upserts: identity columns and value columns
    deleted: pa.RecordBatch  #: identity columns only
    #: the slots of `rows`, computed at the first request, because parts of a chunk may be requested repeatedly
    _slots: NDArray[np.uint32] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows, deleted = self.rows.schema, self.deleted.schema
        if not set(self.keys) <= set(self.identity) <= set(rows.names):
            raise InternalError(
                f"chunk '{self.name}': keys {self.keys} must be among its identity {self.identity}, "
                f"and the identity among its columns {rows.names}"
            )
        if not deleted.equals(pa.schema([rows.field(column) for column in self.identity])):
            raise InternalError(f"chunk '{self.name}': deleted rows have {deleted}, not the identity columns of {rows}")

    @property
    def nbytes(self) -> int:
        """Bytes of row data, without metadata."""
        return int(self.rows.nbytes + self.deleted.nbytes)

    def slots_of_rows(self) -> NDArray[np.uint32]:
        """The slot of each of `rows`."""
        if self._slots is None:
            object.__setattr__(self, "_slots", self._slots_of(self.rows))
        assert self._slots is not None
        return self._slots

    def select(self, slots: SlotSet) -> Chunk:
        """Returns the part of this chunk for `slots`."""
        return self.split([slots])[0]

    def split(self, parts: Sequence[SlotSet]) -> list[Chunk]:
        """Returns the part of this chunk for each set of slots; hashes each row at most once, in all calls.

        Law: if the parts are disjoint and cover its slots, merging the results gives this chunk's effect.
        """
        rows, deleted = self.slots_of_rows(), self._slots_of(self.deleted)
        return [
            replace(
                self,
                replaced=self.replaced & part,
                rows=_those_in(part.mask(self.slot_bits), self.rows, rows),
                deleted=_those_in(part.mask(self.slot_bits), self.deleted, deleted),
            )
            for part in parts
        ]

    def merge(self, later: Sequence[Chunk]) -> Chunk:
        """One chunk with the effect of this one followed by `later`; see `merge_chunks`."""
        return merge_chunks([self, *later])

    def _slots_of(self, batch: pa.RecordBatch) -> NDArray[np.uint32]:
        return slots_of(hash_keys([batch.column(key) for key in self.keys]), self.slot_bits)

    def _outside(self, slots: SlotSet, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch` whose keys are in none of `slots`."""
        return _filter(batch, ~slots.mask(self.slot_bits)[self._slots_of(batch)]) if slots else batch


def _those_in(mask: NDArray[np.bool_], batch: pa.RecordBatch, slots: NDArray[np.uint32]) -> pa.RecordBatch:
    """Returns the rows whose slots are in a mask."""
    places = places_in(mask, slots)
    if _FEW * len(places) < len(batch):
        return take_rows(batch, places)
    return batch if len(places) == len(batch) else batch.filter(pa.array(mask[slots]))


def _filter(batch: pa.RecordBatch, mask: NDArray[np.bool_]) -> pa.RecordBatch:
    return batch if mask.all() else batch.filter(pa.array(mask))


# --- merging ----------------------------------------------------------------------------------------------------------


def merge_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk with the same effect as applying `chunks` in order: the last word on each row wins.

    Law: restore([merge_chunks(chunks)]) = restore(chunks). Costs a filter of the rows that only one chunk mentions, and
    a look into a hash table for each of the others.
    """
    if not chunks:
        raise InternalError("there is nothing to merge: merge_chunks needs at least one chunk")
    _check_alike(chunks)
    replaced = SlotSet.empty()
    words: list[pa.RecordBatch] = []  # latest first: rows and deletions of each chunk alternate
    for chunk in reversed(chunks):
        words += [chunk._outside(replaced, chunk.rows), chunk._outside(replaced, chunk.deleted)]
        replaced |= chunk.replaced
    rows, deleted = _last_words(words[::-1], chunks[0].identity)
    return replace(chunks[0], replaced=replaced, rows=rows, deleted=chunks[0]._outside(replaced, deleted))


def _check_alike(chunks: Sequence[Chunk]) -> None:
    first = chunks[0]
    for chunk in chunks[1:]:
        for what in ("name", "version", "slot_bits", "keys", "identity"):
            mine, other = getattr(first, what), getattr(chunk, what)
            if mine != other:
                raise InternalError(f"chunks of '{first.name}' differ in {what}: {mine!r} and {other!r} do not merge")
        if not first.rows.schema.equals(chunk.rows.schema):
            raise InternalError(
                f"chunks of '{first.name}' differ in columns: {first.rows.schema} and {chunk.rows.schema} do not merge"
            )


def _last_words(words: Sequence[pa.RecordBatch], identity: Sequence[str]) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Returns the upserts and deletions that no later one overrides, given deletions and rows of chunks in turn."""
    identities = pa.concat_batches([batch.select(identity) for batch in words])
    last = _last_of_each(identities, [len(batch) for batch in words])
    bounds = accumulate(map(len, words), initial=0)
    kept = [_filter(batch, last[start:end]) for batch, (start, end) in zip(words, pairwise(bounds), strict=True)]
    return pa.concat_batches(kept[1::2]), pa.concat_batches(kept[::2])


def _last_of_each(identities: pa.RecordBatch, lengths: Sequence[int]) -> NDArray[np.bool_]:
    """Returns a mask of the rows that no later row equals; rows are distinct within each part of `lengths` rows."""
    hashes = hash_keys(identities.columns)
    few = 2 * max(lengths) > len(hashes)  # with few candidates, the exact check pays
    disputed = np.flatnonzero(_disputed(hashes, lengths)) if few else np.arange(len(hashes))
    heirs = disputed[_last_alike(hashes[disputed])]
    overridden = heirs != disputed
    if not _same_rows(identities, disputed[overridden], heirs[overridden]):  # two keys have one hash
        return _last_of_groups(identities, disputed)
    last = np.ones(len(identities), np.bool_)
    last[disputed[overridden]] = False
    return last


@kernel
def _last_alike(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns for each hash the position of its last occurrence."""
    bits = 1
    while 1 << bits < 2 * len(hashes):
        bits += 1
    table, mask, last = np.zeros(1 << bits, np.int64), (1 << bits) - 1, np.empty(len(hashes), np.int64)
    for at in range(len(hashes) - 1, -1, -1):
        place = np.int64(hashes[at] >> np.uint64(64 - bits))
        while table[place] and hashes[table[place] - 1] != hashes[at]:
            place = (place + 1) & mask
        if not table[place]:
            table[place] = at + 1
        last[at] = table[place] - 1
    return last


def _same_rows(batch: pa.RecordBatch, some: NDArray[np.int64], others: NDArray[np.int64]) -> bool:
    mine, theirs = pa.array(some), pa.array(others)
    return all(_plain(column.take(mine)).equals(_plain(column.take(theirs))) for column in batch.columns)


def _last_of_groups(identities: pa.RecordBatch, disputed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Merges by comparing the rows themselves, without hashes; several times slower."""
    last = np.ones(len(identities), np.bool_)
    last[disputed] = False
    candidates = pa.table(
        [_plain(column) for column in identities.take(pa.array(disputed)).columns], names=identities.schema.names
    ).append_column("ordinal", pa.array(disputed))
    groups = candidates.group_by(identities.schema.names, use_threads=False).aggregate([("ordinal", "max")])
    last[groups.column("ordinal_max").to_numpy()] = True
    return last


def _disputed(hashes: NDArray[np.uint64], lengths: Sequence[int]) -> NDArray[np.bool_]:
    """A mask of the rows whose hash may occur in more than one part; it may hold a few rows too many, never too few.

    It is sized for all but the largest part, so that merging small deltas into a big base costs little more than a look
    at each row of the base.
    """
    bits = min(max(int(len(hashes) - max(lengths)).bit_length() + 5, 10), 24)
    short = (hashes >> np.uint64(64 - bits)).view(np.int64)
    seen, twice = np.zeros(1 << bits, np.bool_), np.zeros(1 << bits, np.bool_)
    for start, end in pairwise(accumulate(lengths, initial=0)):
        part = short[start:end]
        twice[part[seen[part]]] = True
        seen[part] = True
    return twice[short]


def _plain(column: pa.Array) -> pa.Array:
    """Returns the column without dictionary encoding: Arrow cannot group by different dictionaries."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


# --- bytes ------------------------------------------------------------------------------------------------------------


def write_chunk(chunk: Chunk) -> pa.Buffer:
    """The chunk as bytes: an Arrow IPC stream of the rows (metadata in its schema), one of the deletions, and a CRC."""
    sink = pa.BufferOutputStream()
    for batch in (chunk.rows.replace_schema_metadata({_METADATA: _metadata(chunk)}), chunk.deleted):
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
    body = sink.getvalue()
    return pa.py_buffer(b"".join([body, _TRAILER, _checksum(body)]))


def read_chunk(data: pa.Buffer | bytes | memoryview) -> Chunk:
    """The chunk that `write_chunk` wrote; its columns are views of `data`. Damaged bytes raise EnvironmentFault."""
    reader = pa.BufferReader(_checked_body(pa.py_buffer(data)))
    try:
        rows, deleted = _read_batch(reader), _read_batch(reader)
        metadata = json.loads(rows.schema.metadata[_METADATA])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as reason:
        raise EnvironmentFault(f"these bytes are not a chunk, though their checksum holds: {reason!r}") from reason
    return Chunk(
        name=metadata["name"],
        version=metadata["version"],
        slot_bits=metadata["slot_bits"],
        replaced=SlotSet.from_json(metadata["replaced"]),
        keys=tuple(metadata["keys"]),
        identity=tuple(metadata["identity"]),
        rows=rows.replace_schema_metadata(None),
        deleted=deleted,
    )


def _metadata(chunk: Chunk) -> str:
    fields: dict[str, Any] = {
        "name": chunk.name,
        "version": chunk.version,
        "slot_bits": chunk.slot_bits,
        "replaced": chunk.replaced.to_json(),
        "keys": chunk.keys,
        "identity": chunk.identity,
    }
    return json.dumps(fields)


def _checksum(body: pa.Buffer) -> bytes:
    return zlib.crc32(body).to_bytes(4, "little")


def _checked_body(data: pa.Buffer) -> pa.Buffer:
    """Returns the Arrow streams in `data` if their trailer and checksum are right."""
    size = max(data.size - len(_TRAILER) - 4, 0)
    body, trailer = data.slice(0, size), data.slice(size).to_pybytes()
    if trailer[:-4] != _TRAILER:
        raise EnvironmentFault(f"these {data.size} bytes are not a whole chunk: they do not end with its trailer")
    if trailer[-4:] != _checksum(body):
        raise EnvironmentFault(f"a chunk of {data.size} bytes is damaged (its checksum differs); fetch another copy")
    return body


def _read_batch(reader: pa.BufferReader) -> pa.RecordBatch:
    with pa.ipc.open_stream(reader) as stream:
        (batch,) = stream  # reads up to the end of the stream, where the next one starts
        return batch
