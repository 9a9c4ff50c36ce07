"""What an expression of PromQL names: metrics, labels and values, checked against the definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from seep.metrics.definitions import METRICS
from seep.metrics.metric import Metric, MetricType

DEFINED = {metric.name: metric for metric in METRICS}
#: Labels that Prometheus gives to whatever it scrapes.
OF_TARGETS = {"job", "instance"}
#: Functions that take a range of a counter, and those that take a range of a gauge.
_OF_COUNTERS, _OF_GAUGES = {"rate", "irate", "increase"}, {"deriv", "delta", "min_over_time", "max_over_time"}

_SELECTOR = re.compile(r"(?:(\w+)\()?\b(seep_\w+)(?:\{([^}]*)\})?(\[[^\]]+\])?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


class Selector(NamedTuple):
    """A metric in an expression."""

    name: str
    function: str
    matchers: tuple[tuple[str, str, str], ...]  #: label, operator, value
    is_range: bool

    @property
    def metric(self) -> Metric | None:
        """Its definition; a histogram has series of three other names."""
        found = DEFINED.get(self.name)
        if found is None:
            base = DEFINED.get(re.sub(r"_(bucket|sum|count)$", "", self.name))
            return base if base is not None and base.type is MetricType.HISTOGRAM else None
        return None if found.type is MetricType.HISTOGRAM else found

    @property
    def labels(self) -> set[str]:
        return {*(self.metric.labels if self.metric else ()), *({"le"} if self.name.endswith("_bucket") else ())}


def selectors(expression: str) -> list[Selector]:
    return [
        Selector(name, function, tuple(_MATCHER.findall(matchers)), bool(span))
        for function, name, matchers, span in _SELECTOR.findall(expression)
    ]


def problems(expression: str) -> list[str]:
    """What is wrong with an expression; empty when all is well."""
    found = selectors(expression)
    known = OF_TARGETS.union(*(each.labels for each in found))
    grouped = {
        label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",") if label.strip()
    }
    unknown = [f"{label} is no label of its metrics" for label in sorted(grouped - known)]
    return [
        *([] if found else ["it has no metric of ours"]),
        *unknown,
        *(each for one in found for each in _wrong(one)),
    ]


def _wrong(selector: Selector) -> Iterator[str]:
    metric = selector.metric
    if metric is None:
        yield f"there is no metric {selector.name}"
        return
    for label, operator, value in selector.matchers:
        if label not in selector.labels | OF_TARGETS:
            yield f"{selector.name} has no label {label}"
        elif metric.choice is not None and label == metric.choice.label and operator in ("=", "=~", "!="):
            yield from (
                f"{label} of {metric.name} is never {v}" for v in value.split("|") if v not in metric.choice.values
            )
    is_gauge = metric.type is MetricType.GAUGE
    if selector.function in _OF_COUNTERS and is_gauge:
        yield f"{selector.function} is for counters, and {selector.name} is a gauge"
    if selector.function in _OF_GAUGES and not is_gauge:
        yield f"{selector.function} is for gauges, and {selector.name} is none"
    if selector.is_range != (selector.function in _OF_COUNTERS | _OF_GAUGES):
        yield f"{selector.name} is a range where none belongs, or the other way round"
