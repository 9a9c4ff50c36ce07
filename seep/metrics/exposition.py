"""Exposition: the metrics of a run as text, by the library of Prometheus, which the extra `metrics` brings."""

from __future__ import annotations

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


class Exposition:
    """Makes the page of a run, once for each moment and format: a scraper in a hurry costs nothing more."""

    def __init__(self, run: str, query: str, facts: Callable[[], Facts | None]) -> None:
        """`facts` returns the present facts, and waits for nobody."""
        self._run, self._query, self._facts = run, query, facts
        self._of: Facts | None = None  #: the facts that the pages show
        self._pages: dict[bool, MetricsPage] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(RunCollector(self._present))

    def page(self, accept: str) -> MetricsPage:
        """Returns the page for an `Accept` header: OpenMetrics if it is in there, or else Prometheus' text."""
        now, is_open = self._facts(), _OPEN_METRICS in accept
        if now is not self._of:
            self._of, self._pages = now, {}
        if is_open not in self._pages:
            encoder, content_type = choose_encoder(_FORMATS[is_open])
            self._pages[is_open] = MetricsPage(content_type, encoder(self.registry))
        return self._pages[is_open]

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
