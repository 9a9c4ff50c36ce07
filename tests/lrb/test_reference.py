"""The reference, on cases worked out by hand: the letters are those of the spec."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrb.data.checking import FEET_PER_SEGMENT
from lrb.validation.reference import (
    Alert,
    Answers,
    Balance,
    Expenditure,
    Toll,
    Tuple,
    answers,
    history_of,
)
from primitives.errors import UserError
from tests.test_import_direction import imports_of

OFFICIAL = Path("/work/shared/data/linear_road/datafile20seconds.dat")


def report(
    time: int,
    vid: int,
    segment: int,
    *,
    offset: int = 0,
    speed: int = 30,
    lane: int = 1,
    direction: int = 0,
    xway: int = 0,
) -> Tuple:
    position = segment * FEET_PER_SEGMENT + offset
    return Tuple(0, time, vid, speed, xway, lane, direction, segment, position)


def balance(time: int, vid: int, qid: int) -> Tuple:
    return Tuple(2, time, vid, qid=qid)


def expenditure(time: int, vid: int, qid: int, day: int, xway: int = 0) -> Tuple:
    return Tuple(3, time, vid, xway=xway, qid=qid, day=day)


def crowd(cars: int, segment: int, *, time: int = 0, speed: int = 30, first: int = 1000) -> list[Tuple]:
    """So many cars in a segment, once each."""
    return [report(time, first + car, segment, speed=speed) for car in range(cars)]


def standing(vid: int, times: Iterable[int], segment: int, *, offset: int = 7, **more: int) -> list[Tuple]:
    return [report(time, vid, segment, offset=offset, speed=0, **more) for time in times]


def out(*parts: Iterable[Tuple]) -> Answers:
    return answers(sorted(chain(*parts), key=lambda each: each.time))


def tolls_of(vid: int, found: Answers) -> list[Toll]:
    return [toll for toll in found.tolls if toll.vid == vid]


def alerted(found: Answers) -> dict[int, int]:
    """The segment of the accident of which a vehicle was told."""
    assert len({alert.vid for alert in found.alerts}) == len(found.alerts)
    return {alert.vid: alert.segment for alert in found.alerts}


# --- notifications and charges ----------------------------------------------------------------------------------------


def test_case_a_only_a_report_that_enters_a_segment_is_notified() -> None:
    found = out([report(0, 1, 10), report(30, 1, 10, offset=900), report(60, 1, 11), report(90, 1, 11, offset=1)])
    assert found.tolls == [Toll(1, 0, 0, -1, 0), Toll(1, 60, 60, -1, 0)]


def test_case_b_the_toll_is_charged_when_the_next_segment_is_entered() -> None:
    trip = [report(50, 1, 9), report(80, 1, 10), report(110, 1, 10), report(140, 1, 11), report(170, 1, 11)]
    queries = [balance(110, 1, 1), balance(140, 1, 2), balance(170, 1, 3)]
    found = out(crowd(51, 10), trip, queries)
    assert tolls_of(1, found)[1:] == [Toll(1, 80, 80, 30, 2), Toll(1, 140, 140, -1, 0)]
    assert found.balances == [Balance(110, 110, 80, 1, 0), Balance(140, 140, 140, 2, 2), Balance(170, 170, 140, 3, 2)]


@pytest.mark.parametrize(("cars", "toll"), [(50, 0), (51, 2), (60, 200), (100, 5000), (150, 20_000)])
def test_the_toll_grows_with_the_square_of_the_cars_above_fifty(cars: int, toll: int) -> None:
    assert tolls_of(1, out(crowd(cars, 10), [report(60, 1, 10)])) == [Toll(1, 60, 60, 30, toll)]


@pytest.mark.parametrize(("speed", "toll"), [(39, 200), (40, 0)])
def test_there_is_a_toll_below_forty_miles_per_hour(speed: int, toll: int) -> None:
    assert tolls_of(1, out(crowd(60, 10, speed=speed), [report(60, 1, 10)])) == [Toll(1, 60, 60, speed, toll)]


def test_case_c_cars_count_in_the_minute_before_only() -> None:
    found = out(crowd(60, 10), [report(119, 1, 10), report(120, 2, 10)])
    assert [toll.toll for toll in tolls_of(1, found) + tolls_of(2, found)] == [200, 0]
    assert tolls_of(2, found)[0].lav == 30


def test_case_d_a_car_counts_once_however_often_it_reports() -> None:
    twice = crowd(50, 10) + crowd(50, 10, time=30)
    assert tolls_of(1, out(twice, [report(60, 1, 10)]))[0].toll == 0
    assert tolls_of(1, out(twice, crowd(1, 10, first=5000), [report(60, 1, 10)]))[0].toll == 2


def test_cars_on_the_entrance_and_on_the_exit_count() -> None:
    ramps = [report(0, 1000 + car, 10, lane=4 * (car % 2)) for car in range(51)]
    assert tolls_of(1, out(ramps, [report(60, 1, 10)]))[0].toll == 2


def test_cars_of_another_segment_direction_or_expressway_do_not_count() -> None:
    others = [report(0, 1000 + car, 10, direction=1) for car in range(60)]
    others += [report(0, 2000 + car, 10, xway=1) for car in range(60)] + crowd(60, 11, first=3000)
    assert tolls_of(1, out(others, [report(60, 1, 10)])) == [Toll(1, 60, 60, -1, 0)]


def test_case_h_nothing_is_notified_on_the_exit_lane_and_its_segment_costs_nothing() -> None:
    found = out(
        crowd(60, 10),
        [report(60, 1, 10), report(90, 1, 10, lane=4), balance(90, 1, 1)],
        [report(60, 2, 10), report(90, 2, 11, lane=4), balance(90, 2, 2)],
        [report(60, 3, 10, lane=4), balance(90, 3, 3)],
    )
    assert [toll.time for toll in found.tolls if toll.vid in (1, 2, 3)] == [60, 60]
    assert found.balances == [Balance(90, 90, 60, 1, 0), Balance(90, 90, 90, 2, 200), Balance(90, 90, 60, 3, 0)]


@pytest.mark.parametrize(
    ("following", "charged"),
    [
        ([report(120, 1, 11)], True),
        ([report(121, 1, 11)], False),
        ([report(90, 1, 11, direction=1)], False),
        ([report(90, 1, 11, xway=1)], False),
        ([report(90, 1, 10, lane=4), report(120, 1, 11)], False),
    ],
    ids=["after 60 s", "after 61 s", "other direction", "other expressway", "after the exit"],
)
def test_case_i_a_toll_is_dropped_when_its_trip_ends(following: list[Tuple], charged: bool) -> None:
    last = following[-1].time
    found = out(crowd(60, 10), [report(60, 1, 10)], following, [balance(last, 1, 1)])
    assert found.balances == [Balance(last, last, last, 1, 200 if charged else 0)]


def test_case_i_the_first_report_of_a_new_trip_is_notified_even_in_the_same_segment() -> None:
    found = out([report(0, 1, 10), report(60, 1, 10), report(121, 1, 10)])
    assert [toll.time for toll in found.tolls] == [0, 121]


def test_case_i_the_account_goes_on_through_all_trips() -> None:
    first = [report(60, 1, 10), report(90, 1, 11), report(120, 1, 11, lane=4)]
    second = [report(300, 1, 20, xway=1), balance(300, 1, 1)]
    assert out(crowd(60, 10), first, second).balances == [Balance(300, 300, 300, 1, 200)]


# --- average speeds ---------------------------------------------------------------------------------------------------


def test_case_e_every_vehicle_weighs_the_same() -> None:
    fast, slow = [report(0, 1, 10, speed=60), report(30, 1, 10, speed=60)], [report(0, 2, 10, speed=15)]
    assert tolls_of(3, out(fast, slow, [report(60, 3, 10)]))[0].lav == 37


def test_case_f_minutes_without_reports_are_left_out_and_the_others_weigh_the_same() -> None:
    early, late = crowd(3, 10, speed=30), crowd(1, 10, time=240, speed=60, first=2000)
    asked = [report(300, 1, 10, lane=4, speed=60), report(300, 2, 10), report(360, 3, 10)]
    found = out(early, late, asked)
    assert tolls_of(2, found)[0].lav == 45
    assert tolls_of(3, found)[0].lav == (60 + 45) // 2  # the first minute is too old


def test_case_g_the_floor_is_that_of_the_exact_average() -> None:
    first = [report(0, car, 10, speed=speed) for car, speed in enumerate((39, 40, 40), 1)]
    second = [report(61, car, 10, speed=speed) for car, speed in enumerate((40, 40, 41), 11)]
    assert tolls_of(20, out(first, second, [report(120, 20, 10)]))[0].lav == 40


def test_the_average_is_that_of_five_minutes_and_unknown_before() -> None:
    found = out([report(0, 1, 10), report(359, 2, 10)], [report(360, 3, 11)], [report(660, 4, 10)])
    assert [tolls_of(vid, found)[0].lav for vid in (1, 2, 3, 4)] == [-1, 30, -1, -1]


# --- accidents --------------------------------------------------------------------------------------------------------


def two_cars(segment: int = 50, **more: int) -> list[Tuple]:
    """The accident of case j."""
    first = standing(101, range(100, 281, 30), segment, **more)
    second = standing(102, range(110, 291, 30), segment, **more)
    moving = [report(310, 101, segment, offset=99, **more), report(320, 102, segment, offset=99, **more)]
    return first + second + moving


def test_case_j_an_accident_is_told_of_from_the_minute_after_its_fourth_common_report_on() -> None:
    asking = [report(time, time, 46) for time in (239, 240, 359, 360)]
    found = out(two_cars(), asking, [report(300, 7, 50), report(300, 8, 45), report(300, 9, 51)])
    assert alerted(found) == {240: 50, 359: 50, 7: 50}
    assert Alert(240, 240, 240, 50) in found.alerts


def test_case_k_an_accident_counts_for_the_whole_minute_in_which_it_ends() -> None:
    cars = standing(101, range(185, 306, 30), 50) + standing(102, range(185, 306, 30), 50)
    moving = [report(335, 101, 50, offset=99), report(335, 102, 50, offset=99)]
    found = out(cars, moving, [report(time, time, 48) for time in (299, 300, 419, 420)])
    assert alerted(found) == {300: 50, 419: 50}


def test_case_l_an_accident_lasts_while_any_two_stand() -> None:
    first = [*standing(101, range(60, 211, 30), 50), report(240, 101, 50, offset=99)]
    second, third = standing(102, range(65, 366, 30), 50), standing(103, range(70, 371, 30), 50)
    found = out(first, second, third, [report(time, time, 50) for time in (179, 180, 330, 479, 480)])
    assert alerted(found) == {180: 50, 330: 50, 479: 50}


def test_case_m_the_nearest_accident_ahead_is_told_and_one_passed_is_not() -> None:
    near, far = two_cars(42), [each._replace(vid=each.vid + 100) for each in two_cars(44)]
    crowds = list(chain(*(crowd(60, segment, time=240, first=1000 * segment) for segment in (40, 43, 45))))
    asking = [report(300, segment, segment) for segment in (40, 43, 45, 37, 38)]
    found = out(near, far, crowds, asking)
    told = {vid: segment for vid, segment in alerted(found).items() if vid < 100}
    assert told == {40: 42, 43: 44, 38: 42}
    assert [tolls_of(vid, found)[0].toll for vid in (40, 43, 45)] == [0, 0, 200]


def test_case_m_ahead_of_a_westbound_car_are_the_lower_segments() -> None:
    asking = [report(300, segment, segment, direction=1) for segment in (49, 50, 54, 55)]
    assert alerted(out(two_cars(direction=1), asking)) == {50: 50, 54: 50}
    assert alerted(out(two_cars(), asking)) == {}


@pytest.mark.parametrize(("direction", "last"), [(0, 99), (1, 0)])
def test_case_m_there_is_nothing_beyond_the_ends_of_the_road(direction: int, last: int) -> None:
    found = out(two_cars(last, direction=direction), [report(300, 1, last, direction=direction)])
    assert alerted(found) == {1: last}


def test_case_m_nobody_is_told_on_the_exit_lane_or_without_entering() -> None:
    stays = [report(230, 1, 49), report(260, 1, 49, offset=9)]
    assert alerted(out(two_cars(), stays, [report(250, 2, 49, lane=4)])) == {}


FOUR = range(60, 151, 30)


@pytest.mark.parametrize(
    "cars",
    [
        standing(101, range(60, 300, 30), 50),
        standing(101, FOUR, 50) + standing(102, FOUR[:3], 50),
        standing(101, FOUR, 50, lane=1) + standing(102, FOUR, 50, lane=2),
        standing(101, FOUR, 50, offset=7) + standing(102, FOUR, 50, offset=8),
        standing(101, FOUR, 50, lane=0) + standing(102, FOUR, 50, lane=0),
        standing(101, FOUR, 50, lane=4) + standing(102, FOUR, 50, lane=4),
        standing(101, FOUR, 50, direction=0) + standing(102, FOUR, 50, direction=1),
        standing(101, FOUR, 50) + standing(102, range(90, 181, 30), 50)[:3] + [report(180, 101, 51)],
        standing(101, FOUR, 50) + standing(102, range(91, 182, 30), 50),
        [*standing(101, FOUR, 50), report(180, 101, 50, offset=9), *standing(102, range(180, 271, 30), 50)],
    ],
    ids=[
        "alone",
        "three reports",
        "neighbouring lanes",
        "neighbouring positions",
        "on the entrance",
        "on the exit",
        "opposite directions",
        "left before the fourth",
        "silent for 31 s",
        "one after the other",
    ],
)
def test_case_n_near_misses_are_no_accidents(cars: list[Tuple]) -> None:
    asking = [report(time, time, 50) for time in range(180, 480, 60)]
    assert alerted(out(cars, asking)) == {}


def test_case_n_a_partner_that_fell_silent_30_s_ago_still_counts() -> None:
    cars = standing(101, FOUR, 50) + standing(102, range(90, 181, 30), 50)
    assert alerted(out(cars, [report(240, 1, 50)])) == {1: 50}


def test_case_n_speed_does_not_matter_and_exactly_four_reports_do() -> None:
    cars = [report(time, vid, 50, offset=7, speed=20) for vid in (101, 102) for time in FOUR]
    assert alerted(out(cars, [report(180, 1, 50)])) == {1: 50}


@given(st.randoms(use_true_random=False))
def test_case_o_the_order_within_a_second_does_not_matter(random) -> None:  # type: ignore[no-untyped-def]
    cars = [each for vid in (101, 102) for each in standing(vid, FOUR, 50)]
    moving = [report(180, 101, 51), report(180, 102, 51)]
    tuples = [*crowd(60, 10), report(60, 1, 10), report(90, 1, 11), balance(90, 1, 1), report(190, 2, 48)]
    tuples += [*cars, *moving]
    shuffled = random.sample(tuples, len(tuples))
    found, expected = out(shuffled), out(tuples)
    for name in ("tolls", "alerts", "balances"):
        assert sorted(getattr(found, name)) == sorted(getattr(expected, name))
    assert expected.balances == [Balance(90, 90, 90, 1, 200)]
    assert alerted(expected) == {2: 50}


# --- queries ----------------------------------------------------------------------------------------------------------


def test_case_p_a_vehicle_never_seen_has_nothing() -> None:
    assert out([balance(77, 5, 9)]).balances == [Balance(77, 77, 0, 9, 0)]


def test_a_live_run_may_answer_with_any_state_of_the_last_minute() -> None:
    trip = [report(60, 1, 10), report(90, 1, 11), report(120, 1, 12)]
    found = out(crowd(60, 10), trip, [balance(120, 1, 1), balance(121, 1, 2), balance(150, 1, 3)])
    assert found.tolerated == {
        1: [(60, 0), (90, 200), (120, 200)],
        2: [(60, 0), (90, 200), (120, 200)],
        3: [(90, 200), (120, 200)],
    }


def test_expenditures_are_those_of_the_history() -> None:
    queries = [expenditure(5, 7, 1, 2), expenditure(5, 7, 2, 2, xway=1), expenditure(5, 8, 3, 2)]
    history = history_of([(7, 2, 0, 10), (7, 2, 0, 5), (7, 2, 1, 3), (9, 9, 9, 9)], {(7, 2, 0), (7, 2, 1), (8, 2, 0)})
    found = answers(queries, history).expenditures
    assert found == [Expenditure(5, 5, 1, 15), Expenditure(5, 5, 2, 3), Expenditure(5, 5, 3, 0)]


@pytest.mark.parametrize(("day", "spent"), [(-1, 0), (0, 0), (1, 42), (69, 10), (70, 0)])
def test_there_are_69_days_of_history(day: int, spent: int) -> None:
    assert out([expenditure(5, 4, 1, day)]).expenditures == [Expenditure(5, 5, 1, spent)]


def test_travel_time_queries_are_not_answered() -> None:
    assert out([Tuple(4, 5, 6, qid=1)]) == Answers()


def test_input_that_goes_back_is_refused() -> None:
    with pytest.raises(UserError, match="sort the tuples by time"):
        answers([report(60, 1, 1), report(59, 2, 1)])


@pytest.mark.skipif(not OFFICIAL.exists(), reason="the official data is not on this machine")
def test_official_data_is_answered_as_its_first_seconds_must_be() -> None:
    """Nobody has been anywhere before, so nothing is known of speeds, and nobody has paid."""
    tuples = [Tuple(*map(int, line.split(","))) for line in OFFICIAL.read_text().split()]
    found = answers(tuples)
    reports = [each for each in tuples if each.type == 0]
    assert len(tuples) == 280
    assert sorted(found.tolls) == sorted(Toll(each.vid, each.time, each.time, -1, 0) for each in reports)
    entered = {each.vid: each.time for each in reports}
    asked = [each for each in tuples if each.type == 2]
    assert found.balances == [Balance(q.time, q.time, entered[q.vid], q.qid, 0) for q in asked]
    assert len(found.expenditures) == sum(each.type == 3 for each in tuples)
    assert found.alerts == []


def test_the_reference_shares_nothing_with_what_it_checks() -> None:
    own = {"lrb", "seep", "vmpool", "policies", "formats", "primitives"}
    home, reference = Path(__file__).parents[2] / "lrb", "lrb.validation.reference"
    text = (home / "validation" / "reference.py").read_text()
    imported = {name for name in imports_of(text, reference) if name.partition(".")[0] in own}
    assert imported == {"primitives.errors", "primitives.errors.UserError"}
    for module in (home / "query").glob("*.py"):
        names = set(imports_of(module.read_text(), f"lrb.query.{module.stem}"))
        assert not [name for name in names if name.startswith(reference)], module
