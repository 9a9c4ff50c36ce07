"""Exposition: the metrics of a run as text, by the library of Prometheus, which the extra `metrics` brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from seep.metrics.definitions import samples
from seep.metrics.metric import Metric, MetricSample, MetricType, Present
from seep.record.facts import Facts
from seep.record.histogram import BOUNDS, DurationCounts

_OPEN_METRICS = "application/openmetrics-text"
#: What is asked of the library for each of the two formats.
_FORMATS = {True: f"{_OPEN_METRICS}; version=1.0.0", False: ""}
#: After a page was made, so many times the time that it took passes before the next one is made.
_REST = 20
_FAMILIES = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.HISTOGRAM: HistogramMetricFamily,
}


class MetricsPage(NamedTuple):
    """The metrics as text."""

    content_type: str
    body: bytes


class RunCollector(Collector):
    """Reads the metrics of one run whenever its registry is asked."""

    def __init__(self, present: Callable[[], Present | None]) -> None:
        self._present = present

    def collect(self) -> Iterable[Family]:
        present = self._present()
        return () if present is None else (_family(metric, found) for metric, found in samples(present))


class _Made(NamedTuple):
    """A page that was made."""

    page: MetricsPage
    of: Facts | None  #: the facts that it shows
    until: float  #: no other is made before this time


class Exposition:
    """Makes the page of a run, at most once for each moment.

    It also spends at most a fraction of the time on pages, however often it is asked: until the next one is due, the
    one before is returned.
    """

    def __init__(
        self, run: str, query: str, facts: Callable[[], Facts | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`facts` returns the present facts, and waits for nobody."""
        self._run, self._query, self._facts, self._clock = run, query, facts, clock
        self._of: Facts | None = None  #: the facts of the page that is being made
        self._made: dict[bool, _Made] = {}  #: by whether it is in the format of OpenMetrics
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(RunCollector(self._present))

    def page(self, accept: str) -> MetricsPage:
        """Returns the page for an `Accept` header: OpenMetrics if it is in there, or else Prometheus' text."""
        is_open = _OPEN_METRICS in accept
        made = self._made.get(is_open)
        if made is None or (made.of is not self._facts() and self._clock() >= made.until):
            made = self._made[is_open] = self._make(is_open)
        return made.page

    def _make(self, is_open: bool) -> _Made:
        self._of, begun = self._facts(), self._clock()
        encoder, content_type = choose_encoder(_FORMATS[is_open])
        page, ended = MetricsPage(content_type, encoder(self.registry)), self._clock()
        return _Made(page, self._of, ended + (ended - begun) * _REST)

    def _present(self) -> Present | None:
        return None if self._of is None else Present.of(self._run, self._query, self._of)


def _family(metric: Metric, found: Iterable[MetricSample]) -> Family:
    family: Any = _FAMILIES[metric.type](metric.name, metric.help, labels=metric.labels, unit=metric.unit)
    for labels, value in found:
        if isinstance(value, DurationCounts):
            family.add_metric(labels, _buckets(value), value.total)
        else:
            family.add_metric(labels, value)
    made: Family = family
    return made


def _buckets(counts: DurationCounts) -> list[tuple[str, float]]:
    return [*((str(bound), up_to) for bound, up_to in zip(BOUNDS, counts.up_to, strict=True)), ("+Inf", counts.number)]
