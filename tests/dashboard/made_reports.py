"""Reports of runs that never were: as large as wanted, with hostile names, or with the loss of a node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

#: Names that are markup, scripts, or break what is made of names; also one longer than any place for it.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(2)</script>",
    "a[0]#1->b:0",
    "${alert(3)} {{4*4}}",
    "x" * 200,
)
#: Seconds between two points of the series.
_STEP = 0.5
_NODES = 40
#: When a node is killed, given up, has its state again, and is as if nothing had been.
KILLED, LOST, RESTORED, RECOVERED = 10.0, 10.5, 11.0, 12.5


def made_report(
    operators: Sequence[str], instances: int = 1, points: int = 60, slots: int = 256, scalings: int = 3
) -> dict[str, Any]:
    """A report of a chain of operators with so many instances each; the last scaling begins near its end."""
    ends = points * _STEP
    kinds = ["source", *["stateful"] * (len(operators) - 2), "sink"]
    begins = [ends * (number + 0.5) / scalings for number in range(scalings)]
    bottleneck = {"kind": "bottleneck", "at": 1.0, "operator": operators[1], "instance": f"{operators[1]}[0]"}
    return {
        "query": operators[0],
        "summary": {
            "rows": 1000 * points,
            "seconds": ends,
            "rows_per_second": 1000 / _STEP,
            "epochs": points,
            "latency": {"p50": 0.1, "p95": 0.2, "p99": 0.4, "max": 0.9},
            "largest_gap": 0.5,
            "recoveries": [],
            "scalings": [],
            "vm_seconds": 4 * ends,
            "vms": {"vm-1": 4 * ends},
            "counters": {},
            "counters_exact": True,
            "failure": None,
        },
        "latencies": {"histogram": [], "timeline": []},
        "migrations": [],
        "spans": [span for number, at in enumerate(begins) for span in _scaling(number, operators[1], at)],
        "totals": {"events": {}, "migrations": 0},
        "events": [
            *_joined(operators, instances),
            bottleneck | {"why": operators[1]},
            {"kind": "finished", "at": ends},
        ],
        "series": [_point(number * _STEP, operators, instances) for number in range(points)],
        "graph": {
            "operators": dict(zip(operators, kinds, strict=True)),
            "edges": [list(each) for each in pairwise(operators)],
        },
        "slots": {name: _owned(slots, instances) for name in operators[1:]},
    }


def with_a_loss(report: dict[str, Any], operator: str, node: str, to: str) -> dict[str, Any]:
    """The report of the run as it were if the node of the operator's first instance were killed."""
    lost, subject = {"node": node, "hosted": [f"{operator}[0]"]}, {"operator": operator, "instance": f"{operator}[0]"}
    events = [
        {"kind": "killed", "at": KILLED, **lost},
        {"kind": "node lost", "at": LOST, "why": "connection refused", **lost},
        {"kind": "rebound", "at": LOST, "to": to, "lost": node, **subject},
        {"kind": "restored", "at": RESTORED, "epoch": 20, **subject},
        {"kind": "recovered", "at": RECOVERED, "seconds": RECOVERED - KILLED, "lost": node, **subject},
    ]
    series = [_with_moved(point, f"{operator}[0]", to) for point in report["series"]]
    return report | {
        "events": sorted([*report["events"], *events], key=lambda event: event["at"]),
        "spans": [*report["spans"], *_recovery(operator, node)],
        "series": series,
    }


def _with_moved(point: dict[str, Any], instance: str, to: str) -> dict[str, Any]:
    """The point with the instance on its new node, or with none while it recovers; its latency is high then."""
    if point["at"] < KILLED:
        return point
    instances = dict(point["instances"])
    figures = instances.pop(f"{instance}#0")
    if point["at"] >= RECOVERED:
        return point | {"instances": instances | {f"{instance}#1": figures | {"node": to}}}
    return point | {"instances": instances, "latency": {"p50": 0.5, "p95": 2.0, "p99": 2.5, "max": 3.0}}


def _joined(operators: Sequence[str], instances: int) -> list[dict[str, Any]]:
    """Each node joins on a VM of its own, and one more."""
    names = [f"n{number}" for number in range(min(_NODES, len(operators) * instances) + 1)]
    joined = [{"kind": "node joined", "at": -0.2, "node": name} for name in names]
    return [*joined, *({"kind": "vm ready", "at": -0.1, "vm": f"vm-{name}", "nodes": [name]} for name in names)]


def _owned(slots: int, instances: int) -> dict[str, Any]:
    owners = min(slots, instances)
    return {"slots": slots, "starts": [slots * at // owners for at in range(owners)], "owners": list(range(owners))}


def _point(at: float, operators: Sequence[str], instances: int) -> dict[str, Any]:
    hosted = [(name, index) for name in operators for index in range(instances)]
    return {
        "at": at,
        "rows": int(1000 * at / _STEP),
        "rows_per_second": 1000 / _STEP,
        "offered": 1000 / _STEP,
        "latency": {"p50": 0.1, "p95": 0.2, "p99": 0.3 + 0.2 * math.sin(at), "max": 0.9},
        "epochs_in_flight": 2,
        "nodes": min(_NODES, len(hosted)) + 1,
        "idle_nodes": 1,
        "vms": {"used": 4},
        "imbalance": {},
        "rows_out_per_second": 100.0,
        "edges": {f"{up}->{down}:0": 1000 / _STEP for up, down in pairwise(operators)},
        "window": 16,
        "since_commit": 0.1,
        "watermark_behind": 3,
        "instances": {f"{name}[{index}]#0": _figures(at, place) for place, (name, index) in enumerate(hosted)},
    }


def _figures(at: float, place: int) -> dict[str, Any]:
    return {
        "node": f"n{place % _NODES}",
        "utilisation": 0.5 + 0.5 * math.sin(place + at),
        "rows_in": int(100 * at),
        "state_bytes": 1 << 20,
        "outbox_bytes": 4096,
        "rows_out": int(90 * at),
        "waiting": 1,
        "unsent": 5 if place % 7 == 0 else 0,
    }


def _scaling(number: int, operator: str, at: float) -> list[dict[str, Any]]:
    why = {"operator": operator, "decision": number + 1, "why": f"{operator} is busy"}
    phases = {"sealed": (at, at + 0.2), "effective": (at + 0.2, at + 0.5), "safe": (at + 0.5, at + 1.0)}
    return _trace(number, "scaling", phases, why | {"before": number + 1, "after": number + 2})


def _recovery(operator: str, node: str) -> list[dict[str, Any]]:
    phases = {"detected": (KILLED, LOST), "restored": (LOST, RESTORED), "replayed": (RESTORED, RECOVERED)}
    root, *below = _trace(999, "recovery", phases, {"node": node, "why": "connection refused"})
    whose = {"name": "instance", "attributes": {"operator": operator, "instance": f"{operator}[0]"}}
    return [root, root | whose | {"id": "of-the-instance", "parent": root["id"]}, *below]


def _trace(
    number: int, name: str, phases: dict[str, tuple[float, float]], told: dict[str, Any]
) -> list[dict[str, Any]]:
    trace, root = f"{number:032x}", f"{number:016x}"
    (start, _), *_, (_, end) = phases.values()
    below = {"trace": trace, "parent": root, "status": "ok", "attributes": {}}
    return [
        {"trace": trace, "id": root, "name": name, "start": start, "end": end, "status": "ok", "attributes": told},
        *(below | {"id": f"{root}-{each}", "name": each, "start": a, "end": b} for each, (a, b) in phases.items()),
    ]
