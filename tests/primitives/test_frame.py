"""Frame: a table that agrees with a dictionary, whose deltas add up to what it holds, and that grows smoothly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from primitives.chunk import Chunk, merge_chunks, read_chunk, write_chunk
from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of, split_evenly
from primitives.state import index, table
from primitives.state.container import State
from primitives.state.frame import Frame, warm_up

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)

Row = tuple[Any, ...]

slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)
texts = st.sampled_from([None, "", "b", "exactly 12 b", "a little longer", "a little longer!", "ä" * 40])


@contextmanager
def weak_hash() -> Iterator[None]:
    """Few different hashes, though all slots: keys are found by comparing them."""
    few = np.uint64(0xF << 60 | 1)
    with mock.patch.object(table, "hash_keys", lambda columns: hash_keys(columns) & few):
        yield


def batch(schema: pa.Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)


def content(rows: pa.RecordBatch, keys: int) -> dict[Row, Row]:
    columns = [column.to_pylist() for column in rows.columns]
    found = list(zip(*columns, strict=True))
    by_key = {row[:keys]: row[keys:] for row in found}
    assert len(by_key) == len(found), "a key has two rows"
    return by_key


# --- next to a dictionary ---------------------------------------------------------------------------------------------


class FramesOfTwoInstances(RuleBasedStateMachine):
    """One frame under test, checkpointed all the time, and another with which it exchanges slots.

    Values are a sum, a minimum and a text.
    """

    keys: tuple[tuple[str, pa.DataType], ...]
    subkeys: tuple[str, ...] = ()  # the last of them
    key_values: tuple[st.SearchStrategy[Any], ...]

    def __init__(self) -> None:
        super().__init__()
        self.here, self.there = self.make(), self.make()
        self.expected: dict[Row, Row] = {}  # of both together
        self.owned = FULL  # slots that are here; the others are there
        self.epoch = 0
        self.full_at: dict[int, Chunk] = {}  # full snapshot of each retained mark, as a backup holder has it
        self.chain: list[Chunk] = []  # a base, and a delta for each mark since
        self.checkpoint()

    def make(self) -> Frame:
        values = {"sum": pa.int64(), "least": pa.float64(), "text": pa.string()}
        return Frame(
            "seen",
            {name: kind for name, kind in self.keys if name not in self.subkeys},
            values,
            subkeys={name: kind for name, kind in self.keys if name in self.subkeys},
            slot_bits=SLOT_BITS,
            defaults={"least": None, "text": "none so far"},
        )

    def some_keys(self, data: st.DataObject) -> list[Row]:
        return data.draw(st.lists(st.tuples(*self.key_values), max_size=12))

    def by_home(self, keys: Sequence[Row]) -> Iterator[tuple[Frame, pa.RecordBatch, list[int]]]:
        """Each instance with those of the keys that are its own, and their positions."""
        whole = batch(pa.schema(list(self.keys)), keys)
        of_slot = whole.columns[: len(whole.columns) - len(self.subkeys)]
        slots = slots_of(hash_keys(of_slot), SLOT_BITS)
        for frame, owned in ((self.here, self.owned), (self.there, FULL - self.owned)):
            at = np.flatnonzero(owned.mask(SLOT_BITS)[slots])
            yield frame, whole.take(pa.array(at)), at.tolist()

    def content(self, frame: Frame) -> dict[Row, Row]:
        return content(frame.to_arrow(), len(self.keys))

    def restored(self, *chunks: Chunk) -> dict[Row, Row]:
        frame = self.make()
        frame.restore(chunks)
        return self.content(frame)

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        numbers = [data.draw(st.integers(-5, 5)) for _ in keys]
        for frame, batch, at in self.by_home(keys):
            frame.add(batch, sum=[numbers[position] for position in at])
        for key, number in zip(keys, numbers, strict=True):
            total, *others = self.expected.get(key, (0, None, "none so far"))
            self.expected[key] = (total + number, *others)

    @rule(data=st.data())
    def lower(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        numbers = [data.draw(st.sampled_from([None, -1.5, 0.0, 7.0])) for _ in keys]
        for frame, batch, at in self.by_home(keys):
            frame.min(batch, least=[numbers[position] for position in at])
        for key, number in zip(keys, numbers, strict=True):
            total, least, text = self.expected.get(key, (0, None, "none so far"))
            known = [value for value in (least, number) if value is not None]
            self.expected[key] = (total, min(known, default=None), text)

    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        given = [data.draw(texts) for _ in keys]
        for frame, batch, at in self.by_home(keys):
            frame.put(batch, text=[given[position] for position in at])
        for key, text in zip(keys, given, strict=True):
            self.expected[key] = (*self.expected.get(key, (0, None, ""))[:2], text)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        deleted = sum(frame.delete(batch) for frame, batch, _ in self.by_home(keys))
        assert deleted == len({key for key in keys if key in self.expected})
        for key in keys:
            self.expected.pop(key, None)

    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        for frame, batch, at in self.by_home(keys):
            values, found = frame.get(batch)
            mine = [keys[position] for position in at]
            assert found.tolist() == [key in self.expected for key in mine]
            rows = zip(*(column.to_pylist() for column in values.columns), strict=True)
            assert list(rows) == [self.expected.get(key, (None, None, None)) for key in mine]

    @rule()
    def compact(self) -> None:
        self.here._compact(np.empty(0, np.int64))

    @rule(slots=slot_sets)
    def move_away(self, slots: SlotSet) -> None:
        slots &= self.owned
        self.there.restore([self.here.snapshot(slots)])
        self.here.drop(slots)
        self.owned -= slots

    @rule(slots=slot_sets)
    def move_back(self, slots: SlotSet) -> None:
        slots -= self.owned
        self.here.restore([self.there.snapshot(slots)])
        self.there.drop(slots)
        self.owned |= slots

    @rule(slots=slot_sets, since=st.integers(0, 3))
    def hand_over_a_checkpoint_and_what_changed_since(self, slots: SlotSet, since: int) -> None:
        slots &= self.owned
        mark = self.here.marks[min(since, len(self.here.marks) - 1)]
        self.there.restore([self.full_at[mark].select(slots)])
        self.there.restore([self.here.snapshot(slots, mark).select(slots)])
        self.here.drop(slots)
        self.owned -= slots

    @rule()
    def checkpoint(self) -> None:
        self.epoch += 1
        full = self.here.snapshot(FULL)
        self.chain.append(self.here.snapshot(FULL, self.here.marks[-1]) if self.chain else full)
        self.here.mark(self.epoch)
        self.full_at[self.epoch] = full
        self.release(keep=3)

    @rule(keep=st.integers(1, 2))
    def release(self, keep: int) -> None:
        epoch = self.here.marks[-keep:][0]
        self.here.release(epoch)
        self.full_at = {mark: full for mark, full in self.full_at.items() if mark >= epoch}
        assert self.here.marks == tuple(self.full_at)

    @rule()
    def recover(self) -> None:
        """What is restored from the chain goes on in place of the original."""
        self.checkpoint()
        last = self.content(self.here)
        assert self.restored(*self.chain) == self.restored(merge_chunks(self.chain)) == last
        self.here = self.make()
        self.here.restore(self.chain)
        self.chain, self.full_at = [], {}
        self.checkpoint()

    @precondition(lambda self: self.owned != FULL)
    @rule()
    def forget_what_is_elsewhere(self) -> None:
        for key in self.content(self.there):
            del self.expected[key]
        self.there.drop(FULL)

    @rule()
    def deltas_since_any_mark_complete_what_was_there(self) -> None:
        now = self.content(self.here)
        for mark, full in self.full_at.items():
            delta = self.here.snapshot(FULL, mark)
            assert self.restored(full, delta) == self.restored(merge_chunks([full, delta])) == now
            assert self.here.changed(mark) == len(delta.rows) + len(delta.deleted)
            assert not len(delta.select(delta.replaced).deleted)

    @rule()
    def parts_are_disjoint_cover_and_merge(self) -> None:
        parts = [self.here.snapshot(slots) for slots in split_evenly(FULL, 3)]
        assert sum(len(part.rows) for part in parts) == len(self.here)
        assert self.restored(merge_chunks(parts)) == self.content(self.here)

    def teardown(self) -> None:
        here, there = self.content(self.here), self.content(self.there)
        assert here | there == self.expected
        assert len(self.here) + len(self.there) == len(here) + len(there) == len(self.expected)
        assert self.here.rows_per_slot()[(FULL - self.owned).mask(SLOT_BITS)].sum() == 0
        self.deltas_since_any_mark_complete_what_was_there()


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
TestWithAWeakHash = WithAWeakHash.TestCase
TestWithAWeakHash.settings = short_runs


# --- columns of every type --------------------------------------------------------------------------------------------

TYPES: list[tuple[pa.DataType, Any, Any]] = [
    *((kind, 7, -3) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, 7, 2**8 - 1) for kind in (pa.uint8(), pa.uint16(), pa.uint32())),
    (pa.uint64(), 7, 2**64 - 1),
    *((kind, 0.5, math.inf) for kind in (pa.float32(), pa.float64())),
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
def test_a_value_can_be_of_any_type_of_up_to_64_bits_or_text(kind: pa.DataType, one: Any, other: Any) -> None:
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
