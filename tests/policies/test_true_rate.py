"""True processing rates: the parallelism that the input takes, in one step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observation import History, Observation
from policies.scaling.settings import ScaleInSettings
from policies.scaling.true_rate import TrueRate, TrueRateSettings, rates_due, true_rate
from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from tests.policies.scenes import WORDS, changed, history, observation, repeated, report

POLICY = TrueRate(TrueRateSettings(headroom=1.25, catch_up=60.0, margin=0.15))

OFFERED = {"words": 500.0}


def flow(read: float, counters: int, used: float, splitting: float = 0.2) -> list[Any]:
    """`read` fragments a second, of 20 words each, counted by some instances that are at work `used` of the time."""
    words = 20 * read
    return [
        report("words[0]", rows_in=0.0, rows_out=read, utilisation=0.1),
        report("splitter[0]", rows_in=read, rows_out=words, utilisation=splitting),
        *(report(f"counter[{i}]", rows_in=words / counters, rows_out=1.0, utilisation=used) for i in range(counters)),
    ]


def wanted(seen: History, policy: TrueRate = POLICY) -> dict[str, int]:
    return {each.operator: each.parallelism for each in policy.decide(seen)}


def test_it_goes_to_the_right_parallelism_in_one_step() -> None:
    # one counter does 500 * 20 words at its limit; 2,000 * 20 are due, and a quarter is to spare: 5 of them
    seen = repeated(2, *flow(read=500, counters=1, used=1.0), offered={"words": 2000.0})
    [decision] = POLICY.decide(seen)
    assert (decision.operator, decision.parallelism) == ("counter", 5)
    assert decision.why == (
        "counter: 40,000 rows/s are due, which take all the time of 4.00 instances: 5 instead of 1 would be at work "
        "80 % of it (not above 80 %), in the last 2 reports"
    )


def test_operators_upstream_and_downstream_are_scaled_at_once() -> None:
    seen = repeated(2, *flow(read=500, counters=1, used=1.0, splitting=0.5), offered={"words": 2000.0})
    assert wanted(seen) == {"splitter": 3, "counter": 5}


def test_rows_that_are_behind_are_worked_off_within_the_time_given() -> None:
    seen = repeated(2, *flow(read=500, counters=1, used=1.0), offered=OFFERED, behind={"words": 30_000.0})
    assert wanted(seen) == {"counter": 3}  # 500 + 30,000 / 60 a second


def test_it_waits_until_all_reports_agree() -> None:
    calm, pressed = flow(500, 1, 0.5), flow(500, 1, 1.0)
    assert wanted(history(calm, pressed, offered=OFFERED)) == {}
    assert wanted(history(pressed, pressed, offered=OFFERED)) == {"counter": 2}


def test_it_takes_the_least_of_what_the_reports_ask_for() -> None:
    seen = History(
        WORDS,
        tuple(
            observation(number, *flow(500, 1, 1.0), offered={"words": offered})
            for number, offered in enumerate([1500.0, 900.0], 1)
        ),
    )
    assert wanted(seen) == {"counter": 3}


def test_nothing_is_decided_until_all_operators_have_settled() -> None:
    pressed = flow(500, 1, 1.0)
    assert (
        wanted(repeated(2, *pressed, offered=OFFERED, changes=[changed("splitter", 1, 2, begun=1.0, done=6.0)])) == {}
    )
    assert (
        wanted(repeated(2, *pressed, offered=OFFERED, changes=[changed("splitter", 1, 2, begun=9.0, done=None)])) == {}
    )


def test_it_scales_in_to_the_right_number_at_once() -> None:
    assert wanted(repeated(4, *flow(500, 5, 0.2), offered=OFFERED)) == {"counter": 2}  # 1.0 * 1.25 * 1.15
    assert wanted(repeated(3, *flow(500, 5, 0.2), offered=OFFERED)) == {}


def test_it_does_not_scale_in_where_that_is_switched_off() -> None:
    policy = TrueRate(scale_in=ScaleInSettings(enabled=False))
    assert wanted(repeated(4, *flow(500, 5, 0.2), offered=OFFERED), policy) == {}


def test_it_does_not_scale_in_below_what_memory_takes() -> None:
    reports = [*flow(500, 1, 0.2)[:2], *(report(f"counter[{i}]", utilisation=0.1, memory=0.6) for i in range(4))]
    assert wanted(repeated(4, *reports, offered=OFFERED)) == {"counter": 3}  # 4 * 0.6 / 0.85


def test_an_operator_without_input_needs_one_instance() -> None:
    seen = repeated(4, *flow(0, 3, 0.01), offered={"words": 0.0})
    assert wanted(seen) == {"counter": 1}


def test_an_operator_that_stands_still_while_input_waits_is_left_alone() -> None:
    stalled = [
        *flow(500, 1, 0.2)[:2],
        report("counter[0]", rows_in=0.0, utilisation=0.0, waiting=16),
        report("counter[1]", rows_in=0.0),
    ]
    assert wanted(repeated(4, *stalled, offered=OFFERED)) == {}


def test_the_true_rate_of_an_operator_counts_instances_by_how_much_they_do() -> None:
    reports = (report("counter[0]", rows_in=900.0, utilisation=0.9), report("counter[1]", rows_in=1.0, utilisation=0.1))
    assert true_rate(reports, Kind.STATEFUL) == pytest.approx(901)


def test_the_true_rate_of_a_sink_counts_the_time_that_it_waits_for_its_store() -> None:
    reports = (report("out[0]", rows_in=100.0, utilisation=0.1, busy=0.5),)
    assert true_rate(reports, Kind.SINK) == 200
    assert true_rate(reports, Kind.STATELESS) == 1000


def test_rates_are_carried_along_all_paths_of_the_graph() -> None:
    graph = QueryGraph(
        [
            OperatorSpec("a", Kind.SOURCE),
            OperatorSpec("b", Kind.SOURCE),
            OperatorSpec("map", Kind.STATELESS),
            OperatorSpec("join", Kind.STATEFUL),
            OperatorSpec("out", Kind.SINK),
        ],
        [Edge("a", "map"), Edge("map", "join", 0), Edge("b", "join", 1), Edge("join", "out")],
    )
    reports = [
        report("a[0]", rows_out=100.0),
        report("b[0]", rows_out=50.0),
        report("map[0]", rows_in=100.0, rows_out=150.0),
        report("join[0]", rows_in=200.0, rows_out=20.0),
        report("out[0]", rows_in=20.0, rows_out=0.0),
    ]
    seen = Observation(5.0, 5.0, {each.instance: each for each in reports}, {"a": 200.0, "b": 50.0}, {"b": 500.0})
    due = rates_due(graph, seen, catch_up=10.0)
    assert due == {"a": 200.0, "b": 100.0, "map": 200.0, "join": 400.0, "out": 40.0}


def test_where_upstream_gave_out_nothing_what_came_in_is_what_is_due() -> None:
    seen = observation(1, report("splitter[0]", rows_in=100.0, rows_out=0.0), report("counter[0]", rows_in=30.0))
    assert rates_due(WORDS, seen, catch_up=60.0)["counter"] == 30.0


@given(st.floats(0.05, 8), st.lists(st.floats(0, 0.149), min_size=2, max_size=20))
def test_no_operator_goes_back_and_forth_while_what_is_due_stays_within_the_margin(
    level: float, noise: list[float]
) -> None:
    """Whatever order the levels come in: an operator at the number for one is never scaled the other way by another."""
    present, directions = 1, set()
    for each in noise:
        total = level * (1 + each)
        reports = flow(500, present, total / present)
        following = wanted(repeated(4, *reports, offered=OFFERED)).get("counter", present)
        if following != present:
            directions.add(following > present)
        present = following
    assert len(directions) <= 1
