"""SEEP's bottleneck detector: finds instances above a threshold in k reports in a row, and the scarce resource."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from policies.observation import History, InstanceReport, Observation
from policies.scaling.recent import last_settled, mean, series_of
from policies.scaling.settings import DetectorSettings
from policies.words import in_reports, listed, percent, percents
from primitives.graph import InstanceId, Kind


class Cause(StrEnum):
    """The scarce resource of an instance."""

    CPU = "cpu"
    MEMORY = "memory"
    LINK = "link"  #: its output waits, though neither it nor its receivers are busy
    SINK = "sink"  #: its thread waits for the storage that it writes to


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """An instance that limits the query, or soon will."""

    instance: InstanceId
    cause: Cause
    level: float  #: mean of the measurements over the threshold: 1 is at the threshold
    why: str  #: an explanation with the numbers


#: The reports of one instance, oldest first.
Series = tuple[InstanceReport, ...]


def bottlenecks(history: History, settings: DetectorSettings) -> list[Bottleneck]:
    """Returns every instance that was above a threshold in each of its last k settled reports, hottest first.

    An instance has one cause: the first of CPU, memory, sink and link that its reports show.
    """
    found = (each for operator in history.graph.order for each in _of_operator(history, operator, settings))
    return sorted(found, key=lambda bottleneck: (-bottleneck.level, bottleneck.instance))


def _of_operator(history: History, operator: str, settings: DetectorSettings) -> Iterator[Bottleneck]:
    recent = last_settled(history, [operator], settings.consecutive)
    for instance in (report.instance for report in (recent[-1].of(operator) if recent else ())):
        if series := series_of(recent, instance):
            found = _cpu(series, settings) or _memory(series, recent, settings) or _outside(series, history, settings)
            if found:
                yield found


def _cpu(series: Series, settings: DetectorSettings) -> Bottleneck | None:
    used = [report.utilisation for report in series]
    if min(used) <= settings.cpu:
        return None
    why = f"{percents(used)} of its CPU share {in_reports(len(used))} (above {percent(settings.cpu)})"
    return _bottleneck(series, Cause.CPU, mean(used) / settings.cpu, why)


def _memory(series: Series, recent: tuple[Observation, ...], settings: DetectorSettings) -> Bottleneck | None:
    """Returns a memory bottleneck. Memory belongs to a node: its instance with the most state is named."""
    used = [report.memory for report in series]
    if min(used) <= settings.memory or not _holds_most(series[-1], recent[-1]):
        return None
    why = f"{percents(used)} of its node's memory budget {in_reports(len(used))} (above {percent(settings.memory)})"
    return _bottleneck(series, Cause.MEMORY, mean(used) / settings.memory, why)


def _holds_most(report: InstanceReport, observation: Observation) -> bool:
    neighbours = [each for each in observation.instances.values() if each.node == report.node]
    return report.instance == max((each.state_bytes + each.outbox_bytes, each.instance) for each in neighbours)[1]


def _outside(series: Series, history: History, settings: DetectorSettings) -> Bottleneck | None:
    """Returns the bottleneck of an instance that waits for its surroundings while it has CPU to spare."""
    if max(report.utilisation for report in series) >= settings.idle_cpu:
        return None
    is_sink = history.graph.kind(series[0].instance.operator) is Kind.SINK
    return _sink(series, settings) if is_sink else _link(series, history, settings)


def _sink(series: Series, settings: DetectorSettings) -> Bottleneck | None:
    busy = [report.busy for report in series]
    if min(busy) <= settings.cpu or not all(report.waiting for report in series):
        return None
    used = percent(max(report.utilisation for report in series))
    why = (
        f"at work {percents(busy)} of the time {in_reports(len(busy))} (above {percent(settings.cpu)}) "
        f"with at most {used} of its CPU share, while input waits: the store that it writes to is slow"
    )
    return _bottleneck(series, Cause.SINK, mean(busy) / settings.cpu, why)


def _link(series: Series, history: History, settings: DetectorSettings) -> Bottleneck | None:
    unsent = [report.unsent for report in series]
    is_stuck = min(unsent) >= settings.unsent and unsent == sorted(unsent)
    if not is_stuck or _receivers_explain_it(series[0].instance.operator, history, settings):
        return None
    used = percent(max(report.utilisation for report in series))
    why = (
        f"{listed(unsent)} epochs of output unsent {in_reports(len(unsent))} (at least {settings.unsent}) "
        f"with at most {used} of its CPU share, and no receiver is busy: its link is slow"
    )
    return _bottleneck(series, Cause.LINK, mean(unsent) / settings.unsent, why)


def _receivers_explain_it(operator: str, history: History, settings: DetectorSettings) -> bool:
    """Whether a receiver is busy most of the time, or a downstream operator has not settled after a change."""
    downstream = history.graph.downstream[operator]
    recent = last_settled(history, downstream, settings.consecutive)
    reports = (report for each in recent for receiver in downstream for report in each.of(receiver))
    return not recent or any(max(report.utilisation, report.busy) > settings.cpu for report in reports)


def _bottleneck(series: Series, cause: Cause, level: float, why: str) -> Bottleneck:
    return Bottleneck(series[0].instance, cause, level, f"{series[0].instance}: {why}")
