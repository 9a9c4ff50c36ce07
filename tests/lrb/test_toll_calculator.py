"""The toll calculator by itself: what it keeps and forgets, what moves with its slots, what it refuses."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrb.query.columns import CROSSINGS, TUPLES
from lrb.query.linear_road import needed
from lrb.query.roads import Roads
from lrb.query.rules import CARS, MINUTE, RING, average, lav
from lrb.query.toll_calculator import TollCalculating, TollCalculator
from lrb.validation.reference import Tuple
from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.operators.definition import Input
from seep.protocol.logic import Piece
from tests.lrb.traffic import table, traffic
from tests.operators.instances import Instances, Row, bag

STREAM = Input(TUPLES, ("road",), "time")


def reports(given: Iterable[Tuple]) -> pa.RecordBatch:
    whole = table(each for each in given if each.type == 0)
    return needed(pa.RecordBatch.from_struct_array(whole.to_struct_array().combine_chunks()))


def report(time: int, vid: int, position: int = 0, *, lane: int = 1, speed: int = 30, xway: int = 0) -> Tuple:
    return Tuple(0, time, vid, speed, xway, lane, 0, position // 5280, position)


def calculator(count: int = 1, seed: int = 0) -> Instances:
    return Instances(TollCalculator(), [STREAM], count=count, slot_bits=3, seed=seed)


def of(instances: Instances) -> TollCalculating:
    logic = instances.logics[0]
    assert isinstance(logic, TollCalculating)
    return logic


def crossings(instances: Instances, given: list[Tuple], per_epoch: int) -> list[Row]:
    found = []
    for start in range(0, len(given), per_epoch):
        part = given[start : start + per_epoch]
        found += instances.epoch(reports(part), watermark=part[-1].time - 1)
    return found + instances.end(reports([]))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), moves=st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=1), st.integers(0, 2))))
def test_crossings_are_the_same_though_slots_move_and_instances_are_replaced(
    seed: int, moves: list[tuple[set[int], int]]
) -> None:
    given = [each for each in traffic(seed, vehicles=60, seconds=400, xways=3) if each.type == 0]
    still, moved = calculator(), calculator(count=3, seed=seed)
    found = []
    for at, start in enumerate(range(0, len(given), 40)):
        part = given[start : start + 40]
        found += moved.epoch(reports(part), watermark=part[-1].time - 1)
        if at < len(moves):
            moved.move(SlotSet(moves[at][0]), moves[at][1])
            moved.recover(moves[at][1])
    assert bag(found + moved.end(reports([]))) == bag(crossings(still, given, 100))


def test_a_vehicle_that_was_silent_for_more_than_a_minute_is_forgotten() -> None:
    instances = calculator()
    instances.epoch(reports([report(0, 1), report(0, 2)]), watermark=0)
    for time in range(30, 301, 30):
        instances.epoch(reports([report(time, 2)]), watermark=time)
    assert len(of(instances)._vehicles) == 1
    assert instances.epoch(reports([report(310, 1)]), watermark=310) != []


def test_vehicles_that_left_are_forgotten_though_others_keep_coming() -> None:
    instances = calculator()
    for time in range(250):
        instances.epoch(reports([report(time, time)]), watermark=time - 1)
    assert len(of(instances)._vehicles) < 150


def test_a_vehicle_in_a_slot_that_is_still_to_come_is_not_forgotten_by_the_progress_of_others() -> None:
    logic = of(calculator())
    slots = {xway: logic.roads.slots(tuples_road(xway))[0] for xway in range(20)}
    here, there = 0, next(xway for xway in slots if slots[xway] != slots[0])
    instances = calculator()
    instances.epoch(reports([report(0, 1, xway=there)]), watermark=0)
    behind = SlotSet([int(slots[here])])
    for time in range(100, 200, 10):
        rows = reports([report(time, time, xway=here)])
        instances.logics[0].process(Piece(instances.now + time, {0: (rows,)}, time, behind))
    assert len(of(instances)._vehicles) > 1
    assert of(instances)._vehicles.locate(reports([report(0, 1, xway=there)]), create=False)[0] >= 0


def tuples_road(xway: int) -> pa.Array:
    return reports([report(0, 1, xway=xway)])["road"]


def test_a_report_that_comes_too_late_is_counted_and_changes_nothing() -> None:
    instances = calculator()
    before = instances.epoch(reports([report(0, 1), report(125, 2)]), watermark=125)
    assert len(before) == 2
    assert instances.epoch(reports([report(3, 3)]), watermark=126) == []
    assert of(instances).counters["late"] == 1


@pytest.mark.parametrize(
    ("column", "value"), [("lane", 5), ("segment", 100), ("position", 1 << 20), ("speed", -1), ("xway", 1 << 20)]
)
def test_a_report_that_is_out_of_range_is_refused_by_name(column: str, value: int) -> None:
    wrong = report(0, 1)._replace(**{column: value})
    with pytest.raises(UserError, match="road" if column == "xway" else column):
        calculator().epoch(reports([report(0, 2), wrong]), watermark=0)


def test_a_stream_by_another_key_is_refused() -> None:
    with pytest.raises(UserError, match="keyed by road"):
        TollCalculator().output("toll_calculator", [STREAM._replace(keys=("vid",))])
    assert TollCalculator().output("toll_calculator", [STREAM]) == CROSSINGS


def test_the_roads_of_slots_are_the_same_after_they_were_taken_away_and_put_back() -> None:
    instances = calculator()
    stopped = [
        report(time, vid, 5280 * 7, xway=xway) for time in (0, 30, 60, 90) for vid in (1, 2) for xway in range(9)
    ]
    instances.epoch(reports(stopped), watermark=90)
    roads, other = of(instances).roads, Roads(3)
    every = SlotSet.full(3)
    before = roads.get_processing_state(every)
    some = SlotSet(list(before)[:2])
    other.set_processing_state(roads.get_processing_state(some))
    roads.drop_processing_state(some)
    assert roads.get_processing_state(every) == {slot: before[slot] for slot in before if slot not in some}
    assert other.get_processing_state(every) == {slot: before[slot] for slot in some}
    roads.set_processing_state(other.get_processing_state(every))
    assert roads.get_processing_state(every) == before
    assert (roads.arrays.clock[:, MINUTE] == 2).all()


def test_the_average_of_a_vehicle_is_that_of_its_reports() -> None:
    three = (3 << 32) + 100
    assert average(three) * 3 == average((1 << 32) + 100)
    assert average(0) == 0


def test_a_mean_that_is_whole_is_not_rounded_down() -> None:
    cells = np.zeros((RING, 2), np.int64)
    cells[1], cells[2] = [3, average((1 << 32) + 119)], [3, average((1 << 32) + 121)]
    assert cells[1, CARS] == 3
    assert lav(cells, 3) == 40


def test_the_size_of_roads_is_known_without_getting_them() -> None:
    instances = calculator()
    instances.epoch(reports([report(0, vid, xway=vid) for vid in range(20)]), watermark=0)
    state = of(instances).roads.state
    for slots in (SlotSet.full(3), SlotSet([1, 2]), SlotSet.empty()):
        assert state.size(slots) == pytest.approx(state.snapshot(slots).rows.nbytes, rel=0.1, abs=100)
