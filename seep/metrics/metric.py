"""Metric: the definition of one metric as data, and the samples that it has at a moment of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from primitives.graph import InstanceId
from seep.record.facts import Facts
from seep.record.histogram import DurationCounts
from seep.record.status import InstanceStatus, NodeStatus, OperatorStatus, Status


class MetricType(StrEnum):
    """The type of a metric, as in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """What a metric is about: it has one series, or one for each of `choice`, for each of these."""

    RUN = "run"
    OPERATOR = "operator"
    INSTANCE = "instance"
    NODE = "node"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that name one. `instance` is no label: Prometheus has that name for the scraped process."""
        return {
            Scope.RUN: (),
            Scope.OPERATOR: ("operator",),
            Scope.INSTANCE: ("operator", "index"),
            Scope.NODE: ("node",),
        }[self]


class Choice(NamedTuple):
    """A label with few values, which are known beforehand."""

    label: str
    values: tuple[str, ...]


class MetricSample(NamedTuple):
    """One value of a metric; its labels are in the order of the definition."""

    labels: tuple[str, ...]
    value: float | DurationCounts


@dataclass(frozen=True, slots=True)
class Present:
    """A run at one moment: its facts, with all instances and nodes that are there."""

    run: str  #: id of the run
    query: str
    facts: Facts
    status: Status
    instances: Mapping[InstanceId, InstanceStatus]  #: placed ones, by the report of the node that they are placed on
    nodes: tuple[NodeStatus, ...]  #: live ones

    @property
    def operators(self) -> tuple[OperatorStatus, ...]:
        return self.status.operators

    @classmethod
    def of(cls, run: str, query: str, facts: Facts) -> Present | None:
        """Returns the present of a run; None if it has no status yet."""
        if facts.status is None:
            return None
        placement = facts.query.placement
        instances = {
            who: each
            for each in facts.status.instances
            if (seat := placement.get(who := InstanceId(each.operator, each.index))) and seat.node == each.node
        }
        nodes = tuple(each for each in facts.status.hosts if each.name in facts.query.nodes)
        return cls(run, query, facts, facts.status, instances, nodes)


Reading = Callable[[Present], Iterable[MetricSample]]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name and meaning, and how it is read from the record's present."""

    name: str
    type: MetricType
    help: str
    read: Reading
    scope: Scope = Scope.RUN
    unit: str = ""  #: seconds, bytes or ratio; empty for a plain number
    choice: Choice | None = None
    told: tuple[str, ...] = ()  #: further labels, of which each series has one value at a time

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.scope.labels, *((self.choice.label,) if self.choice else ()), *self.told)

    def most_series(self, present: Present) -> int:
        """Returns the most series that it may have at a moment."""
        of = {
            Scope.RUN: 1,
            Scope.OPERATOR: len(present.facts.query.graph.order),
            Scope.INSTANCE: len(present.facts.query.placement),
            Scope.NODE: len(present.facts.query.nodes),
        }[self.scope]
        return of * (len(self.choice.values) if self.choice else 1)


def counter(name: str, help: str, read: Reading, **more: object) -> Metric:
    """Defines a counter: a number that never goes back while its series exists."""
    return _metric(MetricType.COUNTER, name, help, read, more)


def gauge(name: str, help: str, read: Reading, **more: object) -> Metric:
    """Defines a gauge: a number that goes up and down."""
    return _metric(MetricType.GAUGE, name, help, read, more)


def histogram(name: str, help: str, read: Reading, **more: object) -> Metric:
    """Defines a histogram of seconds."""
    return _metric(MetricType.HISTOGRAM, name, help, read, {"unit": "seconds", **more})


def _metric(kind: MetricType, name: str, help: str, read: Reading, more: Mapping[str, object]) -> Metric:
    return Metric(name, kind, help, read, **more)  # type: ignore[arg-type]


# -- ways to read -----------------------------------------------------------------------------------------------------


def of_run(value: Callable[[Present], float | DurationCounts | None]) -> Reading:
    """Reads one number; there is no series while it is None."""

    def read(present: Present) -> Iterable[MetricSample]:
        found = value(present)
        return () if found is None else (MetricSample((), found),)

    return read


def by_choice(values: Callable[[Present], Mapping[str, float]]) -> Reading:
    """Reads one number for each value of a label."""
    return lambda present: (MetricSample((each,), value) for each, value in values(present).items())


def by_operator(values: Callable[[Present], Mapping[str, float | None]]) -> Reading:
    """Reads one number for each operator; an operator without one has no series."""
    return lambda present: (MetricSample((o,), value) for o, value in values(present).items() if value is not None)


def by_instance(value: Callable[[Present, InstanceId], float | None]) -> Reading:
    """Reads one number for each instance; an instance without one has no series."""
    return lambda present: (
        MetricSample((who.operator, str(who.index)), found)
        for who in sorted(present.facts.query.placement)
        if (found := value(present, who)) is not None
    )


def by_instance_status(value: Callable[[InstanceStatus], float | None]) -> Reading:
    """Reads one number from the status of each instance that has reported."""
    return by_instance(lambda present, who: value(present.instances[who]) if who in present.instances else None)


def by_node(value: Callable[[NodeStatus], float]) -> Reading:
    """Reads one number from the status of each node."""
    return lambda present: (MetricSample((node.name,), value(node)) for node in present.nodes)
