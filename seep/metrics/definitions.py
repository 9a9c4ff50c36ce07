"""All metrics, by what they are about; `samples` reads them from a moment of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seep.metrics import of_parts, of_run
from seep.metrics.metric import Metric, MetricSample, Present

#: Heading -> the metrics below it.
GROUPS: Mapping[str, tuple[Metric, ...]] = {
    "The run": of_run.PROGRESS,
    "Sources": of_parts.SOURCES,
    "Operators": of_parts.OPERATORS,
    "Instances": of_parts.INSTANCES,
    "Nodes": of_parts.NODES,
    "VM pool": of_run.POOL,
    "Checkpoints in storage": of_run.CHECKPOINTS,
    "Recoveries and replicas": of_run.RECOVERIES,
    "Scaling, migration and balance": of_run.CHANGES,
    "Pushes to a collector": of_run.PUSHES,
}

METRICS: tuple[Metric, ...] = tuple(metric for group in GROUPS.values() for metric in group)


def samples(present: Present) -> Iterator[tuple[Metric, list[MetricSample]]]:
    """Yields each metric that has samples now, with these."""
    for metric in METRICS:
        found = list(metric.read(present))
        if found:
            yield metric, found
