"""Metrics and spans of a run in the data model of the OpenTelemetry SDK, which the extra `otlp` brings.

A data point is made of the record's own value: its histograms are not observed again, so no count differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from seep.logs.versions import own_version
from seep.metrics.definitions import samples
from seep.metrics.metric import Metric, MetricSample, MetricType, Present
from seep.metrics.otlp.names import UNITS, otlp_name
from seep.record.causes.spans import Span, SpanStatus
from seep.record.histogram import BOUNDS, DurationCounts

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_STATUS = {SpanStatus.UNSET: StatusCode.UNSET, SpanStatus.OK: StatusCode.OK, SpanStatus.ERROR: StatusCode.ERROR}


def resource_of(run: str, query: str) -> Resource:
    """Returns what all that a run pushes has in common, with OTEL_RESOURCE_ATTRIBUTES of the environment."""
    return Resource.create({"service.name": query, "service.instance.id": run, "seep.run": run})


@cache
def _scope() -> InstrumentationScope:
    return InstrumentationScope("seep", own_version())


def metrics_data(present: Present, begun: float, resource: Resource) -> MetricsData:
    """Returns all metrics at a moment of a run that began at this unix time."""
    start, now = _nanoseconds(begun), _nanoseconds(begun + present.status.at)
    metrics = [_metric(metric, found, min(start, now), now) for metric, found in samples(present)]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(_scope(), metrics, "")], "")])


def _metric(metric: Metric, found: Iterable[MetricSample], start: int, now: int) -> OtlpMetric:
    points: Any = [_point(dict(zip(metric.labels, each.labels, strict=True)), each.value, start, now) for each in found]
    data: Gauge | Sum | Histogram
    match metric.type:
        case MetricType.GAUGE:
            data = Gauge(points)
        case MetricType.COUNTER:
            data = Sum(points, _CUMULATIVE, is_monotonic=True)
        case MetricType.HISTOGRAM:
            data = Histogram(points, _CUMULATIVE)
    return OtlpMetric(otlp_name(metric), metric.help, UNITS[metric.unit], data)


def _point(
    labels: dict[str, str], value: float | DurationCounts, start: int, now: int
) -> NumberDataPoint | HistogramDataPoint:
    if not isinstance(value, DurationCounts):
        return NumberDataPoint(labels, start, now, value if isinstance(value, int) else float(value))
    unknown: Any = None  # the least and the longest of all are not counted
    up_to = (0, *value.up_to, value.number)
    buckets = [more - less for less, more in pairwise(up_to)]
    return HistogramDataPoint(labels, start, now, value.number, value.total, buckets, BOUNDS, unknown, unknown)


def otlp_spans(spans: Iterable[Span], begun: float, resource: Resource) -> Sequence[ReadableSpan]:
    """Returns ended spans of a run that began at this unix time, with the ids that the record gives them."""
    return [_span(span, begun, resource) for span in spans]


def _span(span: Span, begun: float, resource: Resource) -> ReadableSpan:
    is_error = span.status is SpanStatus.ERROR
    attributes = dict(span.attributes) | ({"reason": span.reason} if span.reason and not is_error else {})
    return ReadableSpan(
        span.name,
        context=_context(span.trace, span.id),
        parent=_context(span.trace, span.parent) if span.parent else None,
        resource=resource,
        attributes=attributes,
        status=Status(_STATUS[span.status], span.reason if is_error else None),
        start_time=_nanoseconds(begun + span.start),
        end_time=_nanoseconds(begun + (span.start if span.end is None else span.end)),
        instrumentation_scope=_scope(),
    )


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e6) * 1000
