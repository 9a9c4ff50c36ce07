"""Blob: a chunk in storage. Some of its slots can be read without the others, and newer code can read older blobs.

A blob is an Avro object container file. Each of its records has all state of some neighbouring slots: those of them
that the chunk replaces, its rows, and its deletions. There is one Avro field for each column, whose value is the column
as bytes. So Avro's rules for fields apply to columns, and bytes are copied at the speed of memory.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats.avro_file import (
    Compression,
    Cursor,
    Header,
    Piece,
    encode_long,
    frame_block,
    new_header,
    read_block,
    read_header,
    write_header,
)
from formats.blob_index import BlobBlock, BlobIndex, ByteRange
from formats.column_bytes import layout_of, read_column, write_column
from formats.regroup import regrouped, sizes_of
from primitives.errors import Damaged, InternalError, UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, check_slot_bits, slots_of
from primitives.state.chunk import Chunk

#: Slots are combined into one record up to about this many bytes.
GROUP_BYTES = 1 << 20
#: A blob has about this many records, unless they would become too small.
_RECORDS, _LEAST = 256, 1 << 14

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of a blob, in parts that are mostly views of the chunk, and its index."""

    parts: list[Piece]
    index: BlobIndex
    schema: dict[str, Any]  #: Avro's schema, as in the header


# --- writing ----------------------------------------------------------------------------------------------------------


def write_blob(chunk: Chunk, codec: Compression = Compression.NONE, *, group_bytes: int = GROUP_BYTES) -> Blob:
    """Writes a chunk as a blob. Costs a hash of each row, one copy of the rows to group them by slot, and a checksum.

    >>> from primitives.state.values import Values
    >>> counts = Values("counts", keys={"word": pa.string()}, slot_bits=3, value=pa.int64())
    >>> counts["to"] = counts["be"] = 1
    >>> blob = write_blob(counts.snapshot(SlotSet.full(3)))
    >>> data = b"".join(blob.parts)
    >>> pieces = [data[start : start + length] for start, length in blob.index.ranges(SlotSet([5]))]
    >>> read_blob(blob.index, SlotSet([5]), pieces, "counts").rows.to_pylist()
    [{'word': 'to', 'value': 1}]
    """
    schema = blob_schema(chunk)
    header = new_header(schema, codec)
    head = write_header(header)
    parts: list[Piece] = [head]
    blocks = []
    for record in _records(chunk, group_bytes):
        framed = frame_block(header, 1, record.encoded())
        blocks.append(BlobBlock(record.first, record.last, sum(map(len, framed)), _crc(framed), record.size))
        parts += framed
    return Blob(parts, BlobIndex(header=len(head), header_crc=_crc([head]), blocks=tuple(blocks)), schema)


def _crc(parts: Sequence[Piece]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


class _Record(NamedTuple):
    """Some neighbouring slots of a chunk."""

    first: int
    last: int
    replaced: SlotSet
    rows: pa.RecordBatch
    deleted: pa.RecordBatch

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.deleted)

    def encoded(self) -> list[Piece]:
        """Returns the record in Avro's encoding, in parts."""
        runs = [bound for run in self.replaced.runs() for bound in run]
        head = [self.first, self.last, *([len(runs), *runs, 0] if runs else [0])]
        return [b"".join(map(encode_long, head)), *_encoded(self.rows), *_encoded(self.deleted)]


def _encoded(batch: pa.RecordBatch) -> Iterator[Piece]:
    yield encode_long(len(batch))
    for column in batch.columns:
        parts = write_column(column)
        yield encode_long(sum(map(len, parts)))
        yield from parts


def _records(chunk: Chunk, group_bytes: int) -> Iterator[_Record]:
    """Divides the chunk by groups of slots, in order."""
    rows, deleted = _BySlot(chunk, chunk.rows), _BySlot(chunk, chunk.deleted)
    weights = rows.weights + deleted.weights
    used = np.flatnonzero((weights > 0) | chunk.replaced.mask(chunk.slot_bits))
    groups = _groups(weights[used], group_bytes)
    firsts = used[np.flatnonzero(np.diff(groups, prepend=-1))].tolist()
    lasts = used[np.flatnonzero(np.diff(groups, append=-1))].tolist()
    group_of_slot = np.zeros(1 << chunk.slot_bits, np.int32)
    group_of_slot[used] = groups
    parts = zip(firsts, lasts, rows.parts(group_of_slot), deleted.parts(group_of_slot), strict=False)
    for first, last, row_part, deleted_part in parts:
        yield _Record(first, last, chunk.replaced & SlotSet.range(first, last), row_part, deleted_part)


class _BySlot:
    """The rows of a batch by slot."""

    def __init__(self, chunk: Chunk, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._slots = slots_of(hash_keys([batch.column(key) for key in chunk.keys]), chunk.slot_bits)
        self._sizes = sizes_of(self._slots, 1 << chunk.slot_bits)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Returns approximate bytes of each slot; each row counts, even if it takes none."""
        return self._sizes * np.float64(self._batch.nbytes / max(len(self._batch), 1) + 1)

    def parts(self, group_of_slot: NDArray[np.int32]) -> list[pa.RecordBatch]:
        """Returns the rows of each group of slots."""
        sizes = np.bincount(group_of_slot, self._sizes).astype(np.int64)
        whole = regrouped(self._batch, group_of_slot[self._slots], sizes)
        starts = np.cumsum(sizes) - sizes
        return [whole.slice(start, size) for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]


def _groups(weights: NDArray[np.float64], group_bytes: int) -> NDArray[np.int32]:
    """Returns the group of each slot; groups are numbered in order, without gaps."""
    ends = np.cumsum(weights)
    total = ends[-1] if len(ends) else 0
    size = min(group_bytes, max(total / _RECORDS, _LEAST))
    begins = np.floor((ends - weights) / size)
    return np.cumsum(np.diff(begins, prepend=begins[:1]) > 0, dtype=np.int32)


# --- schemas ----------------------------------------------------------------------------------------------------------


def blob_schema(chunk: Chunk) -> dict[str, Any]:
    """Returns the Avro schema of blobs of chunks like this one; the same for all chunks of a container."""
    return {
        "type": "record",
        "name": "seep.Slots",
        "format": _FORMAT,
        "container": chunk.name,
        "version": chunk.version,
        "slot_bits": chunk.slot_bits,
        "keys": list(chunk.keys),
        "fields": [
            {"name": "first_slot", "type": "long"},
            {"name": "last_slot", "type": "long"},
            {"name": "replaced", "type": {"type": "array", "items": "long"}},
            {"name": "row_count", "type": "long"},
            {"name": "rows", "type": _record_schema("seep.Rows", chunk.rows.schema)},
            {"name": "deleted_count", "type": "long"},
            {"name": "deleted", "type": _record_schema("seep.Deleted", chunk.deleted.schema)},
        ],
    }


def _record_schema(name: str, columns: pa.Schema) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field_schema(field) for field in columns]}


def _field_schema(field: pa.Field) -> dict[str, str]:
    return {
        "name": avro_name(field.name),
        "type": "bytes",
        "layout": layout_of(field.type).name,
        "arrow": str(field.type),
        "arrow_field": base64.b64encode(pa.schema([field]).serialize()).decode(),
    }


def avro_name(column: str) -> str:
    """Returns a column's name in Avro's syntax; different names stay different.

    >>> avro_name("page_views"), avro_name("page views"), avro_name("7")
    ('page_views', 'page__20_views', '__37_')
    """
    return re.sub(r"[^A-Za-z0-9_]|^[0-9]|_(?=_)", lambda found: f"__{ord(found[0]):x}_", column) or "__"


def empty_chunk(schema: Mapping[str, Any]) -> Chunk:
    """Returns the chunk without rows whose blobs have this schema."""
    try:
        return _empty_chunk(schema)
    except (LookupError, TypeError, ValueError, OSError, pa.ArrowException, InternalError, UserError) as reason:
        raise Damaged(f"its schema is not one of state: {reason!r}") from reason


def _empty_chunk(schema: Mapping[str, Any]) -> Chunk:
    if schema["format"] != _FORMAT:
        raise ValueError(f"its format is {schema['format']}, and only {_FORMAT} is known")
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    if list(fields) != _FIELDS:
        raise ValueError(f"its fields are {list(fields)}, and not {_FIELDS}")
    rows, deleted = _columns(fields["rows"]), _columns(fields["deleted"])
    return Chunk(
        name=str(schema["container"]),
        version=int(schema["version"]),
        slot_bits=check_slot_bits(int(schema["slot_bits"])),
        replaced=SlotSet.empty(),
        keys=tuple(schema["keys"]),
        identity=tuple(deleted.names),
        rows=pa.RecordBatch.from_pylist([], rows),
        deleted=pa.RecordBatch.from_pylist([], deleted),
    )


_FIELDS = ["first_slot", "last_slot", "replaced", "row_count", "rows", "deleted_count", "deleted"]


def _columns(record: Mapping[str, Any]) -> pa.Schema:
    serialized = [base64.b64decode(field["arrow_field"]) for field in record["fields"]]
    return pa.schema([pa.ipc.read_schema(pa.py_buffer(data)).field(0) for data in serialized])


# --- reading ----------------------------------------------------------------------------------------------------------


def read_blob(index: BlobIndex, slots: SlotSet, pieces: Sequence[Piece], name: str) -> Chunk:
    """Reads the part of a blob for `slots` from the bytes of `index.ranges(slots)`; costs one copy and a checksum.

    Law: it has the effect of `chunk.select(slots)`. Damaged bytes raise EnvironmentFault with the blob's `name`.
    """
    with _naming(name):
        window = _Window(index.ranges(slots), pieces)
        head = window.bytes(ByteRange(0, index.header))
        if _crc([head]) != index.header_crc:
            raise Damaged("its header has another checksum")
        header = read_header(Cursor(head))
        like = empty_chunk(header.schema)
        wanted = list(index.where(slots))
        records = [each for block, place in wanted for each in _in_block(header, like, block, window.bytes(place))]
        chunk = _assembled(like, records)
    return chunk if all(block.slots <= slots for block, _ in wanted) else chunk.select(slots)


@contextmanager
def _naming(blob: str) -> Iterator[None]:
    try:
        yield
    except Damaged as reason:
        raise Damaged(f"{blob} is damaged: {reason}") from reason


class _Window:
    """The ranges of a blob that were read."""

    def __init__(self, ranges: Sequence[ByteRange], pieces: Sequence[Piece]) -> None:
        if len(ranges) != len(pieces):
            raise InternalError(f"{len(pieces)} pieces were read, and {len(ranges)} ranges are needed")
        for place, piece in zip(ranges, pieces, strict=True):
            if len(piece) != place.length:
                raise Damaged(f"of the {place.length} bytes from {place.start} on there are {len(piece)}")
        self._pieces = [(place, memoryview(piece)) for place, piece in zip(ranges, pieces, strict=True)]

    def bytes(self, wanted: ByteRange) -> memoryview:
        """Returns the bytes of a range, which lies within one of those."""
        place, piece = next(each for each in self._pieces if each[0].start <= wanted.start < each[0].end)
        return piece[wanted.start - place.start : wanted.end - place.start]


class _Stored(NamedTuple):
    """A stored record, with its columns as bytes."""

    first: int
    last: int
    replaced: SlotSet
    row_count: int
    rows: list[memoryview]
    deleted_count: int
    deleted: list[memoryview]


def _in_block(header: Header, like: Chunk, block: BlobBlock, data: memoryview) -> list[_Stored]:
    if _crc([data]) != block.crc:
        raise Damaged(f"what it holds of {block.slots} has another checksum")
    cursor = Cursor(data)
    count, body = read_block(header, cursor)
    cursor.finish()
    inside = Cursor(body)
    records = [_decoded(like, inside) for _ in range(count)]
    inside.finish()
    return records


def _decoded(like: Chunk, cursor: Cursor) -> _Stored:
    first, last, runs = cursor.count(), cursor.count(), cursor.longs()
    row_count, rows = cursor.count(), [cursor.bytes() for _ in like.rows.schema]
    deleted_count, deleted = cursor.count(), [cursor.bytes() for _ in like.deleted.schema]
    replaced = _slots_of_runs(runs)
    if not first <= last < 1 << like.slot_bits or not replaced <= SlotSet.range(first, last):
        raise Damaged(f"a record of slots {first} to {last} replaces {replaced}")
    return _Stored(first, last, replaced, row_count, rows, deleted_count, deleted)


def _slots_of_runs(bounds: list[int]) -> SlotSet:
    try:
        return SlotSet.from_json(list(zip(bounds[::2], bounds[1::2], strict=True)))
    except (UserError, ValueError) as reason:
        raise Damaged(f"a record replaces slots that are none: {reason}") from reason


def _assembled(like: Chunk, records: Sequence[_Stored]) -> Chunk:
    replaced = SlotSet.empty()
    for record in records:
        replaced |= record.replaced
    rows = _batch(like.rows.schema, [record.rows for record in records], [record.row_count for record in records])
    gone = [record.deleted for record in records], [record.deleted_count for record in records]
    return replace(like, replaced=replaced, rows=rows, deleted=_batch(like.deleted.schema, *gone))


def _batch(schema: pa.Schema, records: list[list[memoryview]], counts: list[int]) -> pa.RecordBatch:
    pieces = zip(*records, strict=True) if records else [()] * len(schema)
    columns = [read_column(field.type, list(column), counts) for field, column in zip(schema, pieces, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
