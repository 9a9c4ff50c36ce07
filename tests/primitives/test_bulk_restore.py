"""Frame.restore in bulk: rows of slots that held none are appended, with the effect of putting them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import Damaged, UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet
from primitives.state import frame as frame_module
from primitives.state.budget import MemoryBudget
from primitives.state.chunk import Chunk
from primitives.state.columnar import segments, table
from primitives.state.columnar.index import Index
from primitives.state.frame import Frame
from primitives.state.on_disk.spilling_frame import SpillingFrame
from tests.primitives.frame_machine import content, texts
from tests.primitives.two_instances import FULL, SLOT_BITS

#: All of a hash; slots and one bit of the tag, so that segments overflow; and slots and the bits that segments look at.
MASKS = [2**64 - 1, 0xF << 60 | 1, 0xF << 60 | 0x7]


@contextmanager
def some_bits_of_hashes(mask: int) -> Iterator[None]:
    with mock.patch.object(table, "hash_keys", lambda columns: hash_keys(columns) & np.uint64(mask)):
        yield


# --- next to rows that are put ----------------------------------------------------------------------------------------

Key = tuple[str | None, int | None]
keys = st.lists(st.tuples(texts, st.none() | st.integers(-3, 3)), max_size=30, unique=True)
slot_sets = st.sets(st.integers(0, 2**SLOT_BITS - 1)).map(SlotSet)


def state() -> Frame:
    kinds = {"n": pa.int64(), "text": pa.string()}
    names = {"word": pa.string(), "id": pa.int64()}
    return Frame("seen", names, kinds, slot_bits=SLOT_BITS, defaults={"text": "none so far"})


def columns(given: Sequence[Key]) -> dict[str, pa.Array]:
    kinds = (("word", pa.string()), ("id", pa.int64()))
    return {name: pa.array([key[at] for key in given], kind) for at, (name, kind) in enumerate(kinds)}


def write(frame: Frame, given: Sequence[Key], start: int) -> None:
    some = [None if number % 3 == 0 else f"text number {number}" for number in range(start, start + len(given))]
    frame.put(columns(given), n=np.arange(start, start + len(given)), text=pa.array(some, pa.string()))


def put_all(frame: Frame, chunk: Chunk) -> None:
    """What restoring a chunk means."""
    frame.drop(chunk.replaced)
    frame.delete(chunk.deleted)
    frame.put(chunk.rows, n=chunk.rows["n"], text=chunk.rows["text"])


def held(frame: Frame) -> tuple[Any, ...]:
    return content(frame.to_arrow(), 2), frame.rows_per_slot().tolist(), len(frame)


def all_that_shows(frame: Frame) -> tuple[Any, ...]:
    delta = frame.snapshot(FULL, since=0)
    return *held(frame), delta.replaced, content(delta.rows, 2), set(content(delta.deleted, 2)), frame.changed(0)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(MASKS), st.integers(1, 12))
def test_restoring_has_the_effect_of_putting(data: st.DataObject, mask: int, part: int) -> None:
    """A base and a delta, into frames that hold other rows and gaps; also after later deletions and growth."""
    with some_bits_of_hashes(mask), mock.patch.object(frame_module, "_PART", part):
        restored, put = state(), state()
        there, gone = data.draw(keys), data.draw(keys)
        for frame in (restored, put):
            write(frame, there, 0)
            frame.delete(columns(gone))
            frame.mark(0)
        chunks = base_and_delta(data)
        restored.restore(chunks)
        for chunk in chunks:
            put_all(put, chunk)
        assert all_that_shows(restored) == all_that_shows(put)
        deleted, more = data.draw(keys), data.draw(keys)
        assert restored.delete(columns(deleted)) == put.delete(columns(deleted))
        for frame in (restored, put):
            write(frame, more, 300)
        assert all_that_shows(restored) == all_that_shows(put)
        restored._compact(np.empty(0, np.int64))
        assert all_that_shows(restored) == all_that_shows(put)


def base_and_delta(data: st.DataObject) -> list[Chunk]:
    """Of some slots, as a handover sends them."""
    source, slots = state(), data.draw(slot_sets)
    write(source, data.draw(keys), 100)
    source.mark(1)
    base = source.snapshot(slots)
    source.drop(data.draw(slot_sets))
    write(source, data.draw(keys), 200)
    source.delete(columns(data.draw(keys)))
    return [base, source.snapshot(FULL, since=1).select(slots)]


# --- at some size -----------------------------------------------------------------------------------------------------


def grown(first: int, end: int, **options: Any) -> Frame:
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, **options)
    frame.put(np.arange(first, end), n=np.arange(first, end))
    return frame


def check_holds(frame: Frame, first: int, end: int) -> None:
    values, found = frame.get(np.arange(first, end))
    assert found.all()
    assert (values["n"].to_numpy() == np.arange(first, end)).all()
    assert not frame.get(np.arange(end, end + end - first))[1].any()


def test_every_key_is_found_after_a_restore_and_after_growth_and_deletions() -> None:
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()})
    frame.restore([grown(0, 200_000).snapshot(SlotSet.full(8))])
    check_holds(frame, 0, 200_000)
    frame.put(np.arange(200_000, 300_000), n=np.arange(200_000, 300_000))
    check_holds(frame, 0, 300_000)
    assert frame.delete(np.arange(100_000)) == 100_000
    check_holds(frame, 100_000, 300_000)
    assert not frame.get(np.arange(100_000))[1].any()


def test_slots_that_arrive_one_after_another_make_the_whole() -> None:
    source, frame = (
        grown(0, 100_000, slot_bits=SLOT_BITS),
        Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=SLOT_BITS),
    )
    for slot in range(1 << SLOT_BITS):
        frame.restore([source.snapshot(SlotSet([slot]))])
    check_holds(frame, 0, 100_000)
    assert frame.rows_per_slot().tolist() == source.rows_per_slot().tolist()


def test_rows_of_empty_slots_are_not_looked_for_one_by_one() -> None:
    frame, chunk = grown(0, 0), grown(0, 1000).snapshot(SlotSet.full(8))
    with mock.patch.object(Index, "locate", side_effect=AssertionError("a key was looked for")):
        frame._upsert(chunk.rows)
    check_holds(frame, 0, 1000)


def test_segments_are_made_ahead_and_hardly_any_is_split_again() -> None:
    frame = grown(0, 0)
    frame._index.make_room(500_000)
    ahead = int(frame._index._counts[segments.SEGMENTS])
    frame.restore([grown(0, 500_000).snapshot(SlotSet.full(8))])
    assert ahead <= int(frame._index._counts[segments.SEGMENTS]) <= 1.02 * ahead
    assert 0.3 < len(frame) / (ahead * segments.PLACES) < 0.75


def test_room_is_made_in_an_index_that_holds_keys_with_one_hash_only() -> None:
    with some_bits_of_hashes(0xF << 60):
        frame = grown(0, 3000)
        frame._index.make_room(10_000)
        check_holds(frame, 0, 3000)


def test_slots_that_are_on_disk_do_not_count_as_empty(tmp_path: Path) -> None:
    kinds = {"id": pa.int64()}, {"n": pa.int64()}
    with closing(SpillingFrame("counts", *kinds, budget=MemoryBudget(1 << 20), directory=tmp_path)) as frame:
        frame.put(np.arange(1000), n=0)
        frame.mark(0)
        frame.put(np.arange(1000), n=np.arange(1000))
        delta = frame.snapshot(SlotSet.full(8), since=0)
        frame.put(np.arange(1000), n=7)
        frame.spill(SlotSet.full(8))
        frame.restore([delta])
        assert len(frame) == 1000
        check_holds(frame, 0, 1000)


def test_what_is_restored_keeps_to_a_budget_of_memory(tmp_path: Path) -> None:
    kinds, budget = ({"id": pa.int64()}, {"n": pa.int64()}), MemoryBudget(1 << 16)
    with closing(SpillingFrame("counts", *kinds, budget=budget, directory=tmp_path)) as frame:
        frame.restore([grown(0, 50_000).snapshot(SlotSet.full(8))])
        assert frame.held().sizes.sum() <= 1 << 16
        assert len(frame) == 50_000


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS)
def test_a_key_that_is_there_twice_is_named_and_what_was_before_it_stays_whole(mask: int) -> None:
    with some_bits_of_hashes(mask):
        source, frame = state(), state()
        write(source, [(f"a word that is not short {number}", number) for number in range(2000)], 0)
        chunk = source.snapshot(FULL)
        frame.mark(0)
        twice = replace(chunk, rows=pa.concat_batches([chunk.rows, chunk.rows.slice(7, 2)]))
        with pytest.raises(Damaged, match=r"state 'seen' has two rows with the key {'word': '.*short 7', 'id': 7}"):
            frame.restore([twice])
        assert held(frame) == held(source)
        frame.restore([chunk])
        assert held(frame) == held(source)


# --- rows that are appended -------------------------------------------------------------------------------------------


def test_appended_rows_are_as_if_they_were_put() -> None:
    rows = pa.record_batch({"id": pa.array(range(200_000), pa.int64()), "n": pa.array(range(200_000), pa.int64())})
    appended, put = (Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}) for _ in range(2))
    for frame in (appended, put):
        frame.put({"id": [-1]}, n=7)
        frame.mark(3)
    appended.reserve(len(rows))
    appended.append(rows)
    put.put(rows, n=rows["n"])
    assert held(appended) == held(put)
    assert appended.changed(3) == len(rows)
    assert appended.rows_per_slot().tolist() == put.rows_per_slot().tolist()
    with pytest.raises(UserError, match=r"state 'counts' is to append a row with the key {'id': -1}, which has one"):
        appended.append(pa.record_batch({"id": [-1], "n": [0]}))
