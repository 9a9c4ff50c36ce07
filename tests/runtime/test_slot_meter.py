"""Rows by slot: counted within a budget of time, told in few bytes, put together to the loads of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import seep
from policies.balance.loads import Heaviest
from primitives.graph import Edge, InstanceId
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.processing import Containers
from primitives.topology import Assignment
from seep.channels.wire import decode, encode
from seep.node.slot_meter import MeteredOperators, SlotMeter
from seep.protocol.logic import Piece
from seep.protocol.view import Incarnation
from seep.record.reports import SlotRows
from seep.record.slots.counts import HottestSlot, SlotCounts
from tests.record.kit import Recorded, figures, launched

BITS = 4
SLOTS = 1 << BITS
COUNTER = Incarnation(InstanceId("counter", 0), 0)


class Nothing:
    """A logic that only notes what it was given."""

    def __init__(self) -> None:
        self.state = Containers()
        self.pieces: list[Piece[pa.RecordBatch]] = []

    def process(self, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
        self.pieces.append(piece)
        return {}

    def changed(self, since: int) -> int:
        return since


@dataclass
class Clocks:
    """CPU time that passes by `step` with every look at it, and time that does not."""

    step: float = 0.0
    cpu: float = 0.0
    now: float = 0.0
    wanted: bool = True
    logic: Nothing = field(default_factory=Nothing)

    def look(self) -> float:
        self.cpu += self.step
        return self.cpu

    def meter(self, slot_bits: int = BITS) -> SlotMeter:
        return SlotMeter(self.logic, {0: ("key",)}, slot_bits, lambda: self.wanted, self.look, lambda: self.now)


def batch(keys: Any) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array(keys)})


def piece(*batches: pa.RecordBatch, epoch: int = 1) -> Piece[pa.RecordBatch]:
    return Piece(epoch, {0: batches}, 0, SlotSet.full(BITS))


def by_slot(keys: Any, slot_bits: int = BITS) -> NDArray[np.int64]:
    return np.bincount(slots_of(hash_keys([pa.array(keys)]), slot_bits), minlength=1 << slot_bits)


def rows_of(told: SlotRows, slots: int = SLOTS) -> list[int]:
    first, rows = told.first, told.counts
    found = np.zeros(slots, np.int64)
    found[first : first + len(rows)] = rows
    return found.tolist()


def told(
    keys: Any,
    cpu: float = 1.0,
    seconds: float = 2.0,
    epochs: int = 40,
    heaviest: tuple[int, str, float] | None = None,
) -> SlotRows:
    return SlotRows.of(by_slot(keys), cpu, seconds, epochs, heaviest)


# -- counting ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 99), max_size=30), min_size=1, max_size=5))
def test_every_row_is_told_once_under_the_slot_of_its_key(epochs: list[list[int]]) -> None:
    clocks = Clocks()
    meter, found = clocks.meter(), np.zeros(SLOTS, np.int64)
    for epoch, keys in enumerate(epochs, 1):
        batches = [batch(pa.array(part, pa.int64())) for part in (keys, keys[:3])]
        meter.process(piece(*batches, epoch=epoch))
        part = meter.take()
        found += rows_of(part) if part else 0
    everything = [key for keys in epochs for key in (*keys, *keys[:3])]
    assert found.tolist() == by_slot(pa.array(everything, pa.int64())).tolist()
    assert len(clocks.logic.pieces) == len(epochs), "all of it goes to the operator"


def test_epochs_for_which_there_is_no_time_count_like_the_others() -> None:
    clocks = Clocks(step=0.001)
    meter = clocks.meter()
    for epoch in range(300):
        meter.process(piece(batch([1] * 30 + [2] * 10), epoch=epoch))
        clocks.cpu += 0.01
    assert meter._counted < meter._rows == 300 * 40
    part = meter.take()
    assert part is not None
    assert rows_of(part) == (300 * by_slot([1] * 30 + [2] * 10)).tolist()


@pytest.mark.parametrize("cost", [0.001, 0.005, 0.02])
def test_counting_takes_a_hundredth_of_the_cpu_time(cost: float) -> None:
    clocks = Clocks(step=cost)
    meter = clocks.meter()
    for epoch in range(2000):
        meter.process(piece(batch([1, 2, 3]), epoch=epoch))
        clocks.cpu += 0.05
    epochs_counted = meter._counted // 3
    assert 0.009 * clocks.cpu < epochs_counted * cost < 0.01 * clocks.cpu + 0.005 + cost


def test_what_nobody_wants_to_know_is_not_counted() -> None:
    clocks = Clocks(wanted=False)
    meter = clocks.meter()
    meter.process(piece(batch([1, 2])))
    assert meter.take() is None
    clocks.wanted = True
    clocks.now = 9.0
    meter.process(piece(batch([3])))
    part = meter.take()
    assert part is not None
    assert rows_of(part) == by_slot([3]).tolist()
    assert part.seconds == 9.0, "since it was asked the last time, in vain"


def test_epochs_are_told_though_nothing_came_in() -> None:
    clocks = Clocks()
    meter = clocks.meter()
    assert meter.take() is None, "there was no epoch yet"
    meter.process(piece(batch(pa.array([], pa.int64())), epoch=1))
    meter.process(piece(epoch=1))  # the other piece of the same epoch
    meter.process(piece(epoch=2))
    clocks.now = 1.5
    part = meter.take()
    assert part is not None
    assert (part.seconds, part.epochs) == (1.5, 2)
    assert rows_of(part) == [0] * SLOTS


def test_counts_that_take_long_to_be_told_are_told_less_often() -> None:
    clocks = Clocks(step=0.001)  # a look at the clock when it begins, and one when it is over
    meter = clocks.meter()
    meter.process(piece(batch([1])))
    assert meter.take() is not None
    clocks.cpu += 10.0
    meter.process(piece(batch([1]), epoch=2))
    clocks.now = 0.09
    assert meter.take() is None
    clocks.now = 0.11
    assert meter.take() is not None


def test_the_cpu_time_of_rows_is_that_of_the_operator_without_the_counting() -> None:
    clocks = Clocks()
    meter, spent = clocks.meter(), iter((0.25, 0.5))

    class Busy(Nothing):
        def process(self, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
            clocks.cpu += next(spent)
            return super().process(piece)

    meter.logic = Busy()
    meter.process(piece(batch([1]), epoch=1))
    clocks.cpu += 7.0
    meter.process(piece(batch([1]), epoch=2))
    part = meter.take()
    assert part is not None
    assert part.cpu == 0.75


def test_the_heaviest_key_of_the_hottest_slot_is_told_with_its_share_of_the_slot() -> None:
    numbers = list(range(2000))
    slots = slots_of(hash_keys([pa.array(numbers)]), BITS).tolist()
    hottest = [n for n in numbers if slots[n] == 3][:4]
    meter = Clocks().meter()
    meter.process(piece(batch(hottest * 10 + [hottest[2]] * 60 + numbers[:20])))
    part = meter.take()
    assert part is not None
    assert part.heaviest is not None
    slot, key, share = part.heaviest
    others = sum(slots[n] == 3 for n in numbers[:20])
    heavy = 70 + (hottest[2] < 20)
    assert (slot, key, share) == (3, str(hottest[2]), pytest.approx(heavy / (100 + others)))


def test_the_heaviest_key_is_text_of_all_its_columns_and_of_bounded_length() -> None:
    meter = SlotMeter(Nothing(), {0: ("city", "n")}, BITS, lambda: True, lambda: 0.0, lambda: 0.0)
    rows = pa.record_batch({"n": [7] * 5, "city": ["Leuven"] * 5, "other": range(5)})
    meter.process(piece(rows))
    part = meter.take()
    assert part is not None
    assert part.heaviest is not None
    assert part.heaviest[1:] == ("Leuven, 7", 1.0)
    meter.process(piece(pa.record_batch({"n": [1], "city": ["x" * 500]}), epoch=2))
    part = meter.take()
    assert part is not None
    assert part.heaviest is not None
    assert part.heaviest[1] == "x" * 80


def test_a_key_of_all_columns_is_counted_by_whole_rows() -> None:
    meter = SlotMeter(Nothing(), {0: ()}, BITS, lambda: True, lambda: 0.0, lambda: 0.0)
    rows = pa.record_batch({"a": range(50), "b": range(50, 100)})
    meter.process(piece(rows))
    part = meter.take()
    assert part is not None
    slots = slots_of(hash_keys(rows.columns), BITS)
    assert rows_of(part) == np.bincount(slots, minlength=SLOTS).tolist()


def test_a_meter_is_the_logic_it_measures_in_all_other_respects() -> None:
    clocks = Clocks()
    meter = clocks.meter()
    assert meter.state is clocks.logic.state
    assert meter.changed(7) == 7


def test_instances_of_operators_with_more_than_one_slot_get_a_meter() -> None:
    query = seep.Query("words")
    schema = pa.schema([("word", pa.string())])
    words = query.source("words", seep.sources.generator(lambda *_: {}, schema)).key_by("word")
    words.aggregate("many", n=seep.count()).sink("out", seep.sinks.collect())
    words.aggregate("one", slot_bits=0, n=seep.count()).sink("other", seep.sinks.collect())
    metered = MeteredOperators(query.compile(), lambda: {"many"})
    many = metered.logic("many")
    assert isinstance(many, SlotMeter)
    assert not isinstance(metered.logic("one"), SlotMeter)
    rows = pa.record_batch({"word": ["a", "b", "a"]})
    many.process(piece(rows))
    part = many.take()
    assert part is not None
    assert sum(rows_of(part, 256)) == 3
    assert metered.source("words") is not None


# -- on the wire ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40))
def test_counts_come_through_the_wire_as_they_were(counts: list[int]) -> None:
    assert rows_of(decode(encode(SlotRows.of(np.array(counts)))), len(counts)) == counts


def test_the_counts_of_a_million_slots_take_a_byte_each_if_they_are_small() -> None:
    assert len(SlotRows.of(np.full(1 << 20, 200)).rows) == 1 << 20


# -- put together -----------------------------------------------------------------------------------------------------

HALVES = Assignment.contiguous(2, BITS)
OTHER = Incarnation(InstanceId("counter", 1), 0)


def test_a_window_has_the_rows_of_all_instances() -> None:
    counts = SlotCounts({"counter": BITS})
    counts.take(COUNTER, told([1, 2, 3]), 1.0)
    counts.take(OTHER, told([1, 5, 6]), 1.0)
    window = counts.end_window("counter", 2.0, HALVES, SlotSet([3]))
    assert window.rows.tolist() == by_slot([1, 2, 3, 1, 5, 6]).tolist()
    assert (window.seconds, window.assignment, window.moving) == (2.0, HALVES, SlotSet([3]))
    assert not counts.end_window("counter", 2.0, HALVES, SlotSet()).rows.any(), "each row is in one window"


def test_a_window_is_whole_when_all_that_own_slots_have_told_something() -> None:
    counts = SlotCounts({"counter": BITS})
    assert not counts.is_whole("counter", HALVES)
    counts.take(COUNTER, told([1]), 1.0)
    assert not counts.is_whole("counter", HALVES)
    counts.take(OTHER, told(pa.array([], pa.int64())), 1.0)
    assert counts.is_whole("counter", HALVES)


def test_rows_are_scaled_from_the_epochs_that_an_instance_has_told_of_to_those_of_the_window() -> None:
    counts = SlotCounts({"counter": BITS})
    counts.take(COUNTER, told([1] * 60, epochs=20), 1.0)
    counts.take(COUNTER, told([1] * 60, epochs=20), 1.0)
    counts.take(OTHER, told([1] * 90, epochs=30), 1.0)
    assert counts.end_window("counter", 2.0, HALVES, SlotSet()).rows.sum() == 240


def test_whoever_has_begun_in_the_second_half_of_a_window_is_taken_as_it_is() -> None:
    counts = SlotCounts({"counter": BITS})
    for rows in (60, 300):
        counts.take(COUNTER, told([1] * 60, epochs=8), 1.0)
        counts.take(OTHER, told([1], epochs=40), 1.0)
        assert counts.end_window("counter", 2.0, HALVES, SlotSet()).rows.sum() == rows + 1


def test_cpu_time_is_shared_out_by_rows_within_each_instance() -> None:
    counts = SlotCounts({"counter": BITS})
    slow, fast = 1, 2
    counts.take(COUNTER, told([slow] * 10, cpu=1.0), 1.0)
    counts.take(OTHER, told([fast] * 40, cpu=1.0), 1.0)
    window = counts.end_window("counter", 2.0, HALVES, SlotSet())
    assert window.cpu is not None
    per_slot = window.cpu[[np.argmax(by_slot([slow])), np.argmax(by_slot([fast]))]]
    assert per_slot == pytest.approx([1.0, 1.0])
    assert window.cpu.sum() == pytest.approx(2.0)


def test_where_nobody_is_busy_cpu_time_says_nothing_of_the_rows() -> None:
    counts = SlotCounts({"counter": BITS})
    counts.take(COUNTER, told([1], cpu=0.05), 1.0)
    assert counts.end_window("counter", 2.0, HALVES, SlotSet()).cpu is None
    counts.take(COUNTER, told([1], cpu=0.05), 0.05)
    assert counts.end_window("counter", 2.0, HALVES, SlotSet()).cpu is not None, "it is half of a small share"


def test_the_heaviest_keys_are_known_by_slot() -> None:
    counts = SlotCounts({"counter": BITS})
    counts.take(COUNTER, told([1], heaviest=(4, "a", 0.7)), 1.0)
    counts.take(OTHER, told([1], heaviest=(9, "b", 0.2)), 1.0)
    assert counts.end_window("counter", 2.0, HALVES, SlotSet()).heaviest == {
        4: Heaviest("a", 0.7),
        9: Heaviest("b", 0.2),
    }


# -- as reports tell --------------------------------------------------------------------------------------------------


def test_the_record_hands_on_what_reports_tell_of_slots_once_all_owners_have_told() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(slots=told([1, 1, 2])))
    assert it.record.end_window("counter", 2.0, HALVES, SlotSet()) is None
    it.take("n2", 1.1, figures(index=1, slots=told([5])))
    window = it.record.end_window("counter", 2.0, HALVES, SlotSet())
    assert window is not None
    assert window.rows.sum() == 4


def test_the_hottest_slot_of_the_last_window_is_in_the_status() -> None:
    it = Recorded()
    key = by_slot([1]).argmax()
    it.take("n1", 1.0, figures(slots=told([1, 1, 1, 2], heaviest=(int(key), "1", 1.0))))
    it.record.end_window("counter", 2.0, Assignment.contiguous(1, BITS), SlotSet())
    (counter,) = it.record.status(launched()).operators
    assert counter.hottest == HottestSlot(slot=int(key), instance=0, share=0.75, key="1")


def test_the_imbalance_of_an_operator_is_its_fullest_instance_over_the_mean_of_all() -> None:
    it, query = Recorded(), launched()

    def take(at: float, *rows: int) -> dict[str, float]:
        it.take("n1", at, *(figures(index=index, rows_in=each) for index, each in enumerate(rows)))
        return dict(it.record.status(query).imbalance)

    assert take(1.0, 0, 0, 0) == {}
    assert take(2.0, 700, 100, 100) == {"counter": pytest.approx(700 / 300)}
    for second in range(3, 60):
        last = take(float(second), *(700 + 100 * second,) * 3)
    assert last == {"counter": pytest.approx(1.0, abs=0.01)}
    it.record.drop("n1")
    assert it.record.status(query).imbalance == {}
