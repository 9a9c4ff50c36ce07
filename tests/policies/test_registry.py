"""The registry: policies by name, of users by import path, and what is said of settings that are wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from policies.observation import History
from policies.scaling.cpu_threshold import CpuThreshold
from policies.scaling.decision import Decision
from policies.scaling.latency import LatencyTarget
from policies.scaling.registry import POLICIES, Manual, make_policy
from policies.scaling.schedule import Schedule
from policies.scaling.settings import DetectorSettings, ScaleInSettings, ScalingSettings
from policies.scaling.true_rate import TrueRate
from primitives.errors import UserError


class Always:
    """A policy of a user."""

    def __init__(self, operator: str, parallelism: int = 2) -> None:
        if parallelism < 1:
            raise ValueError("choose more instances")
        self.operator, self.parallelism = operator, parallelism

    def decide(self, history: History) -> list[Decision]:
        return [Decision(self.operator, self.parallelism, f"always, at {history.now} s too")]


class Undecided:
    """No policy."""


THERE = f"{__name__}:Always"
NEEDED: dict[str, dict[str, Any]] = {
    "latency": {"target": "500ms"},
    "schedule": {"at": [{"time": "1s", "operators": {"counter": 2}}]},
}


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("cpu-threshold", CpuThreshold),
        ("true-rate", TrueRate),
        ("latency", LatencyTarget),
        ("schedule", Schedule),
        ("manual", Manual),
    ],
)
def test_each_name_stands_for_its_policy(name: str, policy: type) -> None:
    assert type(make_policy(ScalingSettings(policy=name, settings=NEEDED.get(name, {})))) is policy


def test_the_default_is_manual() -> None:
    assert isinstance(make_policy(ScalingSettings()), Manual)


def test_the_description_of_the_setting_lists_all_names() -> None:
    described = ScalingSettings.model_fields["policy"].description or ""
    assert [name for name in POLICIES if name not in described] == []


@pytest.mark.parametrize("name", ["cpu-threshold", "true-rate", "latency"])
def test_a_policy_gets_the_settings_of_detector_and_scale_in(name: str) -> None:
    detector, scale_in = DetectorSettings(consecutive=7), ScaleInSettings(consecutive=9)
    scaling = ScalingSettings(policy=name, settings=NEEDED.get(name, {}), detector=detector, scale_in=scale_in)
    policy: Any = make_policy(scaling)
    assert (policy.detector, policy.scale_in) == (detector, scale_in)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("cpu-threshold", {"step": 1}, "policy cpu-threshold: scaling.settings.step is 1: "),
        ("true-rate", {"headrom": 2}, "scaling.settings.headrom is unknown; known are headroom, catch_up, margin"),
        ("latency", {}, "policy latency: scaling.settings.target is missing"),
        ("latency", {"target": "1s", "percentile": "p42"}, "scaling.settings.percentile is 'p42'"),
        ("schedule", {"at": [{"time": "1s"}]}, "scaling.settings.at.0.operators is missing"),
        ("manual", {"speed": 2}, "policy manual: scaling.settings.speed is unknown; manual takes none"),
        ("cpu", {}, "scaling.policy is 'cpu'; choose cpu-threshold, true-rate, latency, schedule, manual, or a class"),
    ],
)
def test_wrong_settings_are_refused_with_the_path_of_the_field(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        make_policy(ScalingSettings(policy=name, settings=settings))


def test_a_class_of_a_user_gets_its_settings_as_keywords() -> None:
    policy = make_policy(ScalingSettings(policy=THERE, settings={"operator": "counter", "parallelism": 3}))
    assert isinstance(policy, Always)
    assert (policy.operator, policy.parallelism) == ("counter", 3)


def test_a_module_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy_in_this_folder.py").write_text(
        "class Mine:\n    def decide(self, history):\n        return []\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert type(make_policy(ScalingSettings(policy="policy_in_this_folder:Mine"))).__name__ == "Mine"


@pytest.mark.parametrize(
    ("path", "settings", "words"),
    [
        ("no_such_module:Mine", {}, "module 'no_such_module' cannot be imported: ModuleNotFoundError"),
        (":Mine", {}, "scaling.policy is ':Mine': module '' cannot be imported"),
        (f"{__name__}:Nobody", {}, f"scaling.policy is '{__name__}:Nobody': there is no 'Nobody' in {__name__}"),
        (f"{__name__}:THERE", {}, f"scaling.policy is '{__name__}:THERE': that is no class"),
        (f"{__name__}:Undecided", {}, f"{__name__}:Undecided': it has no method decide(self, history)"),
        (THERE, {}, f"scaling.settings: {THERE} cannot be made with {{}}: TypeError: "),
        (THERE, {"operator": "counter", "speed": 2}, "unexpected keyword argument 'speed'"),
        (THERE, {"operator": "counter", "parallelism": 0}, "ValueError: choose more instances"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_with_the_reason(
    path: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        make_policy(ScalingSettings(policy=path, settings=settings))
