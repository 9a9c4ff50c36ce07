"""Timers: what is scheduled comes back once, in order, in the slots asked for; and deltas add up to what is held."""

from __future__ import annotations

import math
import random
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
from primitives.state.timers import Timers

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)
LATEST = 2**63 - 1

Record = tuple[int, Any, Any]

times = st.integers(0, 5)
users = st.sampled_from([*"abcdef", None])
slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)
stops = st.lists(st.tuples(times, users), min_size=1, max_size=9)


def make_timers() -> Timers:
    return Timers("windows", keys={"user": pa.string()}, value=pa.int64(), slot_bits=SLOT_BITS)


def popped(timers: Timers, watermark: int = LATEST, slots: SlotSet | None = None) -> list[Record]:
    return list(timers.records(timers.pop(watermark, slots)))


def restored(*chunks: Chunk) -> list[Record]:
    timers = make_timers()
    timers.restore(chunks)
    return popped(timers)


def content(timers: Timers) -> list[Record]:
    return restored(timers.snapshot(FULL))


@cache
def slot_of_user(user: Any) -> int:
    return slot_of(hash_key(user), SLOT_BITS)


def in_order(records: list[Record]) -> list[Record]:
    """As they are to be popped; of one time and key, the numbers that the test gives as values grow."""
    return sorted(records, key=lambda record: (record[0], record[1] is None, record[1] or "", record[2]))


class TimersOfTwoInstances(RuleBasedStateMachine):
    """One container under test, checkpointed all the time, and another with which it exchanges slots."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.there = make_timers(), make_timers()
        self.expected: list[Record] = []  # of both together
        self.number = 0
        self.owned = FULL  # slots that are here; the others are there
        self.epoch = 0
        self.full_at: dict[int, Chunk] = {}  # full snapshot of each retained mark, as a backup holder has it
        self.chain: list[Chunk] = []  # a base, and a delta for each mark since
        self.checkpoint()

    def home(self, user: Any) -> Timers:
        return self.here if slot_of_user(user) in self.owned else self.there

    def numbers(self, count: int) -> list[int]:
        self.number += count
        return list(range(self.number - count, self.number))

    @initialize(stops=stops)
    def begin(self, stops: list[tuple[int, Any]]) -> None:
        self.schedule_batch(stops)

    @rule(time=times, user=users)
    def schedule(self, time: int, user: Any) -> None:
        (number,) = self.numbers(1)
        self.home(user).schedule(time, user, number)
        self.expected.append((time, user, number))

    @rule(stops=stops)
    def schedule_batch(self, stops: list[tuple[int, Any]]) -> None:
        for timers in (self.here, self.there):
            mine = [stop for stop in stops if self.home(stop[1]) is timers]
            numbers = self.numbers(len(mine))
            timers.schedule_batch([time for time, _ in mine], [[user for _, user in mine]], numbers)
            self.expected += [(time, user, number) for (time, user), number in zip(mine, numbers, strict=True)]

    @rule(time=times, user=users)
    def cancel(self, time: int, user: Any) -> None:
        self.home(user).cancel(time, user)
        self.expected = [record for record in self.expected if record[:2] != (time, user)]

    @rule(stops=stops)
    def cancel_many(self, stops: list[tuple[int, Any]]) -> None:
        for time, user in stops:
            self.home(user).cancel(time, user)
        self.expected = [record for record in self.expected if record[:2] not in stops]

    @rule(watermark=times, slots=st.just(FULL) | slot_sets)
    def pop(self, watermark: int, slots: SlotSet) -> None:
        def is_due(record: Record) -> bool:
            return record[0] <= watermark and slot_of_user(record[1]) in slots & self.owned

        assert popped(self.here, watermark, slots) == in_order(list(filter(is_due, self.expected)))
        self.expected = [record for record in self.expected if not is_due(record)]

    @rule(watermark=times)
    def pop_elsewhere(self, watermark: int) -> None:
        gone = popped(self.there, watermark)
        assert all(slot_of_user(user) not in self.owned for _, user, _ in gone)
        self.expected = [record for record in self.expected if record not in gone]

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
        self.here = make_timers()
        self.here.restore(self.chain)
        self.chain, self.full_at = [], {}
        self.checkpoint()

    @invariant()
    def both_hold_what_was_scheduled(self) -> None:
        assert in_order(content(self.here) + content(self.there)) == in_order(self.expected)
        assert len(self.here) + len(self.there) == len(self.expected)

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


TestTimersOfTwoInstances = TimersOfTwoInstances.TestCase
TestTimersOfTwoInstances.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


# --- popping ----------------------------------------------------------------------------------------------------------


def test_records_come_in_order_of_time_then_key_then_scheduling() -> None:
    timers = make_timers()
    timers.schedule_batch([2, 1, 2, 1], [["a", "b", None, "a"]], [1, 2, 3, 4])
    timers.schedule(1, "b", 5)
    timers.schedule_batch([1], [["b"]], [6])
    assert popped(timers, 2) == [(1, "a", 4), (1, "b", 2), (1, "b", 5), (1, "b", 6), (2, "a", 1), (2, None, 3)]


def test_the_watermark_is_included_and_what_is_later_stays() -> None:
    timers = make_timers()
    timers.schedule_batch([9, 10, 11], [["a", "a", "a"]])
    assert [time for time, _, _ in popped(timers, 10)] == [9, 10]
    assert [time for time, _, _ in popped(timers, 11)] == [11]
    assert popped(timers) == []


def test_what_is_popped_has_columns_of_time_keys_and_value() -> None:
    timers = Timers("bids", keys={"item": pa.int32(), "bidder": pa.string()}, value=pa.float64())
    timers.schedule(1, (7, "x"), 2.5)
    expected = pa.schema([("time", pa.int64()), ("item", pa.int32()), ("bidder", pa.string()), ("value", pa.float64())])
    assert timers.pop(1).schema == expected
    assert timers.pop(1).schema == expected


def test_due_records_of_other_slots_stay_and_come_later() -> None:
    timers = make_timers()
    timers.schedule_batch([1] * 6, [list("abcdef")], range(6))
    slots = SlotSet([slot_of_user("a")])
    first = {user for _, user, _ in popped(timers, 5, slots)}
    assert first == {user for user in "abcdef" if slot_of_user(user) in slots}
    assert {user for _, user, _ in popped(timers, 5)} == set("abcdef") - first


def test_a_record_that_is_late_comes_at_once() -> None:
    timers = make_timers()
    timers.schedule(10, "a")
    timers.pop(10)
    timers.schedule(3, "a", 1)
    assert popped(timers, 10) == [(3, "a", 1)]


@pytest.mark.parametrize("batch", [10, 100, 3000])
def test_many_records_in_batches_come_back_once_each_and_in_order(batch: int) -> None:
    rng = np.random.default_rng(batch)
    timers = Timers("many", keys={"id": pa.int64()}, value=pa.int64())
    left: list[Record] = []
    for now in range(0, 3000, batch):
        rows = [
            (int(now + ahead), int(key), now + at) for at, (ahead, key) in enumerate(rng.integers(0, 500, (batch, 2)))
        ]
        timers.schedule_batch(
            *([list(column)] if at == 1 else list(column) for at, column in enumerate(zip(*rows, strict=True)))
        )
        left += rows
        assert popped(timers, now) == sorted(row for row in left if row[0] <= now)
        left = [row for row in left if row[0] > now]
        assert len(timers) == len(left)
    assert popped(timers) == sorted(left)


def test_keys_that_are_floats_sort_by_value_then_nan_then_null() -> None:
    timers = Timers("scores", keys={"score": pa.float64()}, value=pa.int64())
    timers.schedule_batch([1, 1, 1, 1], [[None, math.nan, -1.0, 7.0]], [1, 2, 3, 4])
    assert [value for _, _, value in timers.records(timers.pop(1))] == [3, 4, 2, 1]


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_cancelling_removes_all_records_of_one_time_and_key_and_no_others() -> None:
    timers = make_timers()
    timers.schedule_batch([1, 1, 1, 2], [["a", "a", "b", "a"]], [1, 2, 3, 4])
    timers.cancel(1, "a")
    assert popped(timers) == [(1, "b", 3), (2, "a", 4)]


def test_what_is_scheduled_after_cancelling_stays() -> None:
    timers = make_timers()
    timers.schedule(1, "a", 1)
    timers.cancel(1, "a")
    timers.schedule(1, "a", 2)
    timers.schedule_batch([1], [["a"]], [3])
    assert popped(timers) == [(1, "a", 2), (1, "a", 3)]


def test_to_cancel_what_is_not_there_does_nothing() -> None:
    timers = make_timers()
    timers.cancel(1, "a")
    timers.cancel(1, "b")
    timers.schedule(2, "a", 1)
    timers.cancel(2, "b")
    timers.cancel(3, "a")
    assert popped(timers) == [(2, "a", 1)]


def test_null_and_nan_keys_can_be_cancelled() -> None:
    timers = Timers("scores", keys={"score": pa.float64()})
    timers.schedule_batch([1, 1, 1], [[None, math.nan, 0.0]])
    timers.cancel(1, None)
    timers.cancel(1, math.nan)
    timers.cancel(1, -0.0)
    assert len(timers) == 0


def test_keys_with_the_same_hash_are_told_apart_when_cancelling(monkeypatch: pytest.MonkeyPatch) -> None:
    def same_hash(columns: Any) -> np.ndarray[Any, Any]:
        return np.full(len(columns[0]), 5, np.uint64)

    monkeypatch.setattr("primitives.state.timers.hash_keys", same_hash)
    timers = make_timers()
    timers.schedule_batch([1, 1, 1], [["a", "b", None]], [1, 2, 3])
    timers.cancel(1, "b")
    assert popped(timers) == [(1, "a", 1), (1, None, 3)]


def test_a_session_that_is_extended_again_and_again_leaves_one_timer() -> None:
    timers = Timers("sessions", keys={"user": pa.int64()})
    for now in range(200):
        for user in range(3):
            timers.cancel(now + 9, user)
            timers.schedule(now + 10, user)
        assert len(timers) == 3
    assert [time for time, _, _ in timers.records(timers.pop(LATEST))] == [209] * 3


# --- values and input -------------------------------------------------------------------------------------------------


def test_without_a_declared_type_values_are_any_python_objects() -> None:
    timers = Timers("any", keys={"id": pa.int64()})
    timers.schedule(1, 1, {"a": (1, 2)})
    timers.schedule_batch([2, 3], [[1, 1]], [{3}, None])
    assert list(timers.records(timers.pop(3))) == [(1, 1, {"a": (1, 2)}), (2, 1, {3}), (3, 1, None)]


def test_a_value_is_taken_as_it_is_when_scheduled() -> None:
    timers = Timers("any", keys={"id": pa.int64()})
    value = [1]
    timers.schedule(1, 1, value)
    value.append(2)
    assert list(timers.records(timers.pop(1))) == [(1, 1, [1])]


def test_arrays_given_may_be_written_to_afterwards() -> None:
    timers = Timers("many", keys={"id": pa.int64()}, value=pa.int64())
    column = np.array([1, 2])
    timers.schedule_batch(column, [column], column)
    column[:] = 9
    assert list(timers.records(timers.pop(5))) == [(1, 1, 1), (2, 2, 2)]


def test_columns_may_be_arrow_numpy_or_lists_of_any_width_and_layout() -> None:
    timers = Timers("many", keys={"id": pa.int32(), "word": pa.string()}, value=pa.float32())
    words = pa.chunked_array([["a"], ["b"]]).dictionary_encode()
    timers.schedule_batch(np.array([1, 2], np.uint8), [pa.array([1, 2], pa.int64()), words], [1, 2.5])
    assert list(timers.records(timers.pop(5))) == [(1, (1, "a"), 1.0), (2, (2, "b"), 2.5)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([1.5], [["a"]], [1]), "times given to state 'windows' are not 64-bit integers"),
        (([None], [["a"]], [1]), "1 of the times given to state 'windows' are null"),
        (([2**63], [["a"]], [1]), "times given to state 'windows' are not 64-bit integers"),
        (([1], [[7]], [1]), "key column 'user' of state 'windows': the column is not of type string"),
        (([1], [["a", "b"]], [1]), "key column 'user' of state 'windows': 2 rows, but there are 1 times"),
        (([1], [], [1]), "state 'windows' has key columns user; got 0 columns"),
        (([1], [["a"]], [1, 2]), "state 'windows' was given 1 times, but 2 values"),
        (([1], [["a"]], ["x"]), "values given to state 'windows' are not int64"),
        (([1], [["a"]], [1.5]), "values given to state 'windows' are not int64"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_by_column(columns: Any, message: str) -> None:
    timers = make_timers()
    with pytest.raises(UserError, match=message):
        timers.schedule_batch(*columns)
    assert len(timers) == 0


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("1", "a", 1), "time '1' of state 'windows' is not a 64-bit integer"),
        ((2**63, "a", 1), "is not a 64-bit integer"),
        ((1, 7, 1), "key column 'user' of state 'windows': 7 of type int"),
        ((1, "\ud800", 1), "key column 'user' of state 'windows': .* is not valid Unicode"),
        ((1, "a", "x"), "state 'windows' cannot store the str of key 'a' as int64"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_when_scheduled(record: Any, message: str) -> None:
    timers = make_timers()
    with pytest.raises(UserError, match=message):
        timers.schedule(*record)
    assert len(timers) == 0


def test_an_object_in_a_batch_that_cannot_be_stored_is_named_by_key() -> None:
    timers = Timers("any", keys={"id": pa.int64()})
    with pytest.raises(UserError, match=r"state 'any' cannot store the object of key 8 as msgpack: builtins\.object"):
        timers.schedule_batch([1, 2], [[7, 8]], [1, object()])


@pytest.mark.parametrize("name", ["time", "seq", "value"])
def test_a_key_column_named_as_one_of_the_container_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"key column '{name}'.*this name is taken"):
        Timers("windows", keys={name: pa.int64()})


# --- as a State -------------------------------------------------------------------------------------------------------


def test_it_is_a_state() -> None:
    state: State = make_timers()
    assert (state.name, state.slot_bits, state.marks) == ("windows", SLOT_BITS, ())


def test_a_chunk_comes_back_through_bytes() -> None:
    timers = make_timers()
    timers.schedule_batch([1, 1], [["a", None]], [1, None])
    assert restored(read_chunk(write_chunk(timers.snapshot(FULL)))) == [(1, "a", 1), (1, None, None)]


def test_records_scheduled_after_a_move_follow_those_that_moved() -> None:
    here, there = make_timers(), make_timers()
    here.schedule_batch([1, 1], [["a", "a"]], [1, 2])
    there.restore([here.snapshot(FULL)])
    there.schedule(1, "a", 3)
    assert popped(there) == [(1, "a", 1), (1, "a", 2), (1, "a", 3)]


def test_a_timer_fired_elsewhere_does_not_come_back_with_its_slot() -> None:
    here, there = make_timers(), make_timers()
    here.schedule_batch([1] * 6, [list("abcdef")], range(6))
    base = here.snapshot(FULL)
    here.mark(1)
    slots = SlotSet([slot_of_user("a")])
    there.restore([here.snapshot(slots)])
    here.drop(slots)
    there.pop(1)
    there.schedule(2, "a", 7)
    here.restore([there.snapshot(slots)])
    delta = here.snapshot(FULL, 1)
    assert delta.replaced == slots
    assert restored(base, delta) == restored(merge_chunks([base, delta])) == content(here)
    assert (1, "a", 0) not in content(here)


def test_records_that_came_and_went_between_marks_are_not_in_a_delta() -> None:
    timers = make_timers()
    timers.mark(1)
    timers.schedule_batch([1, 2], [["a", "b"]])
    timers.pop(1)
    delta = timers.snapshot(FULL, 1)
    assert (len(delta.rows), len(delta.deleted), timers.changed(1)) == (1, 0, 1)


def test_what_is_scheduled_before_a_mark_is_not_in_a_delta_since_it() -> None:
    timers = make_timers()
    timers.schedule(1, "a", 1)
    timers.mark(1)
    assert timers.changed(1) == 0
    timers.cancel(1, "a")
    assert timers.snapshot(FULL, 1).deleted.column("time").to_pylist() == [1]


def test_a_delta_of_some_slots_names_all_replaced_ones_and_carries_only_those_asked_for() -> None:
    timers = make_timers()
    timers.schedule_batch([1] * 6, [list("abcdef")], range(6))
    timers.mark(1)
    timers.drop(SlotSet([3]))
    timers.restore([timers.snapshot(SlotSet([2]))])
    delta = timers.snapshot(SlotSet([1]), 1)
    assert delta.replaced == SlotSet([2, 3])
    assert not len(delta.rows)


def test_what_changed_since_an_epoch_without_mark_is_refused() -> None:
    timers = make_timers()
    timers.mark(5)
    with pytest.raises(InternalError, match=r"no mark at epoch 4, only at \[5\]"):
        timers.snapshot(FULL, 4)


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (
            Timers("other", {"user": pa.string()}, value=pa.int64(), slot_bits=SLOT_BITS),
            InternalError,
            "name 'windows'",
        ),
        (Timers("windows", {"user": pa.string()}, value=pa.int8(), slot_bits=SLOT_BITS), UserError, "column 'value'"),
        (Timers("windows", {"user": pa.int64()}, value=pa.int64(), slot_bits=SLOT_BITS), UserError, "column 'user'"),
    ],
)
def test_a_chunk_of_other_state_is_refused(other: Timers, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_timers().restore([other.snapshot(FULL)])


def test_size_follows_the_rows_in_the_slots_and_what_is_popped() -> None:
    timers = Timers("many", keys={"id": pa.int64()}, value=pa.int64())
    timers.schedule_batch(np.arange(10_000), [np.arange(10_000)], np.arange(10_000))
    full = timers.size()
    assert full == timers.snapshot(SlotSet.full(8)).nbytes
    assert 0.45 * full < timers.size(SlotSet.range(0, 127)) < 0.55 * full
    timers.pop(4_999)
    assert timers.size() == full // 2
    timers.drop(SlotSet.full(8))
    assert (timers.size(), len(timers)) == (0, 0)


def test_memory_of_removed_records_is_given_back() -> None:
    timers = Timers("many", keys={"id": pa.int64()}, value=pa.int64())
    order = random.Random(1).sample(range(10_000), 10_000)
    empty = pa.total_allocated_bytes()
    timers.schedule_batch(order, [order])
    full = pa.total_allocated_bytes()
    for each in order[:8_000]:
        timers.cancel(each, each)
    assert len(timers) == 2_000
    assert pa.total_allocated_bytes() - empty < (full - empty) / 2
