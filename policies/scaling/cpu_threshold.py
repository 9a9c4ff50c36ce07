"""SEEP's policy: splits every bottleneck, several operators at once, and merges instances with little work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import Field

from formats.settings import Section
from policies.observation import History
from policies.scaling.decision import Decision
from policies.scaling.detector import Bottleneck, Cause, bottlenecks
from policies.scaling.scale_in import one_fewer
from policies.scaling.settings import DetectorSettings, ScaleInSettings


class CpuThresholdSettings(Section):
    """Settings of the policy `cpu-threshold`."""

    step: int = Field(2, ge=2, description="How many instances a bottleneck becomes (π).")


@dataclass(frozen=True, slots=True)
class CpuThreshold:
    """Scales by the detector's results. A slow link changes nothing, as more instances do not help against it."""

    settings: CpuThresholdSettings = field(default_factory=CpuThresholdSettings)
    detector: DetectorSettings = field(default_factory=DetectorSettings)
    scale_in: ScaleInSettings = field(default_factory=ScaleInSettings)

    def decide(self, history: History) -> list[Decision]:
        found = bottlenecks(history, self.detector)
        return [each for o in history.graph.order for each in self._for_operator(history, o, found)]

    def _for_operator(self, history: History, operator: str, found: list[Bottleneck]) -> Iterator[Decision]:
        own = [each for each in found if each.instance.operator == operator]
        if divisible := [each for each in own if _can_be_relieved(each, history)]:
            yield self._scale_out(history, operator, divisible)
        elif not own and (fewer := one_fewer(history, operator, self.scale_in, self.detector)):
            yield fewer

    def _scale_out(self, history: History, operator: str, hot: list[Bottleneck]) -> Decision:
        wanted = history.parallelism(operator) + (self.settings.step - 1) * len(hot)
        why = "; ".join(each.why for each in hot)
        return Decision(operator, wanted, why, tuple(each.instance for each in hot))


def _can_be_relieved(bottleneck: Bottleneck, history: History) -> bool:
    """Whether more instances help: not if the instance owns one slot, which cannot be split."""
    owned = history.observations[-1].instances[bottleneck.instance].slots
    return bottleneck.cause is not Cause.LINK and owned >= 2
