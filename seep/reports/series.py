"""The time series of a report, as lines to draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Points = list[tuple[float, float]]
Lines = dict[str, Points]
Samples = Sequence[Mapping[str, Any]]

#: Percentiles that are drawn.
_PERCENTILES = ("p50", "p99", "max")


def throughput(samples: Samples) -> Lines:
    """Returns the rows per second that sources read, and those that were due if they have a rate."""
    lines: Lines = {"read": [(each["at"], each["rows_per_second"]) for each in samples]}
    if any(each["offered"] for each in samples):
        lines["due"] = [(each["at"], each["offered"]) for each in samples]
    return lines


def latency(samples: Samples) -> Lines:
    """Returns latencies by percentile."""
    return {
        name: [(each["at"], each["latency"][name]) for each in samples if each["latency"].get(name)]
        for name in _PERCENTILES
    }


def instances_of_all(samples: Samples) -> Lines:
    """Returns the number of instances by operator."""
    counts = [(each["at"], Counter(map(operator_of, each["instances"]))) for each in samples if each["instances"]]
    return {name: [(at, count[name]) for at, count in counts] for name in _operators(samples)}


def instances(samples: Samples) -> Lines:
    """Returns the number of instances by operator; if any changed, only of operators whose number changed."""
    lines = instances_of_all(samples)
    changed = {name: points for name, points in lines.items() if len({value for _, value in points}) > 1}
    return changed or lines


def utilisation(samples: Samples) -> Lines:
    """Returns the CPU use of the busiest instance of each operator."""
    lines: Lines = {name: [] for name in _operators(samples)}
    for each in samples:
        busiest: dict[str, float] = {}
        for instance, status in each["instances"].items():
            operator = operator_of(instance)
            busiest[operator] = max(busiest.get(operator, 0.0), status["utilisation"])
        for operator, used in busiest.items():
            lines[operator].append((each["at"], used))
    return lines


def vms(samples: Samples) -> Lines:
    """Returns the number of VMs by state; without a pool, the number of nodes."""
    states = dict.fromkeys(state for each in samples for state in each["vms"])
    if not states:
        return {"nodes": [(each["at"], each["nodes"]) for each in samples]}
    return {state: [(each["at"], each["vms"].get(state, 0)) for each in samples] for state in states}


def operator_of(instance: str) -> str:
    """Returns the operator of an instance, given its name in reports.

    >>> operator_of("toll_calculator[1]#3")
    'toll_calculator'
    """
    return instance.partition("[")[0]


def _operators(samples: Samples) -> list[str]:
    return list(dict.fromkeys(operator_of(name) for each in samples for name in each["instances"]))
