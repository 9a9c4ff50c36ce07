"""Scale-in: when one instance fewer is enough, and when not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.observation import History
from policies.scaling.decision import Decision
from policies.scaling.scale_in import one_fewer
from policies.scaling.settings import DetectorSettings, ScaleInSettings
from tests.policies.scenes import changed, history, repeated, report

DETECTOR, SETTINGS = DetectorSettings(), ScaleInSettings()


def counters(*utilisations: float, **said: Any) -> list[Any]:
    return [report(f"counter[{i}]", utilisation=each, **said) for i, each in enumerate(utilisations)]


def decided(seen: History, settings: ScaleInSettings = SETTINGS, operator: str = "counter") -> Decision | None:
    return one_fewer(seen, operator, settings, DETECTOR)


def test_two_instances_with_little_to_do_become_one() -> None:
    assert decided(repeated(4, *counters(0.15, 0.2))) == Decision(
        "counter",
        1,
        "counter: 1 of 2 instances could have done it all, at work at most 35 % of the time in the last 4 reports "
        "(not above 40 %)",
    )


@pytest.mark.parametrize(
    "seen",
    [
        repeated(4, *counters(0.15)),
        repeated(4, *counters(0.2, 0.25)),
        repeated(3, *counters(0.1, 0.1)),
        history(*[counters(0.1, 0.1)] * 3, counters(0.2, 0.3)),
        history(*[counters(0.1, 0.1)] * 3, counters(0.1)),
        repeated(4, *counters(0.1, 0.1), changes=[changed("counter", 1, 2, begun=3.0, done=4.0)]),
        repeated(4, *counters(0.1, 0.1, memory=0.45)),
        repeated(4, *counters(0.54, 0.05, 0.05, 0.05)),
        repeated(4, *counters(0.12, 0.12, 0.38, 0.38, slots=1)),
    ],
    ids=[
        "it is the only one",
        "the other would have too much to do",
        "it is so for three reports only",
        "the last report says otherwise",
        "an instance did not report",
        "it has changed in between",
        "the memory of one is not enough",
        "the hottest would get more",
        "the only slot of the one that leaves would go to the hottest as a whole",
    ],
)
def test_no_instance_is_merged_if(seen: History) -> None:
    assert decided(seen) is None


def test_no_instance_is_merged_where_that_is_switched_off() -> None:
    assert decided(repeated(4, *counters(0.1, 0.1)), ScaleInSettings(enabled=False)) is None


def test_sinks_that_wait_for_their_store_are_not_merged_though_their_cpu_is_idle() -> None:
    sinks = [report(f"out[{i}]", utilisation=0.05, busy=0.6) for i in range(2)]
    assert decided(repeated(4, *sinks), operator="out") is None
    assert decided(repeated(4, *counters(0.05, 0.05, busy=0.6))) is not None


@given(st.lists(st.floats(0, 0.5), min_size=2, max_size=6), st.integers(0, 5))
def test_what_is_merged_is_no_bottleneck_whoever_leaves(loads: list[float], leaving: int) -> None:
    assume(decided(repeated(4, *counters(*loads))))
    # whoever leaves has at most the mean: those with the fewest slots do
    gone = min(loads[leaving % len(loads)], sum(loads) / len(loads))
    assert max(loads) + gone / (len(loads) - 1) < DETECTOR.cpu
    assert sum(loads) / (len(loads) - 1) <= SETTINGS.below
