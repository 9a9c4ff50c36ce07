"""The query gives what the rules say, however its input is cut up, and whatever happens to its operators."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrb.validation.reference import Tuple, answers
from primitives.slots import SlotSet
from seep import sources
from seep.testing import InProcess, Kill, Scale
from seep.testing.scripted import BackUp
from tests.lrb.in_process import Rows, epochs, found, query, result, scripted
from tests.lrb.traffic import rows, table, traffic

OPERATORS = ("feeder", "forwarder", "toll_calculator", "toll_assessment", "toll_collector", "balance_account", "sink")
MIDDLE = OPERATORS[1:-1]


def report(time: int, vid: int, position: int, *, lane: int = 1, speed: int = 30, direction: int = 0) -> Tuple:
    return Tuple(0, time, vid, speed, 0, lane, direction, position // 5280, position)


def balance(time: int, vid: int, qid: int) -> Tuple:
    return Tuple(2, time, vid, qid=qid)


def of(tuples: list[Tuple]) -> Rows:
    return result(scripted(*epochs(sorted(tuples, key=lambda each: each.time), 5)))


# --- worked by hand ---------------------------------------------------------------------------------------------------


def test_the_toll_of_a_segment_is_charged_when_the_vehicle_enters_the_next_one() -> None:
    slow = [report(vid % 60, vid, 10 * 5280 + vid) for vid in range(2, 53)]
    one = [report(80, 1, 10 * 5280), report(110, 1, 10 * 5280 + 900), report(140, 1, 11 * 5280)]
    asked = [balance(110, 1, 1), balance(140, 1, 2), balance(170, 1, 3)]
    tolls, alerts, balances, _ = of([*slow, *one, *asked])
    assert [toll for toll in tolls if toll[0] == 1] == [(1, 80, 80, 30, 2), (1, 140, 140, -1, 0)]
    assert alerts == []
    assert balances == [(110, 110, 80, 1, 0), (140, 140, 140, 2, 2), (170, 170, 140, 3, 2)]


def test_a_mean_of_a_segment_is_one_of_vehicles_and_not_of_reports() -> None:
    tolls, *_ = of([report(0, 1, 100, speed=60), report(30, 1, 200, speed=60), report(5, 2, 300, speed=15)])
    assert {toll[3] for toll in tolls} == {-1}
    reports = [report(0, 1, 100, speed=60), report(30, 1, 200, speed=60), report(5, 2, 300, speed=15)]
    tolls, *_ = of([*reports, report(70, 3, 100)])
    assert tolls[-1] == (3, 70, 70, 37, 0)


def test_vehicles_are_warned_of_an_accident_from_the_minute_after_it_to_the_minute_after_its_end() -> None:
    spot = 50 * 5280
    stands = [report(time, 1, spot) for time in range(100, 281, 30)] + [report(310, 1, spot + 900)]
    stands += [report(time, 2, spot) for time in range(110, 291, 30)] + [report(320, 2, spot + 900)]
    others = [report(time, 1000 + time, 46 * 5280) for time in range(200, 400)]
    _, alerts, *_ = of([*stands, *others])
    assert alerts == [(time, time, 1000 + time, 50) for time in range(240, 360)]


def test_westbound_an_accident_is_ahead_at_lower_segments() -> None:
    stands = [report(time, vid, 50 * 5280, direction=1) for vid in (1, 2) for time in range(0, 91, 30)]
    others = [report(125, 1000 + segment, segment * 5280, direction=1) for segment in range(44, 60)]
    _, alerts, *_ = of([*stands, *others])
    assert alerts == [(125, 125, 1000 + segment, 50) for segment in range(50, 55)]


def test_who_falls_silent_where_it_stands_and_comes_back_is_no_second_vehicle() -> None:
    stands = [report(time, 1, 50 * 5280) for time in (*range(0, 91, 30), *range(400, 491, 30))]
    _, alerts, *_ = of([*stands, *(report(time, 1000 + time, 50 * 5280) for time in range(100, 700))])
    assert alerts == []


def test_the_order_of_tuples_within_a_second_does_not_matter() -> None:
    tuples = [report(vid % 60, vid, 10 * 5280) for vid in range(2, 80)] + [report(80, 1, 10 * 5280)]
    tuples += [report(110, 1, 11 * 5280), balance(110, 1, 1), report(80, 1, 10 * 5280)._replace(vid=99)]
    turned = [each for time in range(120) for each in reversed(tuples) if each.time == time]
    assert of(tuples) == of(turned) == rows(answers(turned))


def test_a_query_for_a_vehicle_that_was_never_seen_is_answered() -> None:
    assert of([balance(7, 1, 4)])[2] == [(7, 7, 0, 4, 0)]


def test_a_query_whose_second_is_the_last_of_the_input_is_answered() -> None:
    assert of([report(0, 1, 0), report(30, 1, 5280), balance(30, 1, 4)])[2] == [(30, 30, 30, 4, 0)]


# --- as the reference -------------------------------------------------------------------------------------------------

parallelisms = st.fixed_dictionaries({operator: st.integers(1, 3) for operator in MIDDLE})


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vehicles=st.sampled_from([3, 40, 400]),
    xways=st.integers(1, 2),
    cuts=st.integers(1, 40),
    parallelism=parallelisms,
)
def test_answers_are_those_of_the_reference_however_input_is_cut_and_spread(
    seed: int, vehicles: int, xways: int, cuts: int, parallelism: dict[str, int]
) -> None:
    tuples = traffic(seed, vehicles=vehicles, seconds=500, xways=xways)
    assert result(scripted(*epochs(tuples, cuts, seed)), parallelism, seed) == rows(answers(tuples))


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), partitions=st.integers(2, 3))
def test_tuples_that_come_long_before_their_turn_wait_for_it(seed: int, partitions: int) -> None:
    tuples = traffic(seed, vehicles=60, seconds=400)
    feeder = sources.memory(table(tuples), time="time", partitions=partitions)
    assert result(query(feeder), seed=seed) == rows(answers(tuples))


def test_the_traffic_of_these_tests_has_tolls_charges_and_accidents() -> None:
    tolls, alerts, balances, expenditures = rows(answers(traffic(1, vehicles=400, seconds=400)))
    assert sum(toll[4] > 0 for toll in tolls) > 20
    assert sum(balance[4] > 0 for balance in balances) > 20
    assert len(alerts) > 100
    assert sum(each[3] > 0 for each in expenditures) > 20


# --- whatever happens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS)
def test_answers_are_the_same_though_an_operator_is_killed_twice(operator: str) -> None:
    tuples = traffic(3, vehicles=400, seconds=400)
    batches = epochs(tuples, 30)
    story = [
        *batches[:10],
        Kill(operator),
        *batches[10:14],
        BackUp(),
        *batches[14:20],
        Kill(operator),
        *batches[20:],
    ]
    assert result(scripted(*story), seed=1) == rows(answers(tuples))


def test_answers_are_the_same_though_operators_grow_and_shrink() -> None:
    tuples = traffic(4, vehicles=400, seconds=400, xways=2)
    batches = epochs(tuples, 40)
    grown = [Scale("toll_calculator", 4), Scale("toll_assessment", 4), Scale("forwarder", 2)]
    shrunk = [Scale("toll_calculator", 2), Scale("toll_assessment", 2), Kill("toll_calculator", 1)]
    story = [*batches[:12], *grown, *batches[12:25], *shrunk, *batches[25:]]
    assert result(scripted(*story), seed=2) == rows(answers(tuples))


@pytest.mark.parametrize("operator", ["toll_calculator", "toll_assessment", "balance_account"])
def test_answers_are_the_same_though_all_slots_move_while_rows_come(operator: str) -> None:
    tuples = traffic(5, vehicles=400, seconds=400, xways=2)
    halves = SlotSet.range(0, 127), SlotSet.range(128, 255)
    with InProcess(scripted(*epochs(tuples, 60)), nodes=4, checkpoint_every=2) as process:
        for first, second in (halves, halves[::-1], halves):
            process.move(operator, {0: first, 1: second})
            for steps in range(12):
                process.pulse()
                for _ in range(7 * steps):
                    process.step()
            process.settle()
        assert not process.finished
        process.run()
        assert found(process) == rows(answers(tuples))
