"""Blobs: what is stored comes back by slot, other Avro programs understand it, and damage never passes."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.avro_file import Compression
from formats.blob import Blob, avro_name, blob_schema, empty_chunk, read_blob, write_blob
from formats.blob_index import BlobBlock, BlobIndex
from primitives.errors import Damaged, EnvironmentFault, InternalError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.frame import Frame
from tests.strategies import slot_sets

SLOT_BITS = 4
FULL = SlotSet.full(SLOT_BITS)
SCHEMA = pa.schema(
    [("word", pa.string()), ("seq", pa.int64()), ("count", pa.int64()), ("on page", pa.list_(pa.int8()))]
)
IDENTITY = ("word", "seq")

Row = dict[str, Any]

identities = st.tuples(st.none() | st.sampled_from("abcdefghijkl"), st.integers(0, 2))
values = st.tuples(st.none() | st.integers(0, 9), st.none() | st.lists(st.integers(0, 3), max_size=2))
codecs = st.sampled_from(Compression)


def make_chunk(replaced: SlotSet, upserts: dict[Any, Any], deleted: set[Any], slot_bits: int = SLOT_BITS) -> Chunk:
    rows = [dict(zip(SCHEMA.names, (*identity, *rest), strict=True)) for identity, rest in upserts.items()]
    gone = [dict(zip(IDENTITY, identity, strict=True)) for identity in deleted]
    return Chunk(
        name="counts",
        version=3,
        slot_bits=slot_bits,
        replaced=replaced,
        keys=("word",),
        identity=IDENTITY,
        rows=pa.RecordBatch.from_pylist(rows, SCHEMA),
        deleted=pa.RecordBatch.from_pylist(gone, pa.schema([SCHEMA.field(name) for name in IDENTITY])),
    )


chunks = st.builds(
    make_chunk, slot_sets(SLOT_BITS), st.dictionaries(identities, values, max_size=20), st.sets(identities, max_size=8)
)


def content(chunk: Chunk) -> Any:
    """All that a chunk says, without the order of its rows."""
    rest = replace(chunk, rows=chunk.rows[:0], deleted=chunk.deleted[:0])
    return (
        (rest.name, rest.version, rest.slot_bits, rest.replaced, rest.keys, rest.identity, chunk.rows.schema),
        sorted(map(repr, chunk.rows.to_pylist())),
        sorted(map(repr, chunk.deleted.to_pylist())),
    )


def data_of(blob: Blob) -> bytes:
    return b"".join(blob.parts)


def read(data: bytes, index: BlobIndex, slots: SlotSet = FULL) -> Chunk:
    pieces = [data[start : start + length] for start, length in index.ranges(slots)]
    return read_blob(index, slots, pieces, "orders/12/counter/0-counts")


def numbers(rows: int, slot_bits: int = 8) -> Chunk:
    """A frame's chunk of so many keys."""
    frame = Frame("totals", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=slot_bits)
    frame.put({"id": np.arange(rows)}, n=np.arange(rows) % 7)
    return frame.snapshot(SlotSet.full(slot_bits))


# --- there and back ---------------------------------------------------------------------------------------------------


@given(chunks, codecs, st.sampled_from([1, 200, 1 << 20]))
def test_a_chunk_comes_back_whole(chunk: Chunk, codec: Compression, group_bytes: int) -> None:
    blob = write_blob(chunk, codec, group_bytes=group_bytes)
    assert content(read(data_of(blob), blob.index)) == content(chunk)


@given(chunks, codecs, slot_sets(SLOT_BITS), st.sampled_from([1, 200]))
def test_some_slots_are_read_as_if_they_were_selected(
    chunk: Chunk, codec: Compression, slots: SlotSet, group: int
) -> None:
    blob = write_blob(chunk, codec, group_bytes=group)
    assert content(read(data_of(blob), blob.index, slots)) == content(chunk.select(slots))


@given(chunks, st.sampled_from([1, 200, 1 << 20]))
def test_blocks_are_in_the_order_of_slots_and_make_up_the_blob(chunk: Chunk, group_bytes: int) -> None:
    blob = write_blob(chunk, group_bytes=group_bytes)
    bounds = [bound for block in blob.index.blocks for bound in (block.first, block.last + 1)]
    assert bounds == sorted(bounds)
    assert blob.index.size == len(data_of(blob))
    assert blob.index.rows == len(chunk.rows) + len(chunk.deleted)


@given(chunks)
def test_the_same_chunk_makes_the_same_bytes(chunk: Chunk) -> None:
    assert data_of(write_blob(chunk)) == data_of(write_blob(chunk))


def test_columns_of_a_batch_that_is_part_of_a_larger_one_are_written_as_they_are() -> None:
    whole = make_chunk(FULL, {(str(n), n % 3): (n, [n % 5]) for n in range(50)}, set())
    part = replace(whole, rows=whole.rows.slice(13, 30))
    blob = write_blob(part, group_bytes=1)
    assert content(read(data_of(blob), blob.index)) == content(part)


@pytest.mark.parametrize("slot_bits", [0, 1, 20])
def test_a_blob_has_any_number_of_slots(slot_bits: int) -> None:
    chunk = make_chunk(SlotSet.full(slot_bits), {(str(n), 0): (n, None) for n in range(50)}, {("x", 1)}, slot_bits)
    blob = write_blob(chunk)
    assert content(read(data_of(blob), blob.index, SlotSet.full(slot_bits))) == content(chunk)


def test_a_chunk_that_says_nothing_is_a_blob_too() -> None:
    nothing = make_chunk(SlotSet.empty(), {}, set())
    blob = write_blob(nothing)
    assert blob.index.blocks == ()
    assert content(read(data_of(blob), blob.index)) == content(nothing)


# --- ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot_bits", [8, 12])
def test_a_sixteenth_of_the_slots_is_about_a_sixteenth_of_the_bytes(slot_bits: int) -> None:
    blob = write_blob(numbers(300_000, slot_bits))
    sixteenth = (1 << slot_bits) // 16
    for part in range(16):
        slots = SlotSet.range(part * sixteenth, (part + 1) * sixteenth - 1)
        assert sum(place.length for place in blob.index.ranges(slots)) <= 1.3 / 16 * blob.index.size


def test_blocks_next_to_each_other_are_read_at_once() -> None:
    index = write_blob(numbers(300_000)).index
    assert [place.length for place in index.ranges(SlotSet.full(8))] == [index.size]
    assert len(index.ranges(SlotSet.range(100, 130))) == 2  # the header, and they


def test_blocks_near_each_other_are_read_at_once() -> None:
    near = BlobIndex(header=10, header_crc=0, blocks=tuple(BlobBlock(slot, slot, 100, 0, 1) for slot in range(5)))
    assert [tuple(place) for place in near.ranges(SlotSet([2, 4]))] == [(0, 510)]


def test_small_slots_share_a_block_and_large_ones_do_not() -> None:
    chunk = make_chunk(FULL, {(str(n), 0): (n, None) for n in range(100)}, set())
    assert len(write_blob(chunk).index.blocks) == 1
    assert len(write_blob(chunk, group_bytes=1).index.blocks) == len(FULL)


# --- other Avro programs ----------------------------------------------------------------------------------------------


@given(chunks, st.sampled_from([Compression.NONE, Compression.DEFLATE]))
def test_fastavro_reads_a_blob(chunk: Chunk, codec: Compression) -> None:
    records: Any = list(fastavro.reader(BytesIO(data_of(write_blob(chunk, codec, group_bytes=1)))))
    assert sum(record["row_count"] for record in records) == len(chunk.rows)
    assert sum(record["deleted_count"] for record in records) == len(chunk.deleted)
    found = np.concatenate([np.frombuffer(record["rows"]["seq"], np.int64) for record in records] or [np.empty(0)])
    assert sorted(found) == sorted(chunk.rows.column("seq").to_pylist())


def test_fastavro_resolves_columns_of_a_blob_as_fields() -> None:
    chunk = make_chunk(FULL, {("a", 0): (7, None)}, set())
    declared: Any = blob_schema(chunk)
    del declared["slot_bits"]
    rows = next(field["type"] for field in declared["fields"] if field["name"] == "rows")
    rows["fields"] = [
        {"name": "n", "type": "bytes", "aliases": ["count"]},
        {"name": "added", "type": "bytes", "default": "none"},
    ]
    (record,) = list(fastavro.reader(BytesIO(data_of(write_blob(chunk))), declared))
    found: Any = record
    assert found["rows"] == {"n": (7).to_bytes(8, "little"), "added": "none"}  # a default, as fastavro returns it


@given(st.text(max_size=6), st.text(max_size=6))
def test_different_columns_have_different_names_that_avro_allows(one: str, other: str) -> None:
    fastavro.parse_schema({"type": "record", "name": "Rows", "fields": [{"name": avro_name(one), "type": "int"}]})
    assert (avro_name(one) == avro_name(other)) == (one == other)


@given(chunks)
def test_a_schema_tells_all_of_a_chunk_but_its_content(chunk: Chunk) -> None:
    bare = make_chunk(SlotSet.empty(), {}, set())
    assert content(empty_chunk(blob_schema(chunk))) == content(bare)


# --- damage -----------------------------------------------------------------------------------------------------------

WHOLE = make_chunk(FULL - SlotSet([2]), {(str(n), n % 3): (n, [n % 5]) for n in range(20)}, {("x", 0), ("y", 1)})
STORED = {codec: write_blob(WHOLE, codec, group_bytes=200) for codec in Compression}


def test_every_flipped_bit_is_found_and_the_blob_is_named() -> None:
    blob = STORED[Compression.NONE]
    data = bytearray(data_of(blob))
    for place in range(len(data)):
        data[place] ^= 1 << place % 8
        with pytest.raises(EnvironmentFault, match="orders/12/counter/0-counts is damaged"):
            read(bytes(data), blob.index)
        data[place] ^= 1 << place % 8


@given(codecs, st.data())
def test_what_is_read_of_a_damaged_blob_is_right_or_an_error(codec: Compression, draw: st.DataObject) -> None:
    blob = STORED[codec]
    data, slots = bytearray(data_of(blob)), draw.draw(slot_sets(SLOT_BITS))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        found = read(bytes(data), blob.index, slots)
    except EnvironmentFault:
        return
    assert content(found) == content(WHOLE.select(slots))


@given(codecs, st.data())
def test_a_blob_that_was_cut_is_found(codec: Compression, draw: st.DataObject) -> None:
    blob = STORED[codec]
    data = data_of(blob)
    end = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(EnvironmentFault, match=r"0-counts is damaged: of the \d+ bytes from 0 on there are"):
        read(data[:end], blob.index)


@given(codecs, st.data())
def test_a_blob_in_place_of_another_is_found(codec: Compression, draw: st.DataObject) -> None:
    other = data_of(write_blob(draw.draw(chunks), codec, group_bytes=200))
    blob = STORED[codec]
    with pytest.raises(EnvironmentFault, match="0-counts is damaged"):
        read(other.ljust(blob.index.size, b"\0"), blob.index)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"keys": ["nothing"]},
        {"keys": 7},
        {"slot_bits": 99},
        {"fields": []},
        {"fields": None},
        {"version": "three"},
    ],
    ids=repr,
)
def test_a_schema_of_something_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Damaged, match="schema"):
        empty_chunk({**blob_schema(WHOLE), **change})


def test_pieces_that_were_not_asked_for_are_refused() -> None:
    with pytest.raises(InternalError, match="2 pieces were read, and 1 ranges are needed"):
        read_blob(STORED[Compression.NONE].index, FULL, [b"", b""], "counts")
