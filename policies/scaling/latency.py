"""Scaling by a latency target: adds an instance to the operator with the most work when rows take too long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from formats.settings import Seconds, Section
from policies.observation import History, InstanceReport, Observation
from policies.scaling.decision import Decision
from policies.scaling.recent import last_settled, load
from policies.scaling.scale_in import one_fewer
from policies.scaling.settings import DetectorSettings, ScaleInSettings
from policies.words import in_reports, listed, percent
from primitives.graph import Kind


class LatencySettings(Section):
    """Settings of the policy `latency`."""

    target: Seconds = Field(description="Latency that is not to be exceeded.")
    percentile: Literal["p50", "p95", "p99", "max"] = Field("p99", description="Of which rows: p50, p95, p99 or max.")
    relax: float = Field(0.5, gt=0, lt=1, description="Part of the target below which instances may be merged.")


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """Adds an instance to the operator that explains the latency, while this is above the target."""

    settings: LatencySettings
    detector: DetectorSettings = field(default_factory=DetectorSettings)
    scale_in: ScaleInSettings = field(default_factory=ScaleInSettings)

    def decide(self, history: History) -> list[Decision]:
        if late := self._latencies(history, self.detector.consecutive):
            if min(late) > self.settings.target:
                return list(self._scale_out(history, late))
            if self._are_relaxed(history):
                return list(self._fewer(history))
        return []

    def _latencies(self, history: History, count: int) -> list[float]:
        """Returns the latency of each settled observation; none if there are too few."""
        return [self._latency(each) for each in last_settled(history, history.graph.order, count)]

    def _latency(self, observation: Observation) -> float:
        """Returns the latency; if epochs are open and none has ended, at least the length of the interval."""
        unknown = observation.seconds if observation.epochs_in_flight else 0.0
        return observation.latency.get(self.settings.percentile, unknown)

    def _scale_out(self, history: History, late: list[float]) -> Iterator[Decision]:
        if culprit := self._culprit(history):
            operator = culprit.instance.operator
            why = (
                f"{operator}: {self.settings.percentile} is {listed([f'{each:.3g} s' for each in late])} "
                f"{in_reports(len(late))} (above {self.settings.target:g} s), and {culprit.instance} is hottest: "
                f"{percent(culprit.utilisation)} of its CPU share, {culprit.waiting} messages wait"
            )
            yield Decision(operator, history.parallelism(operator) + 1, why, (culprit.instance,))

    def _culprit(self, history: History) -> InstanceReport | None:
        """Returns the instance with the highest load, or with the most input waiting if all have CPU to spare.

        None if neither explains the latency (its cause is epochs, links or stores), or if the instance owns one slot
        only.
        """
        latest, kind = history.observations[-1], history.graph.kind
        reports = [each for each in latest.instances.values() if kind(each.instance.operator) is not Kind.SOURCE]
        loaded = [each for each in reports if load(each, kind(each.instance.operator)) >= self.detector.idle_cpu]
        hottest = max(loaded, key=lambda each: load(each, kind(each.instance.operator)), default=None)
        fullest = max(reports, key=lambda each: each.waiting, default=None)
        culprit = hottest or (fullest if fullest and fullest.waiting else None)
        return culprit if culprit and culprit.slots >= 2 else None

    def _are_relaxed(self, history: History) -> bool:
        latencies = self._latencies(history, self.scale_in.consecutive)
        return bool(latencies) and max(latencies) < self.settings.relax * self.settings.target

    def _fewer(self, history: History) -> Iterator[Decision]:
        for operator in history.graph.order:
            decision = one_fewer(history, operator, self.scale_in, self.detector)
            if decision and not self._were_too_few(history, operator, decision.parallelism):
                yield decision

    def _were_too_few(self, history: History, operator: str, parallelism: int) -> bool:
        """Whether the operator was scaled out from this number before, at about the same work: it would be again."""
        outs = [c for c in history.changes if c.operator == operator and c.before <= parallelism < c.after]
        then = [each for each in history.observations if outs and each.at <= outs[-1].begun]
        if not then:
            return False
        return _total_load(history, operator, history.observations[-1]) > self.settings.relax * _total_load(
            history, operator, then[-1]
        )


def _total_load(history: History, operator: str, observation: Observation) -> float:
    return sum(load(report, history.graph.kind(operator)) for report in observation.of(operator))
