"""The law of Chunk, and that merging, splitting and writing keep it."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, InternalError
from primitives.hashing import hash_key
from primitives.slots import SlotSet, slot_of, split_evenly
from primitives.state.chunk import Chunk, merge_chunks, read_chunk, write_chunk

patiently = settings(deadline=None)  # whichever example comes first compiles the hash

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)
SCHEMA = pa.schema([("word", pa.string()), ("seq", pa.int64()), ("count", pa.int64())])
IDENTITY = pa.schema([SCHEMA.field("word"), SCHEMA.field("seq")])

Content = dict[tuple[str | None, int], int]

identities = st.tuples(st.sampled_from(["a", "b", "c", "d", "e", None]), st.integers(0, 2))
slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)


def make_chunk(replaced: SlotSet, upserts: Content, deleted: set[tuple[str | None, int]]) -> Chunk:
    rows = [{"word": word, "seq": seq, "count": count} for (word, seq), count in upserts.items()]
    gone = [{"word": word, "seq": seq} for word, seq in sorted(deleted, key=repr)]
    return Chunk(
        name="counts",
        version=3,
        slot_bits=SLOT_BITS,
        replaced=replaced,
        keys=("word",),
        identity=("word", "seq"),
        rows=pa.RecordBatch.from_pylist(rows, SCHEMA),
        deleted=pa.RecordBatch.from_pylist(gone, IDENTITY),
    )


chunks = st.builds(make_chunk, slot_sets, st.dictionaries(identities, st.integers(0, 9)), st.sets(identities))


def apply(content: Content, chunk: Chunk) -> Content:
    """The law of Chunk, row by row."""
    gone = {tuple(row.values()) for row in chunk.deleted.to_pylist()}
    kept = {
        (word, seq): count
        for (word, seq), count in content.items()
        if slot_of(hash_key(word), SLOT_BITS) not in chunk.replaced and (word, seq) not in gone
    }
    return kept | {(row["word"], row["seq"]): row["count"] for row in chunk.rows.to_pylist()}


def apply_all(content: Content, parts: list[Chunk]) -> Content:
    for part in parts:
        content = apply(content, part)
    return content


contents = st.dictionaries(identities, st.integers(10, 19))


@patiently
@given(contents, st.lists(chunks, min_size=1, max_size=5))
def test_merging_has_the_effect_of_applying_one_by_one(content: Content, parts: list[Chunk]) -> None:
    assert apply(content, merge_chunks(parts)) == apply_all(content, parts)


@patiently
@given(st.lists(chunks, min_size=3, max_size=3))
def test_merging_is_associative(parts: list[Chunk]) -> None:
    first, second, third = parts
    left, right = first.merge([second]).merge([third]), first.merge([second.merge([third])])
    assert left.replaced == right.replaced
    assert apply({}, left) == apply({}, right)


@patiently
@given(st.lists(chunks, min_size=1, max_size=5))
def test_a_merged_chunk_mentions_each_row_once(parts: list[Chunk]) -> None:
    merged = merge_chunks(parts)
    mentioned = merged.rows.select(IDENTITY.names).to_pylist() + merged.deleted.to_pylist()
    assert len(mentioned) == len({tuple(row.values()) for row in mentioned})


@patiently
@given(st.lists(chunks, min_size=1, max_size=5))
def test_a_merged_chunk_deletes_nothing_in_slots_it_replaces(parts: list[Chunk]) -> None:
    merged = merge_chunks(parts)
    assert not len(merged.select(merged.replaced).deleted)


def test_merging_a_small_delta_into_a_large_base_finds_every_repeated_row() -> None:
    words = [f"word {n}" for n in range(20_000)]
    base = make_chunk(FULL, {(word, 0): 1 for word in words}, set())
    delta = make_chunk(SlotSet.empty(), {(word, 0): 2 for word in words[::7]}, {(word, 0) for word in words[1::7]})
    counts = merge_chunks([base, delta]).rows.column("count").to_pylist()
    assert counts.count(2) == len(words[::7])
    assert counts.count(1) == len(words) - len(words[::7]) - len(words[1::7])


def test_columns_with_different_dictionaries_merge() -> None:
    def encoded(words: list[str]) -> Chunk:
        chunk = make_chunk(SlotSet.empty(), {(word, 0): len(word) for word in words}, set())
        schema = SCHEMA.set(0, pa.field("word", pa.dictionary(pa.int32(), pa.string())))
        return replace(chunk, rows=chunk.rows.cast(schema), deleted=chunk.deleted.cast(pa.schema(list(schema)[:2])))

    merged = merge_chunks([encoded(["a", "bb"]), encoded(["bb", "ccc"])])
    assert sorted(merged.rows.column("word").to_pylist()) == ["a", "bb", "ccc"]


@patiently
@given(chunks, st.integers(1, 4))
def test_parts_are_disjoint_and_cover_the_chunk(chunk: Chunk, parts: int) -> None:
    cut = chunk.split(split_evenly(FULL, parts))
    assert sum(len(part.rows) for part in cut) == len(chunk.rows)
    assert sum(len(part.deleted) for part in cut) == len(chunk.deleted)
    assert SlotSet([slot for part in cut for slot in part.replaced]) == chunk.replaced
    for part, slots in zip(cut, split_evenly(FULL, parts), strict=True):
        assert SlotSet(part.slots_of_rows()) <= slots


@patiently
@given(contents, chunks, st.integers(1, 4))
def test_merging_the_parts_gives_the_chunk_again(content: Content, chunk: Chunk, parts: int) -> None:
    merged = merge_chunks(chunk.split(split_evenly(FULL, parts)))
    assert merged.replaced == chunk.replaced
    assert apply(content, merged) == apply(content, chunk)


@patiently
@given(chunks)
def test_what_is_written_is_read_again(chunk: Chunk) -> None:
    assert read_chunk(write_chunk(chunk)) == chunk
    assert read_chunk(write_chunk(chunk).to_pybytes()) == chunk


@patiently
@given(chunks, st.data())
def test_any_damaged_byte_is_noticed(chunk: Chunk, data: st.DataObject) -> None:
    written = bytearray(write_chunk(chunk))
    written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(EnvironmentFault, match=r"damaged|not a whole chunk"):
        read_chunk(bytes(written))


@patiently
@given(chunks, st.data())
def test_missing_bytes_are_noticed(chunk: Chunk, data: st.DataObject) -> None:
    written = write_chunk(chunk).to_pybytes()
    with pytest.raises(EnvironmentFault, match="whole chunk"):
        read_chunk(written[: data.draw(st.integers(0, len(written) - 1))])


def test_bytes_that_are_no_chunk_are_refused_though_their_checksum_holds() -> None:
    written = write_chunk(make_chunk(FULL, {}, set())).to_pybytes()
    other = pa.BufferOutputStream()
    with pa.ipc.new_stream(other, SCHEMA) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist([], SCHEMA))
    body = other.getvalue().to_pybytes()
    with pytest.raises(EnvironmentFault, match="not a chunk"):
        read_chunk(body + written[-12:-4] + zlib.crc32(body).to_bytes(4, "little"))


def test_a_chunk_is_read_without_a_copy() -> None:
    data = write_chunk(make_chunk(FULL, {("a", seq): seq for seq in range(1000)}, set()))
    values = read_chunk(data).rows.column("count").buffers()[1]
    assert data.address <= values.address < data.address + data.size


def test_other_programs_can_read_the_rows_of_a_written_chunk() -> None:
    data = write_chunk(make_chunk(FULL, {("a", 1): 5}, set()))
    with pa.ipc.open_stream(data) as stream:
        assert stream.read_all().to_pylist() == [{"word": "a", "seq": 1, "count": 5}]


def test_the_slot_of_a_row_comes_from_its_key_columns_alone() -> None:
    chunk = make_chunk(FULL, {("a", 0): 1, ("a", 1): 1}, set())
    assert np.unique(chunk.slots_of_rows()).tolist() == [slot_of(hash_key("a"), SLOT_BITS)]


def test_nbytes_counts_rows_and_deletions() -> None:
    chunk = make_chunk(FULL, {("a", 0): 1}, {("b", 0)})
    assert chunk.nbytes == chunk.rows.nbytes + chunk.deleted.nbytes > 0


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(InternalError, match="at least one chunk"):
        merge_chunks([])


@pytest.mark.parametrize(("field", "value"), [("name", "sums"), ("version", 4), ("slot_bits", 3), ("keys", ("seq",))])
def test_chunks_of_different_state_do_not_merge(field: str, value: object) -> None:
    chunk = make_chunk(FULL, {("a", 0): 1}, set())
    with pytest.raises(InternalError, match=f"differ in {field}"):
        merge_chunks([chunk, replace(chunk, **{field: value})])


def test_chunks_with_different_columns_do_not_merge() -> None:
    chunk = make_chunk(FULL, {("a", 0): 1}, set())
    with pytest.raises(InternalError, match="differ in columns"):
        merge_chunks([chunk, replace(chunk, rows=chunk.rows.append_column("more", pa.array([1])))])


def test_a_chunk_whose_deletions_are_not_identities_is_refused() -> None:
    chunk = make_chunk(FULL, {}, set())
    with pytest.raises(InternalError, match="not the identity columns"):
        replace(chunk, deleted=chunk.rows)


def test_a_chunk_whose_key_is_not_part_of_its_identity_is_refused() -> None:
    with pytest.raises(InternalError, match="must be among its identity"):
        replace(make_chunk(FULL, {}, set()), keys=("count",))


def test_rows_that_equal_nothing_by_value_are_still_told_apart_by_what_they_are() -> None:
    """NaN is not even itself, so what a look at equal hashes cannot confirm has to be grouped."""
    schema = pa.schema([("x", pa.float64()), ("n", pa.int64())])
    chunks = [
        replace(
            make_chunk(SlotSet.empty(), {}, set()),
            keys=("x",),
            identity=("x",),
            rows=pa.RecordBatch.from_pylist([{"x": float("nan"), "n": n}, {"x": 1.0, "n": -n}], schema),
            deleted=pa.RecordBatch.from_pylist([], pa.schema([schema.field("x")])),
        )
        for n in (1, 2)
    ]
    assert sorted(merge_chunks(chunks).rows["n"].to_pylist()) == [-2, 2]


def test_many_changes_to_few_rows_merge_like_few_changes_to_many() -> None:
    """How the rows in question are found depends on how many there are."""
    base = make_chunk(FULL, {("a", seq): 0 for seq in range(500)}, set())
    for step in (1, 50):
        changes = [make_chunk(SlotSet.empty(), {("a", s): n for s in range(0, 500, step)}, set()) for n in (1, 2, 3)]
        merged = merge_chunks([base, *changes])
        expected = {("a", seq): 0 if seq % step else 3 for seq in range(500)}
        assert {(r["word"], r["seq"]): r["count"] for r in merged.rows.to_pylist()} == expected
