from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import InternalError, UserError
from primitives.routing import Owners, Slots, rows_in, split_batch
from primitives.slots import SlotSet

SLOT_BITS = 3


def numbered(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"row": np.arange(rows), "text": pa.array([str(row) for row in range(rows)], pa.string())})


def row_numbers(batch: pa.RecordBatch) -> list[int]:
    return [int(row) for row in batch["row"].to_pylist()]


row_slots = st.lists(st.integers(0, 2**SLOT_BITS - 1), max_size=40).map(lambda slots: np.array(slots, np.uint32))
owner_tables = st.lists(st.integers(0, 20), min_size=2**SLOT_BITS, max_size=2**SLOT_BITS).map(
    lambda owners: np.array(owners, np.int32)
)
slot_sets = st.sets(st.integers(0, 2**SLOT_BITS - 1)).map(SlotSet)


@given(row_slots, owner_tables)
def test_every_row_is_in_exactly_the_part_of_its_owner_and_in_order(slots: Slots, owners: Owners) -> None:
    parts = split_batch(numbered(len(slots)), slots, owners)
    expected: dict[int, list[int]] = {}
    for row, slot in enumerate(slots):
        expected.setdefault(int(owners[slot]), []).append(row)
    assert {owner: row_numbers(part) for owner, part in parts.items()} == expected


@given(row_slots, owner_tables)
def test_a_row_keeps_its_columns_together(slots: Slots, owners: Owners) -> None:
    for part in split_batch(numbered(len(slots)), slots, owners).values():
        assert part["text"].to_pylist() == [str(row) for row in row_numbers(part)]


@given(row_slots, slot_sets)
def test_rows_in_selects_the_rows_of_the_slots_in_order(slots: Slots, slot_set: SlotSet) -> None:
    selected = rows_in(numbered(len(slots)), slots, slot_set)
    assert row_numbers(selected) == [row for row, slot in enumerate(slots) if int(slot) in slot_set]


@given(row_slots, owner_tables)
def test_splitting_is_selecting_the_slots_of_each_owner(slots: Slots, owners: Owners) -> None:
    batch = numbered(len(slots))
    for owner, part in split_batch(batch, slots, owners).items():
        assert part.equals(rows_in(batch, slots, SlotSet(np.flatnonzero(owners == owner))))


@given(st.integers(0, 30), st.integers(0, 30), owner_tables)
@settings(max_examples=30)
def test_a_slice_of_a_batch_is_split_as_if_it_were_a_batch(offset: int, length: int, owners: Owners) -> None:
    batch = numbered(60).slice(offset, length)
    slots = (np.arange(len(batch)) % 2**SLOT_BITS).astype(np.uint32)
    parts = split_batch(batch, slots, owners)
    assert sorted(row for part in parts.values() for row in row_numbers(part)) == row_numbers(batch)


def test_one_owner_of_all_rows_gets_the_very_same_batch() -> None:
    batch = numbered(3)
    parts = split_batch(batch, np.array([1, 1, 0], np.uint32), np.array([4, 4, 5], np.int32))
    assert list(parts) == [4]
    assert parts[4] is batch


def test_selecting_all_rows_returns_the_very_same_batch() -> None:
    batch = numbered(3)
    assert rows_in(batch, np.array([1, 1, 0], np.uint32), SlotSet([0, 1, 7])) is batch


def test_a_batch_without_rows_has_no_parts() -> None:
    empty = numbered(0)
    assert split_batch(empty, np.array([], np.uint32), np.array([0, 1], np.int32)) == {}
    assert rows_in(empty, np.array([], np.uint32), SlotSet([1])).num_rows == 0


def test_slots_up_to_the_highest_can_be_selected() -> None:
    slots = np.array([0, 2**20 - 1], np.uint32)
    assert row_numbers(rows_in(numbered(2), slots, SlotSet([2**20 - 1]))) == [1]


def test_parts_share_the_memory_of_one_copy() -> None:
    batch = pa.record_batch({"n": np.arange(1000)})
    slots = (np.arange(1000) % 8).astype(np.uint32)
    parts = split_batch(batch, slots, np.arange(8, dtype=np.int32))
    assert len({part["n"].buffers()[1].address for part in parts.values()}) == 1


TEXT = ["a", None, "long enough not to be held inline", "a"]

COLUMNS = {
    "string": pa.array(TEXT),
    "large string": pa.array(TEXT, pa.large_string()),
    "string view": pa.array(TEXT, pa.string_view()),
    "binary view": pa.array([b"a", None, b"long enough not to be held inline", b"a"], pa.binary_view()),
    "dictionary": pa.array(TEXT).dictionary_encode(),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays([1, 3, 4], pa.array(["a", None, "b"])),
    "bool": pa.array([True, None, False, True]),
    "float": pa.array([1.5, None, float("inf"), -0.0]),
    "decimal": pa.array([1, None, 2, 3], pa.decimal128(10, 2)),
    "timestamp": pa.array([1, None, 2, 3], pa.timestamp("us", "UTC")),
    "fixed binary": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "list": pa.array([[1], None, [], [2, 3]]),
    "fixed list": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 1)], None, [], [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": 2, "b": None}]),
    "extension": pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes([i] * 16) for i in range(4)], pa.binary(16))
    ),
    "null": pa.nulls(4),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_every_type_are_split_with_their_nulls(name: str) -> None:
    batch = pa.RecordBatch.from_arrays([COLUMNS[name]], [name]).replace_schema_metadata({"creator": "a test"})
    parts = split_batch(batch, np.array([1, 0, 0, 1], np.uint32), np.array([0, 1], np.int32))
    values = COLUMNS[name].to_pylist()
    assert parts[0][name].to_pylist() == values[1:3]
    assert parts[1][name].to_pylist() == [values[0], values[3]]
    for part in parts.values():
        part.validate(full=True)
        assert part.schema.equals(batch.schema, check_metadata=True)


def test_a_type_that_arrow_cannot_gather_is_reported_with_its_column() -> None:
    batch = pa.record_batch({"n": [1, 2], "tags": pa.array([["a"], ["b"]], pa.list_(pa.string_view()))})
    with pytest.raises(UserError, match=r"'tags' of type list<.*string_view> cannot be split by slot"):
        split_batch(batch, np.array([0, 1], np.uint32), np.array([0, 1], np.int32))


def test_a_slot_beyond_the_routing_table_is_named() -> None:
    with pytest.raises(InternalError, match="slot 9 has no owner in the routing table of 2 slots"):
        split_batch(numbered(3), np.array([0, 9, 1], np.uint32), np.array([0, 1], np.int32))


def test_a_slot_that_nobody_owns_is_named() -> None:
    with pytest.raises(InternalError, match="slot 1 has no owner"):
        split_batch(numbered(2), np.array([0, 1], np.uint32), np.array([0, -1], np.int32))


def test_the_number_of_slots_must_be_the_number_of_rows() -> None:
    slots = np.array([0, 1], np.uint32)
    with pytest.raises(InternalError, match="2 slots were given for a batch of 3 rows"):
        split_batch(numbered(3), slots, np.array([0, 1], np.int32))
    with pytest.raises(InternalError, match="2 slots were given for a batch of 3 rows"):
        rows_in(numbered(3), slots, SlotSet([1]))
