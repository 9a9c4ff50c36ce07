"""The detector: who is a bottleneck, of what, and who is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observation import History
from policies.scaling.detector import Bottleneck, Cause, bottlenecks
from policies.scaling.settings import DetectorSettings
from tests.policies.scenes import changed, history, named, repeated, report

SETTINGS = DetectorSettings()


def found(seen: History, settings: DetectorSettings = SETTINGS) -> list[tuple[str, Cause]]:
    return [(str(each.instance), each.cause) for each in bottlenecks(seen, settings)]


def test_two_reports_above_the_threshold_make_a_bottleneck_that_says_its_numbers() -> None:
    seen = history([report("counter[0]", utilisation=0.83)], [report("counter[0]", utilisation=0.79)])
    [bottleneck] = bottlenecks(seen, SETTINGS)
    assert bottleneck.level == pytest.approx(0.81 / 0.7)
    assert bottleneck == Bottleneck(
        named("counter[0]"),
        Cause.CPU,
        bottleneck.level,
        "counter[0]: 83 % and 79 % of its CPU share in the last 2 reports (above 70 %)",
    )


def test_a_report_just_at_the_threshold_makes_none() -> None:
    assert found(history([report("counter[0]", utilisation=0.9)], [report("counter[0]", utilisation=0.7)])) == []


def test_one_report_is_not_enough() -> None:
    assert found(history([report("counter[0]", utilisation=0.9)])) == []


def test_an_instance_that_did_not_report_in_between_is_none() -> None:
    seen = history(
        [report("counter[0]", utilisation=0.9)],
        [report("counter[1]", utilisation=0.9)],
        [report("counter[0]", utilisation=0.9)],
    )
    assert found(seen) == []


def test_reports_of_before_a_change_do_not_count() -> None:
    hot = report("counter[0]", utilisation=0.9)
    assert found(repeated(3, hot, changes=[changed("counter", 1, 2, begun=4.0, done=5.0)])) == [
        ("counter[0]", Cause.CPU)
    ]
    assert found(repeated(3, hot, changes=[changed("counter", 1, 2, begun=4.0, done=6.0)])) == []


def test_nothing_is_found_in_an_operator_that_is_changing() -> None:
    hot = [report("counter[0]", utilisation=0.9), report("splitter[0]", utilisation=0.9)]
    seen = repeated(2, *hot, changes=[changed("counter", 1, 2, begun=10.0, done=None)])
    assert found(seen) == [("splitter[0]", Cause.CPU)]


def test_the_hottest_comes_first_whatever_it_is_short_of() -> None:
    seen = repeated(
        2,
        report("counter[0]", utilisation=0.75),
        report("counter[1]", utilisation=0.95),
        report("splitter[0]", memory=0.99),
    )
    assert found(seen) == [("counter[1]", Cause.CPU), ("splitter[0]", Cause.MEMORY), ("counter[0]", Cause.CPU)]


def test_short_of_memory_is_who_holds_the_most_on_the_node() -> None:
    seen = repeated(
        2,
        report("splitter[0]", node="n1", memory=0.9, outbox_bytes=10),
        report("counter[0]", node="n1", memory=0.9, state_bytes=100, outbox_bytes=5),
        report("counter[1]", node="n2", memory=0.8, state_bytes=200),
    )
    [bottleneck] = bottlenecks(seen, SETTINGS)
    assert (bottleneck.instance, bottleneck.cause) == (named("counter[0]"), Cause.MEMORY)
    assert "90 % and 90 % of its node's memory budget" in bottleneck.why


def test_output_that_waits_while_nobody_is_at_work_means_a_slow_link() -> None:
    seen = history([report("splitter[0]", unsent=6)], [report("splitter[0]", unsent=9)])
    [bottleneck] = bottlenecks(seen, SETTINGS)
    assert bottleneck.cause is Cause.LINK
    assert bottleneck.why == (
        "splitter[0]: 6 and 9 epochs of output unsent in the last 2 reports (at least 4) with at most 10 % of its CPU "
        "share, and no receiver is busy: its link is slow"
    )


@pytest.mark.parametrize(
    ("unsent", "own", "receiver"),
    [
        ((9, 6), {}, {}),
        ((3, 9), {}, {}),
        ((6, 9), {"utilisation": 0.6}, {}),
        ((6, 9), {}, {"utilisation": 0.8}),
        ((6, 9), {}, {"busy": 0.8}),
    ],
    ids=["it falls", "it was short", "its own CPU explains it", "a receiver computes", "a receiver waits"],
)
def test_output_that_waits_is_no_slow_link_if(
    unsent: tuple[int, int], own: dict[str, float], receiver: dict[str, float]
) -> None:
    rounds = [[report("splitter[0]", unsent=each, **own), report("counter[0]", **receiver)] for each in unsent]
    assert Cause.LINK not in [cause for _, cause in found(history(*rounds))]


def test_output_that_waits_for_a_receiver_which_changes_is_no_slow_link() -> None:
    stuck = report("splitter[0]", unsent=9)
    assert found(repeated(2, stuck, changes=[changed("counter", 1, 2, begun=8.0, done=None)])) == []
    assert found(repeated(2, stuck, changes=[changed("counter", 1, 2, begun=4.0, done=6.0)])) == []


def test_a_sink_that_waits_for_its_store_explains_the_output_that_waits_for_the_sink() -> None:
    seen = repeated(2, report("out[0]", utilisation=0.12, busy=0.95, waiting=7), report("counter[0]", unsent=9))
    [bottleneck] = bottlenecks(seen, SETTINGS)
    assert (bottleneck.instance, bottleneck.cause) == (named("out[0]"), Cause.SINK)
    assert bottleneck.why == (
        "out[0]: at work 95 % and 95 % of the time in the last 2 reports (above 70 %) with at most 12 % of its CPU "
        "share, while input waits: the store that it writes to is slow"
    )


@pytest.mark.parametrize(
    "said",
    [{"busy": 0.95, "waiting": 0}, {"busy": 0.6, "waiting": 7}, {"busy": 0.95, "waiting": 7, "utilisation": 0.6}],
    ids=["no input waits", "it has time to spare", "its CPU explains it"],
)
def test_a_sink_waits_for_no_store_if(said: dict[str, float]) -> None:
    assert found(repeated(2, report("out[0]", **said))) == []


def test_only_sinks_wait_for_stores() -> None:
    assert found(repeated(2, report("counter[0]", busy=0.95, waiting=7))) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(1, 4), st.sampled_from([0.5, 0.7, 0.9]))
def test_a_bottleneck_is_whoever_was_above_in_each_of_the_last_k_reports(used: list[float], k: int, cpu: float) -> None:
    seen = history(*([report("counter[0]", utilisation=each)] for each in used))
    above = len(used) >= k and min(used[-k:]) > cpu
    assert bool(found(seen, DetectorSettings(consecutive=k, cpu=cpu))) is above
