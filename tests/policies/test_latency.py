"""A latency target: who gets help when rows take too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from policies.observation import Change, History, InstanceReport
from policies.scaling.latency import LatencySettings, LatencyTarget
from tests.policies.scenes import WORDS, changed, named, observation, report

POLICY = LatencyTarget(LatencySettings(target=0.5))


def seen_with(
    latencies: Sequence[float], *reports: InstanceReport, changes: Sequence[Change] = (), **said: Any
) -> History:
    observations = [
        observation(number, *reports, latency={"p50": 0.01, "p99": each}, **said)
        for number, each in enumerate(latencies, 1)
    ]
    return History(WORDS, tuple(observations), tuple(changes))


def wanted(seen: History, policy: LatencyTarget = POLICY) -> dict[str, int]:
    return {each.operator: each.parallelism for each in policy.decide(seen)}


def test_the_operator_with_the_hottest_instance_gets_another() -> None:
    seen = seen_with(
        [0.8, 1.25], report("splitter[0]", utilisation=0.6), report("counter[0]", utilisation=0.65, waiting=3)
    )
    [decision] = POLICY.decide(seen)
    assert (decision.operator, decision.parallelism, decision.hot) == ("counter", 2, (named("counter[0]"),))
    assert decision.why == (
        "counter: p99 is 0.8 s and 1.25 s in the last 2 reports (above 0.5 s), and counter[0] is hottest: "
        "65 % of its CPU share, 3 messages wait"
    )


def test_if_all_have_cpu_to_spare_it_is_who_has_most_input_waiting() -> None:
    seen = seen_with([0.8, 0.8], report("splitter[0]", utilisation=0.4, waiting=2), report("out[0]", waiting=9))
    assert wanted(seen) == {"out": 2}


def test_latency_that_no_operator_explains_changes_nothing() -> None:
    assert wanted(seen_with([0.8, 0.8])) == {}


def test_a_source_does_not_explain_latency() -> None:
    assert wanted(seen_with([0.8, 0.8], report("words[0]", utilisation=0.9))) == {}


def test_the_owner_of_a_single_slot_cannot_be_relieved() -> None:
    assert wanted(seen_with([0.8, 0.8], report("counter[0]", utilisation=0.9, slots=1))) == {}


@pytest.mark.parametrize("latencies", [[0.8], [0.8, 0.5], [0.2, 0.8]], ids=["one report", "at it", "just begun"])
def test_latency_must_be_above_the_target_for_a_while(latencies: list[float]) -> None:
    assert wanted(seen_with(latencies, report("counter[0]", utilisation=0.9))) == {}


def test_another_percentile_can_be_chosen() -> None:
    median = LatencyTarget(LatencySettings(target=0.5, percentile="p50"))
    assert wanted(seen_with([0.8, 0.8], report("counter[0]", utilisation=0.9)), median) == {}


def test_where_no_epoch_ended_the_latency_is_as_long_as_the_interval_at_least() -> None:
    hot = report("counter[0]", utilisation=0.9)
    stuck = [observation(number, hot, latency={}, epochs_in_flight=16) for number in (1, 2)]
    idle = [observation(number, hot, latency={}) for number in (1, 2)]
    assert wanted(History(WORDS, tuple(stuck))) == {"counter": 2}
    assert wanted(History(WORDS, tuple(idle))) == {}


def test_nothing_is_decided_while_an_operator_changes() -> None:
    under_way = changed("splitter", 1, 2, begun=3.0, done=None)
    assert wanted(seen_with([0.8, 0.8], report("counter[0]", utilisation=0.9), changes=[under_way])) == {}


def test_far_below_the_target_what_has_little_to_do_is_merged() -> None:
    idle = [report(f"counter[{i}]") for i in range(3)]
    assert wanted(seen_with([0.2] * 4, *idle)) == {"counter": 2}
    assert wanted(seen_with([0.2] * 3, *idle)) == {}
    assert wanted(seen_with([0.3, 0.2, 0.2, 0.2], *idle)) == {}


@pytest.mark.parametrize(("load_then", "merged"), [(0.3, False), (0.9, True)], ids=["as now", "clearly more"])
def test_what_was_too_little_is_not_tried_again_unless_there_was_clearly_more_to_do_then(
    load_then: float, merged: bool
) -> None:
    """One instance was too slow when this much was to do; now two have 0.3 between them."""
    then = observation(1, report("counter[0]", utilisation=load_then), latency={"p99": 0.9})
    now = [
        observation(number, *(report(f"counter[{i}]", utilisation=0.15) for i in range(2)), latency={"p99": 0.1})
        for number in range(3, 7)
    ]
    seen = History(WORDS, (then, *now), (changed("counter", 1, 2, begun=5.0, done=9.0),))
    assert wanted(seen) == ({"counter": 1} if merged else {})
