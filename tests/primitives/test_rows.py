"""Rows: every row with a key is found once, buckets that are over are gone; and deltas add up to what is held."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from primitives.errors import InternalError, UserError
from primitives.hashing import hash_key
from primitives.slots import SlotSet, slot_of, split_evenly
from primitives.state.chunk import Chunk, merge_chunks, read_chunk, write_chunk
from primitives.state.container import State
from primitives.state.rows import Rows

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])

Row = tuple[Any, int]

users = st.sampled_from([*"abcdef", None])
rows_of_users = st.lists(st.tuples(users, st.integers(0, 9)), max_size=9)
slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)


def bucket_of(n: int) -> int:
    return n // 3


def make_rows() -> Rows:
    return Rows(
        "bids",
        keys={"user": pa.string()},
        values={"n": pa.int64()},
        slot_bits=SLOT_BITS,
        bucket=lambda batch: batch.column("n").to_numpy() // 3,
    )


def as_batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"user": user, "n": n} for user, n in rows], SCHEMA)


def in_order(batch: pa.RecordBatch) -> list[Row]:
    pairs = zip(batch.column("user").to_pylist(), batch.column("n").to_pylist(), strict=True)
    return sorted(pairs, key=lambda row: (row[0] or "", row[1]))


def restored(*chunks: Chunk) -> list[Row]:
    rows = make_rows()
    rows.restore(chunks)
    return in_order(rows.to_arrow())


def content(rows: Rows) -> list[Row]:
    return restored(rows.snapshot(FULL))


@cache
def slot_of_user(user: Any) -> int:
    return slot_of(hash_key(user), SLOT_BITS)


class RowsOfTwoInstances(RuleBasedStateMachine):
    """One container under test, checkpointed all the time, and another with which it exchanges slots."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.there = make_rows(), make_rows()
        self.expected: Counter[Row] = Counter()  # of both together
        self.owned = FULL  # slots that are here; the others are there
        self.epoch = 0
        self.full_at: dict[int, Chunk] = {}  # full snapshot of each retained mark, as a backup holder has it
        self.chain: list[Chunk] = []  # a base, and a delta for each mark since
        self.checkpoint()

    def home(self, user: Any) -> Rows:
        return self.here if slot_of_user(user) in self.owned else self.there

    @initialize(rows=rows_of_users)
    def begin(self, rows: list[Row]) -> None:
        self.add(rows)

    @rule(rows=rows_of_users)
    def add(self, rows: list[Row]) -> None:
        for container in (self.here, self.there):
            container.add(as_batch([row for row in rows if self.home(row[0]) is container]))
        self.expected.update(rows)

    @rule(before=st.integers(0, 4), slots=st.just(FULL) | slot_sets)
    def expire(self, before: int, slots: SlotSet) -> None:
        def is_over(row: Row) -> bool:
            return bucket_of(row[1]) < before and slot_of_user(row[0]) in slots

        removed = self.here.expire(before, slots) + self.there.expire(before, slots)
        assert removed == sum(count for row, count in self.expected.items() if is_over(row))
        self.expected = Counter({row: count for row, count in self.expected.items() if not is_over(row)})

    @rule(wanted=st.lists(st.tuples(users, st.integers(0, 3)), max_size=5))
    def match(self, wanted: list[tuple[Any, int]]) -> None:
        found: Counter[tuple[int, Row]] = Counter()
        for container in (self.here, self.there):
            buckets = np.array([bucket for _, bucket in wanted], np.int64)
            positions, batch = container.match([[user for user, _ in wanted]], buckets)
            pairs = zip(batch.column("user").to_pylist(), batch.column("n").to_pylist(), strict=True)
            found.update(zip(positions.tolist(), pairs, strict=True))
        assert found == Counter(
            {
                (at, row): count
                for at, (user, bucket) in enumerate(wanted)
                for row, count in self.expected.items()
                if row[0] == user and bucket_of(row[1]) == bucket
            }
        )

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
    def restoring_a_delta_twice_changes_nothing_more(self) -> None:
        before = content(self.here)
        self.here.restore([self.here.snapshot(self.owned, self.here.marks[0]).select(self.owned)] * 2)
        assert content(self.here) == before

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
        self.here = make_rows()
        self.here.restore(self.chain)
        self.chain, self.full_at = [], {}
        self.checkpoint()

    @invariant()
    def both_hold_what_was_added(self) -> None:
        assert Counter(content(self.here) + content(self.there)) == self.expected
        assert len(self.here) + len(self.there) == self.expected.total()

    @invariant()
    def deltas_since_any_mark_complete_what_was_there(self) -> None:
        now = content(self.here)
        for mark, full in self.full_at.items():
            delta = self.here.snapshot(FULL, mark)
            assert restored(full, delta) == restored(merge_chunks([full, delta])) == now
            assert self.here.changed(mark) == len(delta.rows) + len(delta.deleted)
            assert not len(delta.select(delta.replaced).deleted)

    @invariant()
    def the_chain_of_deltas_is_the_last_mark(self) -> None:
        last = restored(self.full_at[self.here.marks[-1]])
        assert restored(*self.chain) == restored(merge_chunks(self.chain)) == last

    @invariant()
    def parts_are_disjoint_cover_and_merge(self) -> None:
        parts = [self.here.snapshot(slots) for slots in split_evenly(FULL, 3)]
        assert sum(len(part.rows) for part in parts) == len(self.here)
        assert restored(merge_chunks(parts)) == content(self.here)


class RowsThatAreCompactedAtOnce(RowsOfTwoInstances):
    """The same with containers that number their rows anew whenever more are dead than alive."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("primitives.state.rows._WORTH_COMPACTING", 0)
        super().__init__()

    def teardown(self) -> None:
        self.patch.undo()


TestRowsOfTwoInstances = RowsOfTwoInstances.TestCase
TestRowsOfTwoInstances.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestRowsThatAreCompactedAtOnce = RowsThatAreCompactedAtOnce.TestCase
TestRowsThatAreCompactedAtOnce.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)


# --- looking up -------------------------------------------------------------------------------------------------------


def plain_rows(**values: pa.DataType) -> Rows:
    return Rows("bids", keys={"k": pa.int64()}, values=values or {"n": pa.int64()}, slot_bits=SLOT_BITS)


def test_without_buckets_all_rows_of_a_key_are_found() -> None:
    rows = plain_rows()
    rows.add(pa.record_batch({"k": [1, 2, 1], "n": [10, 20, 30]}))
    rows.add(pa.record_batch({"k": [1], "n": [10]}))
    positions, found = rows.match([[3, 1]])
    assert sorted(zip(positions.tolist(), found["n"].to_pylist(), strict=True)) == [(1, 10), (1, 10), (1, 30)]


def test_many_rows_of_many_batches_are_found_as_a_dictionary_would() -> None:
    rng = np.random.default_rng(1)
    rows, by_key = plain_rows(), Counter[tuple[int, int]]()
    for _ in range(40):
        keys, numbers = rng.integers(0, 300, 500), rng.integers(0, 50, 500)
        rows.add(pa.record_batch({"k": keys, "n": numbers}))
        by_key.update(zip(keys.tolist(), numbers.tolist(), strict=True))
    wanted = np.arange(290, 310)
    positions, found = rows.match([wanted])
    assert found["k"].to_numpy().tolist() == wanted[positions].tolist()
    pairs = Counter(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))
    assert pairs == Counter({pair: count for pair, count in by_key.items() if pair[0] >= 290})


def test_keys_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def same_hash(columns: Any) -> np.ndarray[Any, Any]:
        return np.full(len(columns[0]), 5, np.uint64)

    monkeypatch.setattr("primitives.state.rows.hash_keys", same_hash)
    rows = plain_rows()
    rows.add(pa.record_batch({"k": [1, 2, None], "n": [10, 20, 30]}))
    assert rows.match([[2, 3]])[1]["n"].to_pylist() == [20]


def test_null_and_nan_and_zero_are_keys_like_any_other() -> None:
    rows = Rows("bids", keys={"k": pa.float64()}, values={"n": pa.int64()})
    rows.add(pa.record_batch({"k": pa.array([None, math.nan, -0.0]), "n": [1, 2, 3]}))
    positions, found = rows.match([[0.0, math.nan, None]])
    assert sorted(zip(positions.tolist(), found["n"].to_pylist(), strict=True)) == [(0, 3), (1, 2), (2, 1)]


def test_rows_are_found_by_several_keys_of_several_types() -> None:
    rows = Rows("bids", keys={"item": pa.int32(), "bidder": pa.string()}, values={"n": pa.int64()})
    rows.add(pa.record_batch({"item": pa.array([1, 1], pa.int32()), "bidder": ["x", "y"], "n": [1, 2]}))
    assert rows.match([[1, 2], ["y", "y"]])[1].to_pylist() == [{"item": 1, "bidder": "y", "n": 2}]


def test_values_may_be_of_nested_types_and_others_are_left_alone() -> None:
    rows = plain_rows(tags=pa.list_(pa.string()), at=pa.decimal128(5, 2))
    given = pa.record_batch({"k": [1], "tags": [["a", None]], "at": pa.array([1], pa.decimal128(5, 2)), "more": [0]})
    rows.add(given)
    assert rows.match([[1]])[1].to_pylist() == given.select(["k", "tags", "at"]).to_pylist()
    assert read_chunk(write_chunk(rows.snapshot(FULL))).rows.num_rows == 1


def test_without_any_row_nothing_is_found_and_the_columns_are_those_declared() -> None:
    positions, found = make_rows().match([["a"]], np.array([0]))
    assert not len(positions)
    assert found.schema == SCHEMA
    assert make_rows().size() == make_rows().expire(10) == 0


# --- removing ---------------------------------------------------------------------------------------------------------


def test_expired_rows_give_their_memory_back_and_the_others_are_still_found() -> None:
    rows = Rows(
        "bids", keys={"k": pa.int64()}, values={"n": pa.int64()}, bucket=lambda batch: batch.column("n").to_numpy()
    )
    for window in range(20):
        rows.add(pa.record_batch({"k": np.arange(20_000), "n": np.full(20_000, window)}))
        rows.expire(window)
    assert len(rows) == 20_000
    assert rows._pile.nbytes < 5 * 20_000 * 16
    assert rows.match([[7, 7]], np.array([18, 19]))[1].to_pylist() == [{"k": 7, "n": 19}]


def test_to_expire_when_nothing_is_old_enough_does_not_look_at_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows()
    rows.add(as_batch([("a", 6), ("b", 9)]))
    monkeypatch.setattr(rows, "_remove", None)
    assert rows.expire(2) == 0


def test_rows_that_come_and_go_between_marks_are_in_no_delta() -> None:
    rows = make_rows()
    rows.mark(1)
    rows.add(as_batch([("a", 0), ("b", 9)]))
    rows.expire(1)
    delta = rows.snapshot(FULL, 1)
    assert (len(delta.rows), len(delta.deleted)) == (1, 0)


def test_a_row_that_came_after_a_mark_is_deleted_only_for_those_who_have_it() -> None:
    rows = make_rows()
    rows.mark(1)
    rows.add(as_batch([("a", 0)]))
    rows.mark(2)
    rows.expire(1)
    assert [len(rows.snapshot(FULL, since).deleted) for since in (1, 2)] == [0, 1]


def test_a_key_gets_no_number_twice_when_its_slot_moves_on() -> None:
    first, second = make_rows(), make_rows()
    first.add(as_batch([("a", 1), ("a", 2)]))
    second.restore([first.snapshot(FULL)])
    second.add(as_batch([("a", 3)]))
    assert len(set(second.snapshot(FULL).rows.column("_seq").to_pylist())) == 3


# --- input that does not fit ------------------------------------------------------------------------------------------


def test_columns_that_do_not_fit_are_named() -> None:
    with pytest.raises(UserError, match="column 'n' of state 'bids' is int64, but string in the batch"):
        plain_rows().add(pa.record_batch({"k": [1], "n": ["x"]}))
    with pytest.raises(UserError, match="state 'bids' has a column 'n', which the batch lacks"):
        plain_rows().add(pa.record_batch({"k": [1]}))
    with pytest.raises(UserError, match="column '_seq' of state 'bids': this name is taken"):
        plain_rows(_seq=pa.int64())
    with pytest.raises(UserError, match="column 'k' of state 'bids': this name is taken"):
        plain_rows(k=pa.int64())


def test_a_chunk_of_another_version_or_with_other_columns_is_refused() -> None:
    chunk = plain_rows().snapshot(FULL)
    with pytest.raises(UserError, match="version 3"):
        Rows("bids", {"k": pa.int64()}, {"n": pa.int64()}, slot_bits=SLOT_BITS, version=3).restore([chunk])
    with pytest.raises(UserError, match="column 'n' of state 'bids' is string"):
        plain_rows(n=pa.string()).restore([chunk])


def test_a_delta_since_an_unknown_mark_is_refused() -> None:
    with pytest.raises(InternalError, match="epoch 7"):
        make_rows().snapshot(FULL, 7)


def test_it_is_a_state() -> None:
    state: State = make_rows()
    assert state.size() == 0
    assert state.marks == ()


def test_the_size_of_some_slots_is_their_share_of_the_whole() -> None:
    rows = plain_rows()
    rows.add(pa.record_batch({"k": np.arange(1000), "n": np.arange(1000)}))
    parts = [rows.size(slots) for slots in split_evenly(FULL, 4)]
    assert sum(parts) == rows.size() == rows.snapshot(FULL).nbytes
