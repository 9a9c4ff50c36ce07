"""Scaling by time, and not at all."""

from __future__ import annotations

from typing import Any

import pytest

from formats.settings import checked
from policies.scaling.registry import Manual
from policies.scaling.schedule import Schedule, ScheduleSettings
from primitives.errors import UserError
from tests.policies.scenes import repeated, report

AT = [
    {"time": 0, "operators": {"splitter": 2}},
    {"time": "30s", "operators": {"counter": 3}},
    {"time": "1min", "operators": {"counter": 1}},
]


def schedule(**said: Any) -> ScheduleSettings:
    return checked(ScheduleSettings, {"at": AT, **said}, "scaling")


def test_from_each_moment_on_its_operators_have_so_many_instances() -> None:
    settings = schedule()
    assert settings.wanted(29.9) == {"splitter": 2}
    assert settings.wanted(30.0) == {"splitter": 2, "counter": 3}
    assert settings.wanted(1000.0) == {"splitter": 2, "counter": 1}


def test_it_begins_again_from_what_the_last_step_left() -> None:
    settings = schedule(repeat="90s")
    assert [settings.wanted(now).get("counter") for now in (10, 40, 70, 100, 130, 160)] == [None, 3, 1, 1, 3, 1]


def test_the_policy_goes_by_the_time_of_the_latest_observation() -> None:
    decisions = Schedule(schedule()).decide(repeated(7, report("counter[0]")))
    assert [(each.operator, each.parallelism, each.why) for each in decisions] == [
        ("splitter", 2, "splitter: 2 by the schedule at 35 s"),
        ("counter", 3, "counter: 3 by the schedule at 35 s"),
    ]


def test_an_operator_that_the_query_does_not_have_is_told_before_its_time_comes() -> None:
    settings = schedule(at=[{"time": "1h", "operators": {"countr": 2}}])
    with pytest.raises(UserError, match=r"scaling\.settings\.at names countr; the query's operators are words, spl"):
        Schedule(settings).check(repeated(1).graph)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"at": [AT[1], AT[0]]}, "the step at 0 s stands after the one at 30 s"),
        ({"at": []}, "at is "),
        ({"at": [{"time": "soon", "operators": {}}]}, r"at\.0\.time is 'soon'"),
        ({"at": [{"time": "1s", "operators": {"counter": 0}}]}, r"at\.0\.operators\.counter is 0"),
        ({"repeat": "1min"}, "repeat is '1min': the last step is at 60 s; begin again after it"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        schedule(**said)


def test_the_policy_manual_decides_nothing_whatever_happens() -> None:
    assert Manual().decide(repeated(9, report("counter[0]", utilisation=1.0))) == []
