"""Rates by slot: every row is in one window, whatever balancers do; memory depends on the slots alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.record.reports import SlotRows
from seep.record.slots.rates import SlotRates
from tests.record.kit import SLOT_BITS, Recorded, figures

SLOTS = 1 << SLOT_BITS
HALVES = Assignment.contiguous(2, SLOT_BITS)


def told(*rows: int, heaviest: tuple[int, str, float] | None = None) -> SlotRows:
    return SlotRows.of(np.array(rows), seconds=1.0, epochs=1, heaviest=heaviest)


def test_an_ended_window_gives_rates_owners_and_the_hottest_slot_with_its_key() -> None:
    it = Recorded()
    it.record.show_slots(["counter"], 2.0)
    it.take("n1", 1.0, figures(slots=told(0, 6, 0, 2, heaviest=(1, "de", 0.9))))
    it.take("n2", 2.5, figures(index=1, slots=told(*[0] * 8, 4)))
    load = it.record.slot_load("counter", HALVES)
    rows = [0.0] * SLOTS
    rows[1], rows[3], rows[8] = 6 / 2.5, 2 / 2.5, 4 / 2.5
    assert load == {
        "operator": "counter",
        "slots": SLOTS,
        "starts": [0, 8],
        "owners": [0, 1],
        "bucket": 1,
        "rows": rows,
        "seconds": 2.5,
        "hottest": {"slot": 1, "instance": 0, "share": 0.5, "key": "de"},
    }


def test_before_a_window_has_ended_there_are_owners_and_no_rates() -> None:
    it = Recorded()
    it.record.show_slots(["counter"], 2.0)
    it.take("n1", 1.0, figures(slots=told(1)))
    load = it.record.slot_load("counter", HALVES)
    assert (load["owners"], load["rows"], load["seconds"], load["hottest"]) == ([0, 1], [], 0.0, None)


def test_a_question_ends_a_window_in_which_nothing_came() -> None:
    it = Recorded()
    it.record.show_slots(["counter"], 2.0)
    it.clock.now = 3.0
    load = it.record.slot_load("counter", HALVES)
    assert (load["rows"], load["seconds"], load["hottest"]) == ([0.0] * SLOTS, 3.0, None)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 3.0), st.lists(st.integers(0, 50), min_size=1, max_size=SLOTS), st.booleans()),
        max_size=20,
    )
)
def test_each_row_is_in_exactly_one_window(reports: list[tuple[float, list[int], bool]]) -> None:
    rates, now = SlotRates({"counter": SLOT_BITS}), 0.0
    rates.show(["counter"], 2.0, now)
    windows: dict[float, float] = {}
    for pause, rows, is_asked in reports:
        now += pause
        rates.take("counter", told(*rows), now)
        if is_asked:
            rates.show(["counter", "map"][:1], 2.0, now)  # someone looks again: nothing begins anew
        note(windows, rates, now)
    now += 5.0
    note(windows, rates, now)
    assert sum(windows.values()) == pytest.approx(sum(sum(rows) for _, rows, _ in reports), abs=0.5)


def note(windows: dict[float, float], rates: SlotRates, now: float) -> None:
    """Adds the rows of the last window, by the time when it began."""
    load = rates.load("counter", HALVES, now)
    if load["seconds"]:
        ended = rates._ended["counter"]
        windows[ended.begun] = sum(load["rows"]) * load["seconds"]


def test_many_slots_are_added_up_in_buckets_of_neighbours() -> None:
    rates = SlotRates({"counter": 16})
    rates.show(["counter"], 1.0, 0.0)
    rates.take("counter", told(*[1] * (1 << 16)), 1.0)
    load = rates.load("counter", Assignment.contiguous(1_000, 16), 1.0)
    assert (load["slots"], load["bucket"], load["rows"]) == (1 << 16, 16, [16.0] * 4096)
    assert len(load["starts"]) == 1_000


def test_operators_that_nobody_looks_at_are_forgotten_and_begin_anew() -> None:
    it = Recorded()
    it.record.show_slots(["counter"], 2.0)
    it.take("n1", 3.0, figures(slots=told(5)))
    it.record.show_slots([], 2.0)
    it.take("n1", 6.0, figures(slots=told(5)))
    assert it.record.slot_load("counter", HALVES)["rows"] == []
    it.record.show_slots(["counter"], 2.0)
    assert it.record.slot_load("counter", HALVES)["rows"] == []


def test_windows_of_balancers_are_the_same_whether_somebody_looks_or_not() -> None:
    def windows(looks: bool) -> list[list[int]]:
        it, found = Recorded(), []
        it.record.restart_slots(["counter"])
        for second in range(1, 12):
            if looks and second == 4:
                it.record.show_slots(["counter", "map"], 2.0)
            it.take("n1", float(second), figures(slots=told(second, 1)), figures("map", slots=told(9)))
            if looks:
                it.record.slot_load("counter", HALVES)
            if second % 4 == 0:
                window = it.record.end_window("counter", 4.0, Assignment.contiguous(1, SLOT_BITS), SlotSet.empty())
                assert window is not None
                found.append(window.rows.tolist())
        return found

    assert windows(looks=True) == windows(looks=False)


def test_rows_of_operators_that_are_only_looked_at_are_not_kept_for_balancers() -> None:
    it = Recorded()
    it.record.restart_slots([])
    it.record.show_slots(["counter"], 2.0)
    for incarnation in range(50):
        it.take("n1", float(incarnation), figures(incarnation=incarnation, slots=told(1)))
    assert not it.record._slots._told
    assert not it.record._slots._known
