"""The policy of SEEP: what it does about bottlenecks."""

from __future__ import annotations

from policies.observation import History
from policies.scaling.cpu_threshold import CpuThreshold, CpuThresholdSettings
from policies.scaling.decision import Decision
from policies.scaling.settings import ScaleInSettings
from tests.policies.scenes import named, repeated, report


def wanted(seen: History, policy: CpuThreshold | None = None) -> dict[str, int]:
    return {each.operator: each.parallelism for each in (policy or CpuThreshold()).decide(seen)}


def test_every_bottleneck_adds_an_instance_to_its_operator() -> None:
    seen = repeated(
        2,
        report("splitter[0]", utilisation=0.8),
        *(report(f"counter[{i}]", utilisation=each) for i, each in enumerate([0.75, 0.2, 0.9])),
    )
    splitter, counter = CpuThreshold().decide(seen)
    assert (splitter.operator, splitter.parallelism, splitter.hot) == ("splitter", 2, (named("splitter[0]"),))
    assert (counter.operator, counter.parallelism, counter.hot) == (
        "counter",
        5,
        (named("counter[2]"), named("counter[0]")),
    )
    assert counter.why == (
        "counter[2]: 90 % and 90 % of its CPU share in the last 2 reports (above 70 %); "
        "counter[0]: 75 % and 75 % of its CPU share in the last 2 reports (above 70 %)"
    )


def test_a_bottleneck_becomes_as_many_as_the_step_says() -> None:
    policy = CpuThreshold(CpuThresholdSettings(step=3))
    assert wanted(repeated(2, report("counter[0]", utilisation=0.8)), policy) == {"counter": 3}


def test_memory_and_slow_stores_are_relieved_too() -> None:
    seen = repeated(2, report("counter[0]", memory=0.9), report("out[0]", busy=0.9, waiting=3))
    assert wanted(seen) == {"counter": 2, "out": 2}


def test_a_slow_link_changes_nothing() -> None:
    seen = repeated(4, report("counter[0]", unsent=9), report("counter[1]"))
    assert wanted(seen) == {}


def test_the_owner_of_a_single_slot_cannot_be_relieved() -> None:
    seen = repeated(2, report("counter[0]", utilisation=0.9, slots=1), report("counter[1]", utilisation=0.1))
    assert wanted(seen) == {}


def test_it_merges_what_has_little_to_do_and_splits_another_at_the_same_time() -> None:
    seen = repeated(4, report("splitter[0]", utilisation=0.9), report("counter[0]"), report("counter[1]"))
    decisions = CpuThreshold().decide(seen)
    assert {each.operator: each.parallelism for each in decisions} == {"splitter": 2, "counter": 1}


def test_it_merges_nothing_where_that_is_switched_off() -> None:
    policy = CpuThreshold(scale_in=ScaleInSettings(enabled=False))
    assert wanted(repeated(4, report("counter[0]"), report("counter[1]")), policy) == {}


def test_it_decides_nothing_without_observations() -> None:
    assert CpuThreshold().decide(repeated(0)) == []


def test_the_same_history_gives_the_same_decisions() -> None:
    seen = repeated(2, report("counter[0]", utilisation=0.8))
    first: list[Decision] = CpuThreshold().decide(seen)
    assert first == CpuThreshold().decide(seen) != []
