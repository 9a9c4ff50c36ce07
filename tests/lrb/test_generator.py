"""Generated traffic: legal, equal for equal seeds, and with everything in it that the rules speak of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lrb.data.checking import FEET_PER_SEGMENT
from lrb.generator import Recording, TrafficSettings, traffic
from lrb.schema import INPUT
from lrb.validation.reference import Answers, Tuple, answers, continues
from primitives.errors import UserError

#: A quarter of an hour in which more happens than on an ordinary day.
BUSY = TrafficSettings(
    xways=2,
    seconds=900,
    rate=0.4,
    balances=0.05,
    expenditures=0.02,
    travel_times=0.01,
    accidents_every=150,
    near_misses_every=50,
    jams_every=60,
    silent=0.002,
)


def tuples_of(settings: TrafficSettings) -> list[Tuple]:
    table = pa.Table.from_batches(traffic(settings), INPUT)
    return [Tuple(**row) for row in table.to_pylist()]


@pytest.fixture(scope="module")
def busy() -> list[Tuple]:
    return tuples_of(BUSY)


@pytest.fixture(scope="module")
def answered(busy: list[Tuple]) -> Answers:
    return answers(busy)


@pytest.fixture(scope="module")
def trips(busy: list[Tuple]) -> list[list[Tuple]]:
    by_vehicle: dict[int, list[Tuple]] = defaultdict(list)
    for each in busy:
        if each.type == 0:
            by_vehicle[each.vid].append(each)
    return [trip for reports in by_vehicle.values() for trip in cut(reports)]


def cut(reports: list[Tuple]) -> Iterator[list[Tuple]]:
    trip = reports[:1]
    for before, report in pairwise(reports):
        if not continues(before, report):
            yield trip
            trip = []
        trip.append(report)
    yield trip


def moved(before: Tuple, after: Tuple) -> int:
    """Feet in driving direction."""
    return (after.position - before.position) * (1 if after.direction == 0 else -1)


def test_tuples_are_ordered_by_time(busy: list[Tuple]) -> None:
    assert all(before.time <= after.time for before, after in pairwise(busy))
    assert {each.time for each in busy} == set(range(900))


def test_all_values_are_in_range(busy: list[Tuple]) -> None:
    for each in busy:
        assert each.type != 0 or (
            each.speed in range(101)
            and each.xway in range(2)
            and each.lane in range(5)
            and each.direction in range(2)
            and each.segment in range(100)
            and each.segment == each.position // FEET_PER_SEGMENT
        )


def test_a_trip_begins_on_the_entrance_and_has_a_report_every_30_seconds(trips: list[list[Tuple]]) -> None:
    assert {trip[0].lane for trip in trips} == {0}
    assert {after.time - before.time for trip in trips for before, after in pairwise(trip)} == {30}


def test_a_trip_goes_forward_and_skips_no_segment(trips: list[list[Tuple]]) -> None:
    steps = [moved(before, after) for trip in trips for before, after in pairwise(trip)]
    assert min(steps) == 0
    assert max(steps) <= 4400


def test_lanes_are_the_entrance_first_then_travel_lanes_then_perhaps_the_exit(trips: list[list[Tuple]]) -> None:
    for trip in trips:
        kinds = [0 if each.lane == 0 else 2 if each.lane == 4 else 1 for each in trip]
        assert kinds == sorted(kinds)
        assert kinds.count(2) <= 1


def test_vehicles_leave_in_the_segment_they_are_in_or_in_a_new_one(trips: list[list[Tuple]]) -> None:
    ends = Counter(trip[-1].segment == trip[-2].segment for trip in trips if trip[-1].lane == 4)
    assert ends[True] > ends[False] > 0


def test_some_vehicles_fall_silent(trips: list[list[Tuple]]) -> None:
    assert sum(trip[-1].lane != 4 and trip[-1].time < 900 - 30 for trip in trips) > 0


def test_vehicles_come_again_after_61_seconds_or_more_also_elsewhere(trips: list[list[Tuple]]) -> None:
    by_vehicle: dict[int, list[list[Tuple]]] = defaultdict(list)
    for trip in trips:
        by_vehicle[trip[0].vid].append(trip)
    gaps = [(a[-1], b[0]) for several in by_vehicle.values() for a, b in pairwise(several)]
    assert min(after.time - before.time for before, after in gaps) >= 61
    assert {after.xway == before.xway for before, after in gaps} == {True, False}


def test_queries_come_with_a_report_of_their_vehicle_and_have_ids_of_their_own(busy: list[Tuple]) -> None:
    reported = {(each.vid, each.time) for each in busy if each.type == 0}
    queries = [each for each in busy if each.type != 0]
    assert {(each.vid, each.time) for each in queries} <= reported
    assert len({each.qid for each in queries}) == len(queries)
    assert {each.day for each in queries if each.type == 3} <= set(range(1, 70))


def test_queries_are_as_frequent_as_asked_for(busy: list[Tuple]) -> None:
    counts = Counter(each.type for each in busy)
    assert [counts[kind] / counts[0] for kind in (2, 3, 4)] == pytest.approx([0.05, 0.02, 0.01], rel=0.1)


def test_there_are_tolls_and_accidents_and_charges(answered: Answers) -> None:
    assert sum(toll.toll > 0 for toll in answered.tolls) > 100
    assert len({(alert.segment, alert.time // 60) for alert in answered.alerts}) > 10
    assert max(balance.balance for balance in answered.balances) > 0


def test_there_are_stops_of_many_kinds_that_are_no_accidents(trips: list[list[Tuple]]) -> None:
    """Stops of one, three, exactly four and more reports; and places at which only one vehicle stopped."""
    lengths: Counter[int] = Counter()
    places: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for trip in trips:
        stood = [each for each in trip if each.speed == 0]
        if stood and stood[-1] is not trip[-1]:
            lengths[len(stood)] += 1
            places[stood[0].xway, stood[0].direction, stood[0].position].add(stood[0].vid)
    assert min(lengths[3], lengths[4], sum(count for length, count in lengths.items() if length > 4)) > 0
    assert {1, 2, 3} <= {len(vehicles) for vehicles in places.values()}


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 90))
@hypothesis_settings(max_examples=10)
def test_equal_settings_make_equal_traffic(seed: int, xways: int, seconds: int) -> None:
    one, other = (
        pa.Table.from_batches(traffic(TrafficSettings(seed=seed, xways=xways, seconds=seconds)), INPUT)
        for _ in range(2)
    )
    assert one.equals(other)


def test_other_seeds_make_other_traffic() -> None:
    one, other = (tuples_of(TrafficSettings(seed=seed, seconds=5)) for seed in (1, 2))
    assert one != other


def test_the_rate_follows_the_ramp() -> None:
    counts = Counter(each.time for each in tuples_of(TrafficSettings(xways=3, seconds=300)))
    wanted = 3 * TrafficSettings(seconds=300).tuples_per_second()
    assert sum(counts.values()) == pytest.approx(wanted.sum(), rel=0.01)
    for second in range(0, 300, 30):
        there = sum(counts[each] for each in range(second, second + 30))
        assert there == pytest.approx(wanted[second : second + 30].sum(), rel=0.05)


@pytest.mark.parametrize(
    "wrong", [{"xways": 0}, {"seconds": 10_801}, {"rate": 0}, {"balances": 0.9, "expenditures": 0.2}, {"jams_every": 0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError):
        TrafficSettings(**wrong)  # type: ignore[arg-type]


# --- recordings -------------------------------------------------------------------------------------------------------

QUERIES = TrafficSettings(seconds=40, balances=0.1, expenditures=0.1, travel_times=0.1)


@given(st.integers(0, 45), st.integers(0, 45), st.integers(0, 3), st.integers(0, 3))
def test_a_recording_plays_the_same_on_every_expressway(first: int, seconds: int, low: int, xways: int) -> None:
    recording, made = recorded()
    played = recording.play(first, first + seconds, range(low, low + xways))
    part = [each for each in made if first <= each.time < first + seconds]
    assert recording.rows(first, first + seconds) == len(part)
    expected = Counter(on(each, xway, recording) for each in part for xway in range(low, low + xways))
    assert Counter(Tuple(**row) for row in played.to_pylist()) == expected
    assert np.all(np.diff(played["time"].to_numpy()) >= 0)


@cache
def recorded() -> tuple[Recording, list[Tuple]]:
    """The recording of some traffic, and the traffic."""
    return Recording.of(QUERIES), tuples_of(QUERIES)


def on(each: Tuple, xway: int, recording: Recording) -> Tuple:
    return each._replace(
        vid=each.vid + xway * recording.vehicles,
        xway=xway if each.xway >= 0 else -1,
        qid=each.qid + xway * recording.queries if each.qid >= 0 else -1,
    )


def test_no_two_expressways_share_a_vehicle_or_a_query() -> None:
    played = Recording.of(QUERIES).play(0, 40, range(3)).to_pylist()
    roads: dict[int, set[int]] = defaultdict(set)
    for row in played:
        if row["type"] == 0:
            roads[row["vid"]].add(row["xway"])
    assert {len(xways) for xways in roads.values()} == {1}
    qids = [row["qid"] for row in played if row["qid"] >= 0]
    assert len(set(qids)) == len(qids)
