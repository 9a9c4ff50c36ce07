"""Scale-in: removes an instance if the others would still have little work."""

from __future__ import annotations

import math

from policies.observation import History, InstanceReport
from policies.scaling.decision import Decision
from policies.scaling.recent import last_settled, load, steady_reports
from policies.scaling.settings import DetectorSettings, ScaleInSettings
from policies.words import in_reports, percent
from primitives.graph import Kind


def one_fewer(
    history: History, operator: str, settings: ScaleInSettings, detector: DetectorSettings
) -> Decision | None:
    """Returns a decision for one instance fewer, if in each of the last settled reports the merged load was low.

    Law: merged instances are no bottleneck. The mean load afterwards is at most `below`. The hottest instance, with the
    largest part that it can get of the leaving one's work, is at most half-way from there to the detector's threshold.
    Memory is under its own threshold.
    """
    rounds = steady_reports(last_settled(history, [operator], settings.consecutive), operator)
    kind = history.graph.kind(operator)
    if not settings.enabled or not rounds or len(rounds[0]) < 2:
        return None
    if not all(_has_room(reports, kind, settings, detector) for reports in rounds):
        return None
    left, most = len(rounds[0]) - 1, max(merged_load(reports, kind) for reports in rounds)
    why = (
        f"{operator}: {left} of {left + 1} instances could have done it all, at work at most {percent(most)} of the "
        f"time {in_reports(len(rounds))} (not above {percent(settings.below)})"
    )
    return Decision(operator, left, why)


def merged_load(reports: tuple[InstanceReport, ...], kind: Kind) -> float:
    """Returns the mean load with one instance fewer; there are at least two."""
    return sum(load(report, kind) for report in reports) / (len(reports) - 1)


def instances_for_memory(reports: tuple[InstanceReport, ...], most: float) -> float:
    """Returns the number of instances that their memory requires, if each uses the fraction `most` of the budget."""
    return sum(report.memory for report in reports) / most


def _hottest_after(reports: tuple[InstanceReport, ...], kind: Kind) -> float:
    """Returns the load of the hottest instance with the largest part that it can get of the leaving one's work.

    The one with the fewest slots leaves, of equals the last; a slot goes to one of the others as a whole.
    """
    leaving = min(reversed(reports), key=lambda report: report.slots)
    slots = max(leaving.slots, 1)
    largest_part = math.ceil(slots / (len(reports) - 1)) / slots
    hottest = max(load(report, kind) for report in reports if report is not leaving)
    return hottest + load(leaving, kind) * largest_part


def _has_room(
    reports: tuple[InstanceReport, ...], kind: Kind, settings: ScaleInSettings, detector: DetectorSettings
) -> bool:
    left = len(reports) - 1
    return (
        merged_load(reports, kind) <= settings.below
        and _hottest_after(reports, kind) <= (settings.below + detector.cpu) / 2
        and instances_for_memory(reports, detector.memory) < left
    )
