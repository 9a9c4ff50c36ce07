"""Frame: a table that agrees with a dictionary, whose deltas add up to what it holds, and that grows smoothly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.chunk import read_chunk, write_chunk
from primitives.state.columnar import index, table
from primitives.state.columnar.folds import Overflow
from primitives.state.container import State
from primitives.state.frame import Frame, warm_up
from tests.primitives.frame_machine import FramesOfTwoInstances, content, texts
from tests.primitives.frame_machine import Row as Row
from tests.primitives.two_instances import FULL as FULL
from tests.primitives.two_instances import SLOT_BITS
from tests.primitives.two_instances import slot_sets as slot_sets


@contextmanager
def weak_hash() -> Iterator[None]:
    """Few different hashes, though all slots: keys are found by comparing them."""
    few = np.uint64(0xF << 60 | 1)
    with mock.patch.object(table, "hash_keys", lambda columns: hash_keys(columns) & few):
        yield


decimals = st.none() | st.sampled_from([Decimal("1.50"), Decimal(-1), Decimal("1E+30"), Decimal("1E+30") + 1])
decimals_or_none = st.none() | st.decimals(-1, 1, places=2)

# --- next to a dictionary ---------------------------------------------------------------------------------------------


class WithNumbers(FramesOfTwoInstances):
    keys = (("id", pa.int64()),)
    key_values = (st.one_of(st.none(), st.integers(-4, 8)),)


class WithTexts(FramesOfTwoInstances):
    keys = (("word", pa.string()),)
    key_values = (texts,)


class WithSeveralColumns(FramesOfTwoInstances):
    keys = (("word", pa.large_string()), ("id", pa.int16()), ("other", pa.string()), ("yes", pa.bool_()))
    key_values = (texts, st.one_of(st.none(), st.integers(-2, 2)), texts, st.sampled_from([None, False, True]))


class WithSubkeys(FramesOfTwoInstances):
    keys = (("id", pa.int64()), ("word", pa.string()), ("at", pa.int64()))
    subkeys = ("word", "at")
    key_values = (st.one_of(st.none(), st.integers(-2, 8)), texts, st.integers(-2, 8))


class WithDecimals(FramesOfTwoInstances):
    keys = (("price", pa.decimal128(38, 2)),)
    key_values = (decimals,)


class WithDecimalsAmongOthers(FramesOfTwoInstances):
    keys = (("word", pa.string()), ("price", pa.decimal128(38, 2)), ("id", pa.int16()), ("at", pa.decimal128(5, 2)))
    subkeys = ("at",)
    key_values = (texts, decimals, st.none() | st.integers(-1, 1), decimals_or_none)


class WithAWeakHash(WithSeveralColumns):
    def __init__(self) -> None:
        self.patch = weak_hash()
        self.patch.__enter__()
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.patch.__exit__(None, None, None)


short_runs = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestWithNumbers = WithNumbers.TestCase
TestWithNumbers.settings = short_runs
TestWithTexts = WithTexts.TestCase
TestWithTexts.settings = short_runs
TestWithSeveralColumns = WithSeveralColumns.TestCase
TestWithSeveralColumns.settings = short_runs
TestWithSubkeys = WithSubkeys.TestCase
TestWithSubkeys.settings = short_runs
TestWithDecimals = WithDecimals.TestCase
TestWithDecimals.settings = short_runs
TestWithDecimalsAmongOthers = WithDecimalsAmongOthers.TestCase
TestWithDecimalsAmongOthers.settings = short_runs
TestWithAWeakHash = WithAWeakHash.TestCase
TestWithAWeakHash.settings = short_runs


# --- columns of every type --------------------------------------------------------------------------------------------

TYPES: list[tuple[pa.DataType, Any, Any]] = [
    *((kind, 7, -3) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, 7, 2**8 - 1) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
    (pa.uint64(), 7, 2**64 - 1),
    *((kind, 0.5, math.inf) for kind in (pa.float32(), pa.float64())),
    (pa.decimal128(38, 2), Decimal("99999999999999999999.50"), Decimal("-0.01")),
    (pa.bool_(), True, False),
    (pa.date32(), date(2026, 1, 31), date(1969, 7, 20)),
    (pa.date64(), date(2026, 1, 31), date(1969, 7, 20)),
    *((pa.timestamp(unit), datetime(2026, 1, 31), datetime(1969, 7, 20)) for unit in ("s", "ms", "us")),
    (pa.string(), "short", "long enough not to fit into two words, ü"),
    (pa.large_string(), "short", "long enough not to fit into two words, ü"),
    (pa.binary(), b"short", bytes(range(256))),
    (pa.large_binary(), b"short", bytes(range(256))),
]

VALUE_TYPES: list[tuple[pa.DataType, Any, Any]] = [
    *TYPES,
    (pa.time32("s"), time(7), time(23, 59)),
    (pa.time64("us"), time(7), time(23, 59, 59, 1)),
    (pa.duration("us"), timedelta(days=7), timedelta(microseconds=-1)),
]


NONE_YET = {"low": None, "high": None}


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=lambda value: str(value)[:20])
def test_a_key_can_be_of_any_type_that_can_be_hashed(kind: pa.DataType, one: Any, other: Any) -> None:
    for keys in ({"k": kind}, {"k": kind, "more": pa.int64()}):
        frame = Frame("seen", keys, {"n": pa.int64()})
        batch = {"k": pa.array([one, None, other, one, None], kind), "more": [1] * 5}
        frame.add(batch, n=[1, 2, 3, 4, 5])
        found = dict(zip(frame.to_arrow()["k"].to_pylist(), frame.to_arrow()["n"].to_pylist(), strict=True))
        assert found == {one: 5, None: 7, other: 3}
        assert frame.snapshot(SlotSet.full(8)).rows.schema.field("k").type == kind
        assert frame.delete({"k": pa.array([None, one], kind), "more": [1, 1]}) == 2
        assert frame.to_arrow()["k"].to_pylist() == [other]


@pytest.mark.parametrize(("kind", "one", "other"), VALUE_TYPES, ids=lambda value: str(value)[:20])
def test_a_value_can_be_a_decimal_or_text_or_of_any_type_of_64_bits(kind: pa.DataType, one: Any, other: Any) -> None:
    frame = Frame("seen", {"id": pa.int64()}, {"v": kind})
    frame.put([1, 2, 3, 1], v=pa.array([one, None, other, other], kind))
    assert frame.to_arrow().to_pydict() == {"id": [1, 2, 3], "v": [other, None, other]}
    frame.put([3], v=pa.array([None], kind))
    frame.put([2], v=pa.array([one], kind))
    values, found = frame.get([2, 3, 4])
    assert values["v"].to_pylist() == [one, None, None]
    assert found.tolist() == [True, True, False]
    assert values["v"].type == kind


@pytest.mark.parametrize(("kind", "one", "other"), VALUE_TYPES, ids=lambda value: str(value)[:20])
def test_min_and_max_hold_for_every_ordered_type(kind: pa.DataType, one: Any, other: Any) -> None:
    frame = Frame("seen", {"id": pa.int64()}, {"low": kind, "high": kind}, defaults={"low": None, "high": None})
    both = pa.array([None, one, other, None], kind)
    if pa.types.is_large_string(kind) or pa.types.is_string(kind) or "binary" in str(kind):
        with pytest.raises(UserError, match=r"column 'low' of state 'seen' is .*, and min needs a number"):
            frame.min([1] * 4, low=both)
    else:
        frame.min([1] * 4, low=both)
        frame.max([1] * 4, high=both)
        assert frame.to_arrow().to_pylist() == [{"id": 1, "low": min(one, other), "high": max(one, other)}]


def test_nan_is_one_key_and_minus_zero_is_zero() -> None:
    frame = Frame("seen", {"x": pa.float64()}, {"n": pa.int64()})
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    frame.add(np.array([math.nan, other_nan, 0.0, -0.0]), n=1)
    assert frame.to_arrow()["n"].to_pylist() == [2, 2]
    assert math.copysign(1, frame.to_arrow()["x"][1].as_py()) == 1


def test_sums_are_exact_in_64_bits_and_of_one_type_each() -> None:
    kinds = {"i": pa.int64(), "u": pa.uint64(), "f": pa.float64(), "d": pa.duration("ns")}
    frame = Frame("sums", {"id": pa.int64()}, kinds)
    frame.add([1, 1], i=[2**62, 1], u=[2**63, 2**62], f=[0.5, 0.25], d=[1, None])
    row = frame.to_arrow()
    assert row["i"].to_pylist() == [2**62 + 1]
    assert row["u"].to_pylist() == [2**63 + 2**62]
    assert row["f"].to_pylist() == [0.75]
    assert row["d"].cast(pa.int64()).to_pylist() == [1]


LIMITS: list[tuple[pa.DataType, Any, Any, Any]] = [
    (pa.int64(), -(2**63), 2**63 - 1, 1),
    (pa.uint64(), 0, 2**64 - 1, 1),
    (pa.decimal128(4, 2), Decimal("-99.99"), Decimal("99.99"), Decimal("0.01")),
    (pa.decimal128(38, 0), Decimal(1 - 10**38), Decimal(10**38 - 1), Decimal(1)),
    (pa.duration("us"), timedelta(microseconds=-999), timedelta(microseconds=2**63 - 1 - 10**14), timedelta(10**4)),
]


@pytest.mark.parametrize(("kind", "least", "greatest", "step"), LIMITS, ids=str)
def test_a_sum_beyond_its_type_names_state_column_and_key(kind: Any, least: Any, greatest: Any, step: Any) -> None:
    for keys in ({"id": pa.int64()}, {"id": pa.int64(), "word": pa.string()}):
        frame = Frame("sums", keys, {"x": kind}, defaults={"x": None})
        batch = {"id": [7, 8, 9], "word": ["a"] * 3}
        frame.add(batch, x=pa.array([greatest, step, least], kind))
        with pytest.raises(Overflow, match=r"column 'x' of state 'sums' for key {'id': 7.* is beyond") as caught:
            frame.add(batch, x=pa.array([step] * 3, kind))
        assert caught.value.positions.tolist() == [0]
        assert caught.value.key["id"] == 7


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.one_of(st.none(), st.sampled_from([2**63 - 1, -(2**63), 2**62, 1, -1]))),
        max_size=12,
    ),
    st.sampled_from([pa.int64(), pa.decimal128(19, 0), pa.decimal128(38, 0)]),
    st.randoms(),
)
@settings(deadline=None)
def test_only_what_a_batch_adds_up_to_is_beyond_a_type_and_not_what_it_passes_on_the_way(
    added: list[tuple[int, int | None]], kind: pa.DataType, random: Any
) -> None:
    unit = 10**19 if kind == pa.decimal128(38, 0) else 1
    limit = 2**63 if kind == pa.int64() else 10**kind.precision
    if kind == pa.decimal128(19, 0):
        added = [(key, number if number is None else number // 2) for key, number in added]
    random.shuffle(added)
    total = {key: sum(number * unit for at, number in added if at == key and number is not None) for key in range(3)}
    least = -limit if kind == pa.int64() else 1 - limit
    beyond = {key for key, number in total.items() if not least <= number < limit}
    numbers = [None if number is None else Decimal(number * unit) if unit > 1 else number for _, number in added]
    keys = pa.array([key for key, _ in added], pa.int64())
    frame = Frame("sums", {"id": pa.int64()}, {"x": kind}, defaults={"x": None})
    with pytest.raises(Overflow) if beyond else nullcontext() as caught:
        frame.add(keys, x=pa.array(numbers, kind))
    positions = caught.value.positions if caught else []
    assert sorted(added[at][0] for at in positions) == sorted(beyond)
    rows = {row["id"]: row["x"] for row in frame.to_arrow().to_pylist()}
    assert all((rows.get(key) or 0) == total[key] for key in total.keys() - beyond)


def test_sums_wrap_around_where_that_is_asked_for() -> None:
    frame = Frame("sums", {"id": pa.int64()}, {"i": pa.int64(), "u": pa.uint64()})
    rows = frame.put([1], i=2**63 - 1, u=2**64 - 1)
    for column in ("i", "u"):
        frame.column(column).fold("add_wrapping", rows, [1])
    assert frame.to_arrow().to_pylist() == [{"id": 1, "i": -(2**63), "u": 0}]


@given(st.permutations([math.nan, -math.inf, 2.5, None]), st.integers(1, 4))
def test_nan_is_greater_than_any_number_in_whatever_order_values_come(values: list[float | None], cut: int) -> None:
    frame = Frame("seen", {"id": pa.int64()}, {"low": pa.float64(), "high": pa.float64()}, defaults=NONE_YET)
    for part in (values[:cut], values[cut:]):
        frame.min([1] * len(part), low=pa.array(part, pa.float64()))
        frame.max([1] * len(part), high=pa.array(part, pa.float64()))
    (row,) = frame.to_arrow().to_pylist()
    assert row["low"] == -math.inf
    assert math.isnan(row["high"])
    frame.min([2], low=math.nan)
    assert math.isnan(frame.get([2])[0]["low"][0].as_py())


def test_new_rows_hold_the_defaults_also_where_a_row_was_deleted() -> None:
    kinds = {"n": pa.int32(), "b": pa.bool_(), "s": pa.string(), "day": pa.date32(), "five": pa.int8()}
    frame = Frame("seen", {"id": pa.int64()}, kinds, defaults={"five": 5})
    fresh = {"n": 0, "b": False, "s": None, "day": None, "five": 5}
    frame.put([1], n=1, b=True, s="text", day=date(2026, 1, 1), five=6)
    frame.delete([1])
    frame.locate([2])
    assert frame.to_arrow().to_pylist() == [{"id": 2, **fresh}]


# --- batches and row numbers ------------------------------------------------------------------------------------------


def test_keys_come_as_batch_table_mapping_or_single_column() -> None:
    columns = {"id": pa.array([7, 9], pa.int32()), "unrelated": pa.array(["x", "y"])}
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()})
    chunked = pa.chunked_array([[7], [9]], pa.int64())
    for keys in (pa.record_batch(columns), pa.table(columns), columns, [7, 9], np.array([7, 9]), chunked):
        frame.add(keys, n=1)
    assert frame.to_arrow().to_pydict() == {"id": [7, 9], "n": [6, 6]}


def test_slices_of_arrays_and_strided_arrays_count_as_what_they_show() -> None:
    frame = Frame("seen", {"word": pa.string()}, {"s": pa.string(), "n": pa.int64()})
    words = pa.array(["no", "yes", "a rather long word", None, "no"]).slice(1, 3)
    rows = frame.put(words, s=words, n=np.arange(6)[::2])
    assert frame.to_arrow().to_pydict() == {"word": words.to_pylist(), "s": words.to_pylist(), "n": [0, 2, 4]}
    assert frame.column("n")[rows[::-1][::2]].tolist() == [4, 0]


def test_two_text_keys_do_not_share_characters() -> None:
    frame = Frame("pairs", {"a": pa.string(), "b": pa.string()}, {"n": pa.int64()})
    long = "x" * 20
    frame.add({"a": [long, long + "y", "", long], "b": ["y" + long, long, long + long, "y" + long]}, n=1)
    assert frame.to_arrow()["n"].to_pylist() == [2, 1, 1]


def test_columns_are_read_and_written_by_row_number_and_writing_marks_change() -> None:
    frame = Frame("seen", {"id": pa.int64()}, {"n": pa.int64(), "s": pa.string()})
    rows = frame.locate([7, 8, 9])
    frame.mark(1)
    frame.column("n")[rows[1:]] = [5, 6]
    frame.column("s")[rows[:1]] = "text"
    assert frame.column("n")[rows].tolist() == [0, 5, 6]
    assert frame.column("s").to_arrow(rows).to_pylist() == ["text", None, None]
    assert frame.take(rows[::-1])["id"].to_pylist() == [9, 8, 7]
    assert frame.changed(1) == 3
    frame.mark(2)
    frame.locate([7, 8, 9])
    assert frame.changed(2) == 0


def test_columns_are_folded_by_row_number_as_by_key() -> None:
    kinds = {"sum": pa.int64(), "low": pa.float64(), "high": pa.int8()}
    frame = Frame("seen", {"id": pa.int64()}, kinds, defaults={"low": None, "high": None})
    rows = frame.locate([7, 8, 7, 9])
    frame.mark(1)
    frame.column("sum").fold("add", rows[:3], [5, 6, 7])
    frame.column("low").fold("min", rows[:3], [1.5, None, -2.0])
    frame.column("high").fold("max", rows[:3], [3, 4, 2])
    assert frame.take(frame.locate([7, 8])).to_pydict() == {
        "id": [7, 8],
        "sum": [12, 6],
        "low": [-2.0, None],
        "high": [3, 4],
    }
    assert frame.changed(1) == 2


def test_who_asks_is_told_which_keys_are_new() -> None:
    frame = Frame("seen", {"id": pa.int64()}, {})
    frame.locate([8])
    rows, new = frame.locate_new([7, 8, 7, 9])
    assert (rows.tolist(), new.tolist()) == ([1, 0, 1, 2], [0, 3])


def test_rows_of_a_key_are_told_apart_by_subkeys_and_are_in_the_slot_of_the_key() -> None:
    frame = Frame("panes", {"user": pa.int64()}, {"n": pa.int64()}, subkeys={"start": pa.int64()}, slot_bits=8)
    users, starts = np.repeat(np.arange(100), 100), np.tile(np.arange(100), 100)
    frame.add({"user": users, "start": starts}, n=starts)
    assert len(frame) == 10_000
    chunk = frame.snapshot(SlotSet.full(8))
    assert (chunk.keys, chunk.identity) == (("user",), ("user", "start"))
    assert set(chunk.slots_of_rows()) == set(slots_of(hash_keys([np.arange(100)]), 8).tolist())
    mine = SlotSet(slots_of(hash_keys([np.array([7])]), 8))
    assert frame.to_arrow(mine).filter(pc.field("user") == 7)["n"].to_pylist() == list(range(100))


def test_an_empty_batch_changes_nothing() -> None:
    frame = Frame("seen", {"word": pa.string()}, {"n": pa.int64(), "s": pa.string()})
    frame.mark(1)
    assert len(frame.add(pa.array([], pa.string()), n=1)) == 0
    assert len(frame.put([], s=[])) == 0
    assert frame.get([])[1].tolist() == []
    assert frame.delete([]) == 0
    assert frame.changed(1) == frame.size() == len(frame) == 0


def test_a_set_of_keys_needs_no_values() -> None:
    frame = Frame("seen", {"id": pa.int64()}, {})
    frame.put([1, 2, 1])
    again = Frame("seen", {"id": pa.int64()}, {})
    again.restore([frame.snapshot(SlotSet.full(8))])
    assert again.to_arrow()["id"].to_pylist() == [1, 2]


# --- as a State -------------------------------------------------------------------------------------------------------


def grown(rows: int, **options: Any) -> Frame:
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, **options)
    frame.add(np.arange(rows), n=np.arange(rows))
    return frame


def test_a_snapshot_does_not_see_later_writes() -> None:
    frame: State = grown(1000)
    assert isinstance(frame, Frame)
    chunk = frame.snapshot(SlotSet.full(8))
    frame.add(np.arange(1000), n=1)
    frame.drop(SlotSet.full(8))
    assert chunk.rows["n"].to_pylist() == list(range(1000))


def test_a_written_chunk_restores_what_was_there() -> None:
    frame = Frame("seen", {"word": pa.string(), "id": pa.int64()}, {"s": pa.binary()})
    frame.put({"word": ["a", None], "id": [None, 2]}, s=[b"\x00" * 30, None])
    again = Frame("seen", {"word": pa.string(), "id": pa.int64()}, {"s": pa.binary()})
    again.restore([read_chunk(write_chunk(frame.snapshot(SlotSet.full(8))))])
    assert again.to_arrow() == frame.to_arrow()


def test_a_chunk_restores_from_memory_that_is_not_aligned() -> None:
    kinds = {"word": pa.large_string()}, {"n": pa.int64()}
    frame, again = Frame("seen", *kinds), Frame("seen", *kinds)
    frame.add(["a", "a long word that is not kept inline"], n=[1, 2])
    data = b"\x00" + write_chunk(frame.snapshot(SlotSet.full(8))).to_pybytes()
    again.restore([read_chunk(memoryview(data)[1:])])
    assert again.to_arrow() == frame.to_arrow()


def test_a_delta_holds_only_what_changed() -> None:
    frame = grown(100_000)
    frame.mark(1)
    frame.add([5, 70_000, 5], n=1)
    frame.delete([6, 7, 100_001])
    frame.put([7], n=0)
    delta = frame.snapshot(SlotSet.full(8), since=1)
    assert sorted(delta.rows["id"].to_pylist()) == [5, 7, 70_000]
    assert delta.deleted["id"].to_pylist() == [6]
    assert not delta.replaced
    assert frame.changed(1) == 4


def test_a_delta_of_some_slots_names_all_that_were_replaced() -> None:
    frame = grown(1000, slot_bits=SLOT_BITS)
    frame.mark(1)
    frame.drop(SlotSet([3]))
    frame.restore([grown(10, slot_bits=SLOT_BITS).snapshot(SlotSet([2]))])
    delta = frame.snapshot(SlotSet([2]), since=1)
    assert delta.replaced == SlotSet([2, 3])
    assert len(delta.rows) == frame.rows_per_slot()[2] < 10


@pytest.mark.parametrize(("changed", "is_whole"), [(5_000, False), (5_001, True)])
def test_a_delta_of_most_of_many_rows_is_as_well_a_snapshot_in_full(changed: int, is_whole: bool) -> None:
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=SLOT_BITS)
    frame.add(np.arange(10_000), n=1)
    copy = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=SLOT_BITS)
    copy.restore([frame.snapshot(FULL)])
    frame.mark(1)
    frame.delete([9_999])
    frame.add(np.append(np.arange(changed - 1), 10_000), n=5)
    delta = frame.snapshot(FULL, since=1)
    assert (delta.replaced == FULL, len(delta.rows)) == (is_whole, 10_000 if is_whole else changed)
    copy.restore([delta])
    assert copy.to_arrow().sort_by("id") == frame.to_arrow().sort_by("id")


@given(few=slot_sets, seed=st.integers(0, 9))
def test_a_delta_of_few_slots_is_the_part_of_a_delta_that_is_theirs(few: SlotSet, seed: int) -> None:
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=8)
    rng = np.random.default_rng(seed)
    frame.add(np.arange(2_000), n=1)
    frame.mark(1)
    frame.delete(rng.integers(0, 2_000, 100))
    frame.add(rng.integers(0, 2_500, 500), n=1)
    frame.mark(2)
    frame.add(rng.integers(0, 2_500, 200), n=1)
    theirs = frame.snapshot(few, since=1)
    part = frame.snapshot(SlotSet.full(8), since=1).select(few)
    assert sorted(theirs.rows.to_pylist(), key=str) == sorted(part.rows.to_pylist(), key=str)


def test_rows_per_slot_add_up_to_what_snapshots_hold() -> None:
    frame = grown(1000, slot_bits=SLOT_BITS)
    frame.delete(np.arange(0, 1000, 3))
    held = [len(frame.snapshot(SlotSet([slot])).rows) for slot in range(1 << SLOT_BITS)]
    assert frame.rows_per_slot().tolist() == held
    assert frame.size(SlotSet([0])) == held[0] * 16
    assert frame.size() == sum(held) * 16


def test_without_a_mark_there_is_no_delta() -> None:
    frame = grown(10)
    frame.mark(3)
    frame.mark(5)
    frame.release(4)
    assert frame.marks == (5,)
    with pytest.raises(InternalError, match=r"state 'counts' has no mark at epoch 3, only at \[5\]"):
        frame.snapshot(SlotSet.full(8), since=3)


# --- large ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 40_000))
@settings(max_examples=10)
def test_counting_agrees_with_numpy_through_growth_and_removal(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()})
    expected = np.zeros(20_000, np.int64)
    for _ in range(4):
        keys = random.integers(0, len(expected), size)
        frame.add(keys, n=1)
        np.add.at(expected, keys, 1)
        gone = random.integers(0, len(expected), size // 2)
        assert frame.delete(gone) == np.count_nonzero(expected[np.unique(gone)])
        expected[gone] = 0
    rows = frame.to_arrow()
    assert len(rows) == len(frame) == np.count_nonzero(expected)
    assert (expected[rows["id"].to_numpy()] == rows["n"].to_numpy()).all()


def test_thousands_of_keys_with_the_same_hash_are_told_apart() -> None:
    with weak_hash():
        frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()})
        keys = np.arange(9_000)
        frame.add(keys, n=keys)
        frame.delete(keys[::3])
        values, found = frame.get(keys)
        assert (found == (keys % 3 != 0)).all()
        assert (values["n"].to_numpy(zero_copy_only=False)[found] == keys[found]).all()
        frame.add(keys[::3], n=1)
        frame._compact(np.empty(0, np.int64))
        assert sorted(frame.to_arrow()["id"].to_pylist()) == keys.tolist()


def test_texts_that_are_overwritten_leave_no_garbage_behind() -> None:
    frame = Frame("notes", {"word": pa.string()}, {"s": pa.string()})
    words = pa.array([f"a word that is not short {number}" for number in range(500)])
    for turn in range(100):
        frame.put(words, s=pa.array([f"{turn} " * 20 + str(number) for number in range(500)]))
        frame.delete(words.slice(0, 100))
    assert frame._table._heap.region.array.nbytes < 1 << 20
    rows = frame.to_arrow()
    assert rows["word"].to_pylist() == words.to_pylist()[100:]
    assert rows["s"].to_pylist() == ["99 " * 20 + str(number) for number in range(100, 500)]


def test_after_most_slots_have_left_memory_is_given_back_and_deltas_still_hold() -> None:
    frame = grown(400_000, slot_bits=SLOT_BITS)
    base = frame.snapshot(SlotSet([0]))
    frame.mark(1)
    frame.add(np.arange(0, 400_000, 1000), n=1)
    frame.drop(SlotSet([1, 2, 3]))
    assert frame._table._words.array.nbytes < 4 << 20
    delta = frame.snapshot(SlotSet([0]), since=1)
    assert len(delta.rows) == np.count_nonzero(np.isin(np.arange(0, 400_000, 1000), base.rows["id"].to_numpy()))
    again = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=SLOT_BITS)
    again.restore([base, delta])
    assert content(again.to_arrow(), 1) == content(frame.to_arrow(), 1)


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_slots_are_dropped_in_parts_whatever_happens_to_others_meanwhile(parts: int) -> None:
    frame, keys = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}), np.arange(400_000)
    kept, gone = SlotSet.range(0, 19), SlotSet.range(20, 255)
    frame.put(keys, n=keys)
    expected, new = frame.to_arrow(kept)["id"].to_pylist(), iter(range(1_000_000, 1_100_000))
    lengths = []
    for step, _ in enumerate(frame.drop_in_parts(gone, parts)):
        lengths.append(len(frame))
        mine = [key for key in (next(new) for _ in range(100)) if slots_of(hash_keys([np.array([key])]), 8)[0] in kept]
        frame.put(mine, n=mine)
        expected += mine
        frame.mark(step)  # numbers all rows anew once most are gone
    assert len(lengths) == parts
    assert lengths == sorted(lengths, reverse=True)
    assert sorted(frame.to_arrow()["id"].to_pylist()) == sorted(expected)
    assert frame.to_arrow().column("id").equals(frame.to_arrow().column("n"))
    assert frame.rows_per_slot()[gone.mask(8)].sum() == 0


def test_a_mark_gives_the_memory_of_deleted_rows_back() -> None:
    frame = grown(400_000)
    frame.delete(np.arange(399_000))
    frame.mark(1)
    assert frame._table._words.array.nbytes < 1 << 20
    assert frame.to_arrow()["id"].to_pylist() == list(range(399_000, 400_000))
    assert frame.changed(1) == 0


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory as Linux does")
def test_growth_takes_little_more_memory_than_what_has_grown() -> None:
    warm_up()
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()})
    keys = np.random.default_rng(1).permutation(2_000_000)
    ones = np.ones(1 << 14, np.int64)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = memory("VmRSS")
    for start in range(0, len(keys), len(ones)):
        frame.add(keys[start : start + len(ones)], n=ones[: len(keys) - start])
    held = memory("VmRSS") - before
    assert held < 48 * len(keys)
    assert memory("VmHWM") - before < 1.35 * held


def memory(field: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def test_there_is_a_limit_to_row_numbers() -> None:
    frame = grown(10)
    with mock.patch.object(index, "_MAX_ROWS", 12), pytest.raises(EnvironmentFault, match="up to 12 rows"):
        frame.add([20, 21, 22], n=1)
    assert len(frame) == 10


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "values", "defaults", "message"),
    [
        ({}, {}, {}, "needs a key column"),
        ({"id": pa.list_(pa.int8())}, {}, {}, "column 'id' of state 'counts' has type list.*; declare an integer"),
        ({"id": pa.duration("s")}, {}, {}, "column 'id' of state 'counts' is a key of type duration"),
        ({"id": pa.int64()}, {"id": pa.int64()}, {}, "column 'id' .* both as a key and as a value"),
        ({"id": pa.int64()}, {}, {"n": 1}, "column 'n' of state 'counts' has a default, but is not among"),
        ({"id": pa.int64()}, {"n": pa.int8()}, {"n": 300}, "the default of column 'n' .* is of type int8"),
        ({"id": pa.int64()}, {f"v{at}": pa.int8() for at in range(64)}, {}, "more than 64 columns"),
    ],
)
def test_a_wrong_declaration_is_refused(keys: Any, values: Any, defaults: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Frame("counts", keys, values, defaults=defaults)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda frame: frame.add([1], n=1), "state 'counts' has keys"),
        (lambda frame: frame.add({"id": [1]}, n=1), "the keys lack column 'word' of state 'counts'"),
        (lambda frame: frame.add({"id": ["x"], "word": ["x"]}, n=1), "column 'id' of state 'counts' is of type int64"),
        (
            lambda frame: frame.add({"id": [1, 2], "word": ["x"]}, n=1),
            "column 'word' .* with 1 rows, the others with 2",
        ),
        (lambda frame: frame.add({"id": [1], "word": ["x"]}, n=[1, 2]), "column 'n' .* with 2 rows, the others with 1"),
        (lambda frame: frame.add({"id": [1], "word": ["x"]}, n=1.5), "column 'n' of state 'counts' is of type int64"),
        (lambda frame: frame.add({"id": [1], "word": ["x"]}, m=1), "no value column 'm', only"),
        (
            lambda frame: frame.add({"id": [1], "word": ["x"]}, short=1),
            "column 'short' .* is int16, and add needs int64",
        ),
        (lambda frame: frame.column("m"), "no value column 'm', only"),
        (lambda frame: frame.column("n").fold("mul", [], []), "column 'n' .* knows no fold 'mul'; use one of add"),
        (lambda frame: frame.column("short").fold("add", [], []), "column 'short' .* is int16, and add needs int64"),
        (lambda frame: frame.take([0]), "has no row 0"),
        (lambda frame: frame.column("n")[np.array([-1])], "has no row -1"),
        (lambda frame: frame.column("n")[np.array([True])], "row numbers of state 'counts' are a list of integers"),
    ],
)
def test_a_wrong_use_is_refused_and_leaves_no_trace(use: Any, message: str) -> None:
    kinds = {"n": pa.int64(), "short": pa.int16()}
    frame = Frame("counts", {"id": pa.int64(), "word": pa.string()}, kinds)
    frame.mark(1)
    with pytest.raises(UserError, match=message):
        use(frame)
    assert len(frame) == frame.changed(1) == 0


def test_a_column_is_a_key_or_a_subkey() -> None:
    with pytest.raises(UserError, match=r"column 'id' .* both as a key and as a subkey"):
        Frame("counts", {"id": pa.int64()}, {}, subkeys={"id": pa.int64()})


def test_a_deleted_row_has_no_number() -> None:
    frame = grown(10)
    rows = frame.locate([4, 5])
    frame.delete([5])
    with pytest.raises(UserError, match="has no row 5"):
        frame.column("n")[rows] = 1


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Frame("other", {"id": pa.int64()}, {"n": pa.int64()}), "name 'counts'"),
        (Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=3), "slot_bits 8"),
        (Frame("counts", {"key": pa.int64()}, {"n": pa.int64()}), "keys"),
        (Frame("counts", {"id": pa.int64()}, {"n": pa.int64()}, version=2), "version"),
        (Frame("counts", {"id": pa.int64()}, {"n": pa.int32()}), "column 'n'"),
    ],
)
def test_a_chunk_of_something_else_is_not_restored(other: Frame, message: str) -> None:
    with pytest.raises((UserError, InternalError), match=message):
        grown(1).restore([other.snapshot(SlotSet.empty())])
