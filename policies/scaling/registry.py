"""Finds policies by name, and those of users by import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from formats.settings import Section, WrongSettings
from policies.plugins import made_by_path, own_settings
from policies.scaling.cpu_threshold import CpuThreshold, CpuThresholdSettings
from policies.scaling.decision import Policy
from policies.scaling.latency import LatencySettings, LatencyTarget
from policies.scaling.manual import Manual
from policies.scaling.schedule import Schedule, ScheduleSettings
from policies.scaling.settings import ScalingSettings
from policies.scaling.true_rate import TrueRate, TrueRateSettings
from primitives.errors import UserError

S = TypeVar("S", bound=Section)


def make_policy(scaling: ScalingSettings) -> Policy:
    """The policy that the settings name, with its own settings checked; UserError where they are wrong.

    >>> make_policy(ScalingSettings(policy="latency", settings={"target": "500ms"})).settings.target
    0.5
    """
    if scaling.policy in POLICIES:
        return POLICIES[scaling.policy](scaling)
    if ":" in scaling.policy:
        return _of_user(scaling)
    raise UserError(
        f"scaling.policy is {scaling.policy!r}; choose {', '.join(POLICIES)}, or a class of your own as module:Class"
    )


def _cpu_threshold(scaling: ScalingSettings) -> Policy:
    return CpuThreshold(_own(CpuThresholdSettings, scaling), scaling.detector, scaling.scale_in)


def _true_rate(scaling: ScalingSettings) -> Policy:
    return TrueRate(_own(TrueRateSettings, scaling), scaling.detector, scaling.scale_in)


def _latency(scaling: ScalingSettings) -> Policy:
    return LatencyTarget(_own(LatencySettings, scaling), scaling.detector, scaling.scale_in)


def _schedule(scaling: ScalingSettings) -> Policy:
    return Schedule(_own(ScheduleSettings, scaling))


def _manual(scaling: ScalingSettings) -> Policy:
    if scaling.settings:
        raise WrongSettings(
            "policy manual", [f"scaling.settings.{each} is unknown; manual takes none" for each in scaling.settings]
        )
    return Manual()


#: By the name that stands in settings.
POLICIES: Mapping[str, Callable[[ScalingSettings], Policy]] = {
    "cpu-threshold": _cpu_threshold,
    "true-rate": _true_rate,
    "latency": _latency,
    "schedule": _schedule,
    "manual": _manual,
}


def _own(model: type[S], scaling: ScalingSettings) -> S:
    return own_settings(model, scaling.settings, "scaling.settings", f"policy {scaling.policy}")


def _of_user(scaling: ScalingSettings) -> Policy:
    policy: Policy = made_by_path(scaling.policy, scaling.settings, "scaling", "policy", "history")
    return policy
