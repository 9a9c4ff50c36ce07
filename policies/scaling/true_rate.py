"""Scaling by true processing rates, as in DS2: one step to the parallelism that the input requires.

An instance's capacity is its rate over the fraction of time in which it works. Its required rate follows from what the
sources owe, operator by operator along the graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field

from formats.settings import Seconds, Section
from policies.observation import History, InstanceReport, Observation
from policies.scaling.decision import Decision
from policies.scaling.recent import last_settled, load, steady_reports
from policies.scaling.scale_in import instances_for_memory
from policies.scaling.settings import DetectorSettings, ScaleInSettings
from policies.words import in_reports, percent
from primitives.graph import Kind, QueryGraph


class TrueRateSettings(Section):
    """Settings of the policy `true-rate`."""

    headroom: float = Field(1.25, ge=1, description="How much more an operator can do than it has to.")
    catch_up: Seconds = Field(60.0, description="Time in which rows that are due and not read are worked off.")
    margin: float = Field(
        0.15, ge=0, description="How much more headroom there must be after scale-in, so that noise does not undo it."
    )


@dataclass(frozen=True, slots=True)
class InstanceRange:
    """The numbers of instances that one report allows; within this range nothing changes."""

    least: int
    most: int
    due: float  #: rows per second
    work: float  #: number of instances that this would keep busy all the time


#: For each observation, the ranges of the operators that it has data for.
Ranges = list[dict[str, InstanceRange]]


@dataclass(frozen=True, slots=True)
class TrueRate:
    """Chooses the fewest instances that can process the due rows, with headroom, when k reports agree on a change.

    Law: while the due rate over an instance's capacity stays within a factor of 1 + margin, no operator is scaled out
    and in again, nor in and out.
    """

    settings: TrueRateSettings = field(default_factory=TrueRateSettings)
    detector: DetectorSettings = field(default_factory=DetectorSettings)
    scale_in: ScaleInSettings = field(default_factory=ScaleInSettings)

    def decide(self, history: History) -> list[Decision]:
        outs = self._ranges(history, self.detector.consecutive)
        ins = self._ranges(history, self.scale_in.consecutive) if self.scale_in.enabled else []
        found = (self._for_operator(history, operator, outs, ins) for operator in history.graph.order)
        return [decision for decision in found if decision]

    def _for_operator(self, history: History, operator: str, outs: Ranges, ins: Ranges) -> Decision | None:
        """Returns the number nearest to the present one that is within some range of each kind of reports."""
        present = history.parallelism(operator)
        if (told := _all_of(outs, operator)) and (least := min(each.least for each in told)) > present:
            return self._decision(operator, present, least, told)
        if (told := _all_of(ins, operator)) and (most := max(each.most for each in told)) < present:
            return self._decision(operator, present, most, told)
        return None

    def _ranges(self, history: History, count: int) -> Ranges:
        """Returns the ranges of the last observations settled for all operators, as rates depend on upstream ones."""
        recent = last_settled(history, history.graph.order, count)
        steady = [operator for operator in history.graph.order if steady_reports(recent, operator)]
        return [self._ranges_of(history.graph, each, steady) for each in recent]

    def _ranges_of(self, graph: QueryGraph, observation: Observation, operators: list[str]) -> dict[str, InstanceRange]:
        due = rates_due(graph, observation, self.settings.catch_up)
        found = {each: self._range(observation.of(each), graph.kind(each), due[each]) for each in operators}
        return {operator: each for operator, each in found.items() if each}

    def _range(self, reports: tuple[InstanceReport, ...], kind: Kind, due: float) -> InstanceRange | None:
        rate = true_rate(reports, kind)
        if rate is None and (due > 0 or any(report.waiting for report in reports)):
            return None  # the operator stands still
        work = due / rate if rate else 0.0
        needed = work * self.settings.headroom
        most = max(needed * (1 + self.settings.margin), instances_for_memory(reports, self.detector.memory))
        return InstanceRange(max(1, math.ceil(needed)), max(1, math.ceil(most)), due, work)

    def _decision(self, operator: str, present: int, wanted: int, told: list[InstanceRange]) -> Decision:
        last = told[-1]
        why = (
            f"{operator}: {last.due:,.0f} rows/s are due, which take all the time of {last.work:.2f} instances: "
            f"{wanted} instead of {present} would be at work {percent(last.work / wanted)} of it "
            f"(not above {percent(1 / self.settings.headroom)}), {in_reports(len(told))}"
        )
        return Decision(operator, wanted, why)


def _all_of(ranges: Ranges, operator: str) -> list[InstanceRange]:
    """Returns an operator's range in each observation; none if one has no data."""
    found = [each[operator] for each in ranges if operator in each]
    return found if len(found) == len(ranges) else []


def true_rate(reports: tuple[InstanceReport, ...], kind: Kind) -> float | None:
    """Returns the rows per second that one instance of an operator could process; None if they processed too little.

    Computed over all instances at once, so that almost idle ones have little weight.
    """
    at_work = sum(load(report, kind) for report in reports)
    rows = sum(processed(report, kind) for report in reports)
    return rows / at_work if rows > 0 and at_work > 0 else None


def processed(report: InstanceReport, kind: Kind) -> float:
    """Returns the rows per second that an instance processed: its input; for a source, its output."""
    return report.rows_out if kind is Kind.SOURCE else report.rows_in


def rates_due(graph: QueryGraph, observation: Observation, catch_up: float) -> Mapping[str, float]:
    """Returns the rows per second that each operator should process if nothing upstream were too slow.

    A source owes the offered rate, and its part of the rows that it is behind. Any other operator gets more than before
    by the same factor as all output of its upstream; its output grows by that factor too.
    """
    due: dict[str, float] = {}
    given: dict[str, float] = {}  #: rows per second that each operator would emit
    for operator in graph.order:
        if graph.kind(operator) is Kind.SOURCE:
            due[operator] = given[operator] = _due_of_source(operator, observation, catch_up)
            continue
        was = sum(_rows_out(observation, upstream) for upstream in graph.upstream[operator])
        growth = sum(given[upstream] for upstream in graph.upstream[operator]) / was if was > 0 else 1.0
        due[operator] = growth * sum(report.rows_in for report in observation.of(operator))
        given[operator] = growth * _rows_out(observation, operator)
    return due


def _due_of_source(source: str, observation: Observation, catch_up: float) -> float:
    offered = observation.offered.get(source, _rows_out(observation, source))
    return offered + observation.behind.get(source, 0.0) / catch_up


def _rows_out(observation: Observation, operator: str) -> float:
    return sum(report.rows_out for report in observation.of(operator))
