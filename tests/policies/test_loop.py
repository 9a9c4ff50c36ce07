"""Policies in a closed loop: they find the parallelism that the input takes, keep it, and give it back."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.scaling.registry import make_policy
from policies.scaling.settings import Bounds, ScalingSettings
from tests.policies.loop import CAPACITY, Curve, Loop, ramp, sawtooth, steady, step_at

#: The policies that go by the load, and what they cannot do without.
BY_LOAD: dict[str, dict[str, Any]] = {"cpu-threshold": {}, "true-rate": {}, "latency": {"target": "250ms"}}

each_policy = pytest.mark.parametrize("name", BY_LOAD)


def loop_of(name: str, curve: Curve, *, noise: float = 0.0, change_takes: int = 1, seed: int = 0, **said: Any) -> Loop:
    scaling = ScalingSettings(policy=name, settings=BY_LOAD[name], **said)
    return Loop(make_policy(scaling), scaling, curve, noise, change_takes, seed)


def keeps_up(loop: Loop) -> bool:
    return loop.behind < 1.0


@each_policy
@settings(max_examples=25)
@given(level=st.floats(50, 4 * CAPACITY), noise=st.floats(0, 0.06), takes=st.integers(1, 2), seed=st.integers(0, 10**6))
def test_a_steady_load_gets_what_it_takes_and_never_goes_out_and_in_and_out(
    name: str, level: float, noise: float, takes: int, seed: int
) -> None:
    loop = loop_of(name, steady(level), noise=noise, change_takes=takes, seed=seed).run(120)
    assert keeps_up(loop)
    assert re.fullmatch(r"\+*-*", loop.directions)


@each_policy
@settings(max_examples=25)
@given(level=st.floats(0.9, 1.1), noise=st.floats(0, 0.06), seed=st.integers(0, 10**6))
def test_a_load_about_a_threshold_changes_an_operator_in_one_direction_only(
    name: str, level: float, noise: float, seed: int
) -> None:
    """From one instance at about the load at which each policy asks for a second."""
    about = {"cpu-threshold": 0.7, "true-rate": 0.8, "latency": 0.8}[name] * CAPACITY
    loop = loop_of(name, steady(level * about), noise=noise, seed=seed).run(100)
    assert loop.directions in ("", "+")


@each_policy
def test_after_a_ramp_all_instances_are_given_back(name: str) -> None:
    loop = loop_of(name, ramp(200.0, 2800.0, begin=100.0, end=500.0), noise=0.03).run(240)
    assert max(loop.parallelism) >= 3
    assert loop.parallelism[-1] == 1
    assert keeps_up(loop)
    assert re.fullmatch(r"\+*-*", loop.directions)


def test_true_rates_reach_the_right_number_in_one_step_and_cpu_thresholds_by_doubling() -> None:
    jump = step_at(50.0, 500.0, 2900.0)
    first = {name: loop_of(name, jump).run(120).changes for name in ("true-rate", "cpu-threshold")}
    assert [(each.before, each.after) for each in first["true-rate"]] == [(1, 4)]
    assert [(each.before, each.after) for each in first["cpu-threshold"]][:2] == [(1, 2), (2, 4)]


@each_policy
def test_a_slow_sawtooth_turns_an_operator_once_for_each_turn_of_the_load(name: str) -> None:
    loop = loop_of(name, sawtooth(200.0, 1800.0, period=500.0), noise=0.03).run(300)
    assert set(loop.parallelism) >= {1, 2}
    assert len(re.findall(r"\++", loop.directions)) <= 3
    assert len(re.findall(r"-+", loop.directions)) <= 3


@each_policy
def test_no_load_brings_an_operator_out_of_its_bounds(name: str) -> None:
    bounds = {"counter": Bounds(min=2, max=3)}
    assert set(loop_of(name, steady(9000.0), operators=bounds).run(60).parallelism[10:]) == {3}
    assert set(loop_of(name, steady(50.0), operators=bounds).run(60).parallelism[10:]) == {2}


@each_policy
@pytest.mark.parametrize("cooldown", [5.0, 40.0])
def test_between_two_changes_there_is_the_cool_down_at_least(name: str, cooldown: float) -> None:
    changes = loop_of(name, ramp(200.0, 3500.0, 50.0, 300.0), cooldown=cooldown).run(150).changes
    rests = [later.begun - earlier.done for earlier, later in pairwise(changes) if earlier.done is not None]
    assert len(rests) == len(changes) - 1 > 1
    assert min(rests) >= cooldown


@each_policy
def test_without_scale_in_nothing_is_given_back(name: str) -> None:
    loop = loop_of(name, ramp(200.0, 2800.0, 50.0, 300.0), scale_in={"enabled": False}).run(150)
    assert re.fullmatch(r"\++", loop.directions)
    assert loop.parallelism[-1] == max(loop.parallelism)


@pytest.mark.parametrize(
    ("name", "margins"),
    [("cpu-threshold", {"scale_in": {"below": 0.69, "consecutive": 1}}), ("true-rate", {"settings": {"margin": 0}})],
)
def test_without_its_margins_a_policy_does_oscillate_and_the_loop_shows_it(name: str, margins: dict[str, Any]) -> None:
    """What the properties above rest on is there for a reason, and would be missed."""
    hasty = {"policy": name, "detector": {"consecutive": 1}, "scale_in": {"consecutive": 1}, "cooldown": 1.0}
    scaling = ScalingSettings.model_validate({**hasty, **margins})
    loops = [Loop(make_policy(scaling), scaling, steady(300.0 * n), 0.06, seed=n).run(60) for n in range(1, 13)]
    assert any(re.search(r"\+-+\+", loop.directions) for loop in loops)
