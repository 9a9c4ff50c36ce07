"""Names of metrics by the rules of OpenTelemetry: parts separated by dots, and the unit beside the name.

A system that translates them back by the rules of Prometheus, as Prometheus itself does, has the names of `/metrics`.
"""

from __future__ import annotations

from seep.metrics.metric import Metric

#: Unit of a definition -> unit by UCUM, as OpenTelemetry has it; a plain number has none.
UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "": ""}


def otlp_name(metric: Metric) -> str:
    """Returns the name under which a metric is pushed.

    >>> from seep.metrics.metric import counter
    >>> otlp_name(counter("seep_node_cpu_seconds_total", "", lambda _: (), unit="seconds"))
    'seep.node.cpu'
    """
    plain = metric.name.removesuffix("_total").removesuffix(f"_{metric.unit}" if metric.unit else "")
    return plain.replace("_", ".", 2)
