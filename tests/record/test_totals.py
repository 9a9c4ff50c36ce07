"""Totals: what the record counts never goes back, and says how long changes took."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.record.events import CheckpointPersisted, MigrationRefused, SavepointStored
from seep.record.histogram import BOUNDS
from seep.record.status import Status
from seep.record.totals import InstanceTotals, SourceTotals
from tests.record.kit import COUNTER, Recorded, figures, launched


def status_of(it: Recorded) -> Status:
    return it.record.status(launched())


@given(counts=st.lists(st.integers(0, 100), min_size=1, max_size=30), lost=st.sets(st.integers(0, 29)))
def test_totals_are_the_sum_of_what_each_incarnation_has_counted(counts: list[int], lost: set[int]) -> None:
    it, incarnation, rows, wanted = Recorded(), 0, 0, 0
    for number, count in enumerate(counts):
        if number in lost:
            it.record.lost(Incarnation(COUNTER, incarnation), 0)
            incarnation, rows = incarnation + 1, 0
        rows += count
        wanted += count
        it.take("n1", number + 1.0, figures(incarnation=incarnation, rows_in=rows, counters={"late": rows}))
        totals = status_of(it).totals
        assert totals.operators["counter"] == InstanceTotals(rows_in=wanted, late=wanted)
        assert totals.instances["counter"][0] == totals.operators["counter"]


def test_a_report_of_an_instance_that_was_lost_does_not_count() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(rows_in=5))
    it.record.lost(Incarnation(COUNTER, 0), 0)
    it.take("n1", 2.0, figures(rows_in=9))
    assert status_of(it).totals.operators["counter"].rows_in == 5


def test_an_instance_that_is_not_placed_any_more_counts_for_its_operator_alone() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(rows_in=5), figures(index=3, rows_in=7))
    it.record.left("n1", figures(index=3, rows_in=8))
    totals = status_of(it).totals
    assert InstanceId("counter", 3) not in launched().placement
    assert list(totals.instances["counter"]) == [0]
    assert totals.operators["counter"].rows_in == 13


def test_rows_of_a_source_are_those_of_its_positions() -> None:
    it = Recorded()
    it.positions["numbers"] = {0: (7, 7, 2), 1: (3, 3, 1)}
    assert status_of(it).totals.sources == {"numbers": SourceTotals(read=10, shed=3)}


def test_durations_are_counted_by_what_took_them_where_they_are_known() -> None:
    it = Recorded()
    it.record.tell(CheckpointPersisted(id=1, epoch=4, seconds=0.2))
    it.record.tell(SavepointStored(id=2, epoch=5, seconds=0.04))
    it.record.tell(MigrationRefused(operator="counter", why="too many"))
    durations = status_of(it).totals.durations
    assert {name: (each.number, each.total) for name, each in durations.items() if each.number} == {
        "checkpoint": (2, pytest.approx(0.24))
    }
    up_to = dict(zip(BOUNDS, durations["checkpoint"].up_to, strict=True))
    assert (up_to[0.025], up_to[0.05], up_to[0.1], up_to[0.25]) == (0, 1, 1, 2)


def test_a_status_that_was_told_does_not_change() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(rows_in=5, latencies=(0.1,)))
    before = status_of(it).totals
    said = repr(before)
    it.take("n1", 2.0, figures(rows_in=50, latencies=(0.1,)))
    status_of(it)
    assert repr(before) == said
