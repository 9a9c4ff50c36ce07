"""Index and what it stands on: rows are found by key whatever happens to others, and memory grows in place."""

from __future__ import annotations

import mmap
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.state.columnar import memory, segments, table
from primitives.state.columnar.bitmap import Bitmap, common_rows
from primitives.state.columnar.fixed import row_numbers
from primitives.state.columnar.index import Index
from primitives.state.columnar.memory import Region
from primitives.state.columnar.table import RowTable

numbers = st.lists(st.integers(0, 500))


def new_index() -> Index:
    return Index(RowTable([pa.int64()]))


def locate(index: Index, keys: NDArray[np.int64], *, create: bool) -> NDArray[np.int64]:
    return index.locate([pa.array(keys, pa.int64())], create=create).rows


# --- index ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 30), max_size=40)), max_size=20), st.integers(0, 3))
def test_rows_are_found_by_key_and_numbers_are_used_again(
    batches: list[tuple[bool, list[int]]], hash_bits: int
) -> None:
    """Also where keys collide: with `hash_bits` low, tags differ in their first bits only, or not at all."""
    few = np.uint64((1 << hash_bits) - 1) << np.uint64(29)
    with mock.patch.object(table, "hash_keys", lambda columns: columns[0].to_numpy().astype(np.uint64) << 29 & few):
        index, expected = new_index(), dict[int, int]()
        for create, keys in batches:
            rows = locate(index, np.array(keys, np.int64), create=create).tolist()
            if create:
                assert all(expected.setdefault(key, row) == row for key, row in zip(keys, rows, strict=True))
            else:
                assert rows == [expected.get(key, -1) for key in keys]
                index.remove(index.distinct(np.array(rows, np.int64)))
                expected = {key: row for key, row in expected.items() if key not in keys}
            assert len(index) == len(expected) == len(set(expected.values()))
        assert max(expected.values(), default=0) < 31


def test_a_position_is_reported_for_each_row_created() -> None:
    index = new_index()
    assert index.locate([pa.array([7, 9, 7])], create=True).created.tolist() == [0, 1]
    assert index.locate([pa.array([9, 7, 8, 8])], create=True).created.tolist() == [2]
    assert index.locate([pa.array([10])], create=False).created.tolist() == []


@pytest.mark.parametrize("order", ["ascending", "at random"])
def test_every_key_is_found_after_many_splits(order: str) -> None:
    keys = np.arange(300_000) if order == "ascending" else np.random.default_rng(1).permutation(300_000)
    index = new_index()
    rows = np.concatenate([locate(index, part, create=True) for part in np.array_split(keys, 7)])
    assert (rows == np.arange(len(keys))).all()
    assert (locate(index, keys, create=False) == rows).all()
    assert (locate(index, keys + len(keys), create=False) == -1).all()


def test_memory_grows_by_segments_that_are_at_least_a_third_full() -> None:
    index = new_index()
    for start in range(0, 500_000, 10_000):
        locate(index, np.arange(start, start + 10_000), create=True)
        used = int(index._counts[segments.SEGMENTS])
        assert len(index) <= used * segments.PLACES * 3 / 4
        assert used <= max(1, len(index) / segments.PLACES / 0.35)


def test_removing_all_and_starting_over_needs_no_more_memory() -> None:
    index, keys = new_index(), np.arange(100_000)
    locate(index, keys, create=True)
    used = int(index._counts[segments.SEGMENTS])
    for _ in range(3):
        index.remove(locate(index, keys, create=False))
        assert len(index) == 0
        assert (locate(index, keys, create=False) == -1).all()
        locate(index, keys[::-1], create=True)
    assert index._counts[segments.SEGMENTS] == used
    assert index.end == len(keys)


def test_compaction_numbers_rows_in_their_old_order() -> None:
    index = new_index()
    locate(index, np.arange(10), create=True)
    index.remove(np.array([0, 4]))
    assert index.compact(np.array([9])).tolist() == [1, 2, 3, 5, 6, 7, 8]
    assert locate(index, np.arange(10), create=False).tolist() == [-1, 0, 1, 2, -1, 3, 4, 5, 6, -1]
    assert locate(index, np.array([4]), create=True).tolist() == [7]


def append(index: Index, keys: NDArray[np.int64]) -> slice:
    return index.append(index._table.probe([pa.array(keys, pa.int64())]))


def test_new_keys_are_appended_behind_all_rows_and_numbers_that_are_free_stay_so() -> None:
    index = new_index()
    locate(index, np.arange(10), create=True)
    index.remove(np.array([3, 9]))
    assert append(index, np.arange(100, 105)) == slice(10, 15)
    assert locate(index, np.arange(100, 105), create=False).tolist() == [10, 11, 12, 13, 14]
    assert row_numbers(index.rows).tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14]
    assert sorted(locate(index, np.array([7, 200, 201, 202]), create=True).tolist()) == [3, 7, 9, 15]


@pytest.mark.parametrize("mask", [0, 0x3FF << 22, 2**64 - 1])
def test_nothing_is_appended_from_a_key_on_that_has_a_row(mask: int) -> None:
    """With a weak hash, keys are in one segment, where there is room again, and behind it in its overflow."""
    with mock.patch.object(table, "hash_keys", lambda columns: hash_keys(columns) & np.uint64(mask)):
        index = new_index()
        locate(index, np.arange(1000), create=True)
        index.remove(np.arange(100))
        for there in range(990, 1000):
            end = index.end
            assert append(index, np.array([there + 1000, there, there + 2000])) == slice(end, end + 1)
            assert not index._table._words.array[index.end : index.end + 2].any()
        assert len(index) == 910
        assert locate(index, np.array([1990, 1999, 2990, 2999]), create=False).tolist() == [1000, 1009, -1, -1]


# --- bitmap -----------------------------------------------------------------------------------------------------------


@given(numbers, numbers, numbers)
def test_a_bitmap_is_a_set(added: list[int], discarded: list[int], others: list[int]) -> None:
    bitmap, other = Bitmap(), Bitmap()
    bitmap.add(np.array(added, np.int64))
    other.add(np.array(others, np.int64))
    gone = bitmap.discard(np.array([*discarded, -1, 10**6], np.int64)).tolist()
    assert sorted(gone) == sorted(set(added) & set(discarded))
    left = set(added) - set(discarded)
    assert bitmap.rows().tolist() == sorted(left)
    assert bitmap.holds(np.array([*range(501), -1, 10**6])).tolist() == [
        row in left for row in [*range(501), -1, 10**6]
    ]
    assert common_rows(bitmap, [other]).tolist() == sorted(left & set(others))
    assert common_rows(bitmap, [other, Bitmap(), bitmap]).tolist() == sorted(left)


@given(numbers, st.sets(st.integers(0, 500)))
def test_a_bitmap_renumbers_its_members_by_position(added: list[int], kept: set[int]) -> None:
    bitmap = Bitmap()
    bitmap.add(np.array(added, np.int64))
    bitmap.renumber(np.array(sorted(kept), np.int64))
    assert bitmap.rows().tolist() == [at for at, row in enumerate(sorted(kept)) if row in set(added)]


# --- memory -----------------------------------------------------------------------------------------------------------


def filled(length: int) -> Region[np.int64]:
    region: Region[np.int64] = Region(np.int64)
    region.reserve(length)
    region.array[:length] = np.arange(length)
    return region


def test_a_region_keeps_its_content_while_it_grows_and_the_rest_is_zero() -> None:
    region = filled(1000)
    region.reserve(2_000_000)
    assert (region.array[:1000] == np.arange(1000)).all()
    assert not region.array[1000:].any()


def test_a_view_that_is_held_forces_a_copy_and_stays_valid() -> None:
    region = filled(1000)
    view = region.array[:10]
    region.reserve(1_000_000)
    region.array[0] = 7
    assert view.tolist() == list(range(10))
    assert region.array[:2].tolist() == [7, 1]


def test_a_region_grows_by_copy_where_the_system_cannot_move_pages() -> None:
    class Fixed(mmap.mmap):
        def resize(self, newsize: int) -> None:
            raise SystemError(f"resizing to {newsize} not available--no mremap()")

    with mock.patch.object(memory.mmap, "mmap", Fixed):
        region = filled(1000)
        region.reserve(1_000_000)
        region.truncate(500)
    assert (region.array[:500] == np.arange(500)).all()
    assert not region.array[500:].any()


@settings(max_examples=20)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_truncated_elements_are_zero_when_they_are_used_again(length: int, kept: int) -> None:
    region = filled(length)
    region.truncate(kept)
    region.reserve(3000)
    assert (region.array[: min(kept, length)] == np.arange(min(kept, length))).all()
    assert not region.array[min(kept, length) :].any()


def test_a_region_keeps_rows_in_blocks_and_gives_back_the_rest() -> None:
    region = filled(600_000)
    rows = np.flatnonzero(np.arange(200_000) % 3)
    region.keep(rows, width=3)
    expected = (rows[:, None] * 3 + np.arange(3)).reshape(-1)
    assert (region.array[: len(expected)] == expected).all()
    assert not region.array[len(expected) :].any()
    assert region.array.nbytes == 4 << 20  # whole huge pages
