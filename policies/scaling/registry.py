"""Finds policies by name, and those of users by import path."""

from __future__ import annotations

from policies.observation import History
from policies.plugins import BuiltIn, PluginRegistry
from policies.scaling.cpu_threshold import CpuThreshold, CpuThresholdSettings
from policies.scaling.decision import Decision, Policy
from policies.scaling.latency import LatencySettings, LatencyTarget
from policies.scaling.schedule import Schedule, ScheduleSettings
from policies.scaling.settings import ScalingSettings
from policies.scaling.true_rate import TrueRate, TrueRateSettings


class Manual:
    """The policy `manual` decides nothing: operators are scaled by command only. The bounds of operators still hold."""

    def decide(self, history: History) -> list[Decision]:  # noqa: ARG002  # the shape of every policy
        return []


#: By the name that stands in settings.
POLICIES = {
    "cpu-threshold": BuiltIn(
        CpuThresholdSettings, lambda own, scaling: CpuThreshold(own, scaling.detector, scaling.scale_in)
    ),
    "true-rate": BuiltIn(TrueRateSettings, lambda own, scaling: TrueRate(own, scaling.detector, scaling.scale_in)),
    "latency": BuiltIn(LatencySettings, lambda own, scaling: LatencyTarget(own, scaling.detector, scaling.scale_in)),
    "schedule": BuiltIn(ScheduleSettings, lambda own, _: Schedule(own)),
    "manual": BuiltIn(None, lambda *_: Manual()),
}
_REGISTRY: PluginRegistry[Policy] = PluginRegistry("scaling", "policy", "history", POLICIES)


def make_policy(scaling: ScalingSettings) -> Policy:
    """The policy that the settings name, with its own settings checked; UserError where they are wrong.

    >>> make_policy(ScalingSettings(policy="latency", settings={"target": "500ms"})).settings.target
    0.5
    """
    return _REGISTRY.made(scaling.policy, scaling.settings, scaling)
