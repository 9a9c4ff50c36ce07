"""Selects the recent reports that count, and computes how busy they show an instance."""

from __future__ import annotations

from collections.abc import Iterable

from policies.observation import History, InstanceReport, Observation
from primitives.graph import InstanceId, Kind


def last_settled(history: History, operators: Iterable[str], count: int) -> tuple[Observation, ...]:
    """Returns the last `count` observations that are settled for all the operators; none if there are fewer."""
    settled = min((history.settled(operator) for operator in operators), key=len, default=())
    return settled[-count:] if len(settled) >= count else ()


def steady_reports(observations: tuple[Observation, ...], operator: str) -> tuple[tuple[InstanceReport, ...], ...]:
    """Returns the operator's reports in each observation; none if one is missing, or there is no report."""
    rounds = tuple(observation.of(operator) for observation in observations)
    instances = {tuple(report.instance for report in reports) for reports in rounds}
    return rounds if len(instances) == 1 and rounds[0] else ()


def series_of(observations: tuple[Observation, ...], instance: InstanceId) -> tuple[InstanceReport, ...]:
    """Returns one instance's reports, one per observation; none if it is missing in some."""
    series = tuple(each.instances[instance] for each in observations if instance in each.instances)
    return series if len(series) == len(observations) else ()


def load(report: InstanceReport, kind: Kind) -> float:
    """Returns how busy an instance is: by its CPU; a sink, which may wait for storage, by its thread if more."""
    return max(report.utilisation, report.busy) if kind is Kind.SINK else report.utilisation


def mean(numbers: Iterable[float]) -> float:
    """The mean of some numbers, at least one."""
    listed = list(numbers)
    return sum(listed) / len(listed)
