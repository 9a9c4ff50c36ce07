"""Reports of runs that never were: as large as wanted, or with hostile names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

#: Names that are markup, scripts, or break what is made of names; also one longer than any place for it.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(2)</script>",
    "a[0]#1->b:0",
    "${alert(3)} {{4*4}}",
    "x" * 200,
)


def made_report(
    operators: Sequence[str], instances: int, points: int = 60, slots: int = 256, *, changes: int = 3
) -> dict[str, Any]:
    """A report of a chain of operators, each with so many instances, of a run of half a second per point."""
    ends = points / 2
    kinds = ["source", *["stateful"] * (len(operators) - 2), "sink"]
    spans = [
        span for number in range(changes) for span in _scaling(number, operators[1], ends * (number + 0.5) / changes)
    ]
    return {
        "query": operators[0],
        "summary": {
            "rows": 1_000_000,
            "seconds": ends,
            "rows_per_second": 1_000_000 / ends,
            "epochs": points,
            "latency": {"p50": 0.1, "p95": 0.2, "p99": 0.4, "max": 0.9},
            "largest_gap": 0.5,
            "recoveries": [],
            "scalings": [],
            "vm_seconds": ends,
            "vms": {"vm-1": ends},
            "counters": {},
            "counters_exact": True,
            "failure": None,
        },
        "latencies": {"histogram": [], "timeline": []},
        "migrations": [],
        "spans": spans,
        "totals": {"events": {}, "migrations": 0},
        "events": [
            {
                "kind": "bottleneck",
                "at": 1.0,
                "operator": operators[1],
                "instance": f"{operators[1]}[0]",
                "why": operators[1],
            }
        ],
        "series": [_point(number, operators, instances) for number in range(points)],
        "graph": {
            "operators": dict(zip(operators, kinds, strict=True)),
            "edges": [list(each) for each in itertools.pairwise(operators)],
        },
        "slots": {
            name: {
                "slots": slots,
                "starts": list(range(0, slots, max(1, slots // instances)))[:instances],
                "owners": list(range(min(instances, slots))),
            }
            for name in operators[1:]
        },
    }


def _point(number: int, operators: Sequence[str], instances: int) -> dict[str, Any]:
    hosted = [(name, index) for name in operators for index in range(instances)]
    return {
        "at": number / 2,
        "rows": 1000 * number,
        "rows_per_second": 2000.0,
        "offered": 2000.0,
        "latency": {"p50": 0.1, "p95": 0.2, "p99": 0.3 + 0.2 * math.sin(number), "max": 0.9},
        "epochs_in_flight": 2,
        "nodes": 4,
        "idle_nodes": 0,
        "vms": {"used": 4},
        "imbalance": {},
        "rows_out_per_second": 100.0,
        "edges": {f"{up}->{down}:0": 2000.0 for up, down in itertools.pairwise(operators)},
        "window": 16,
        "since_commit": 0.1,
        "watermark_behind": 3,
        "instances": {
            f"{name}[{index}]#0": {
                "node": f"n{place % 40}",
                "utilisation": 0.5 + 0.5 * math.sin(place + number / 3),
                "rows_in": 100 * number,
                "state_bytes": 1 << 20,
                "outbox_bytes": 4096,
                "rows_out": 90 * number,
                "waiting": 1,
                "unsent": 5 if place % 7 == 0 else 0,
            }
            for place, (name, index) in enumerate(hosted)
        },
    }


def _scaling(number: int, operator: str, at: float) -> list[dict[str, Any]]:
    trace, root = f"{number:032x}", f"{number:016x}"
    told = {
        "operator": operator,
        "decision": number + 1,
        "why": f"{operator} is busy",
        "before": number + 1,
        "after": number + 2,
    }
    phases = [("sealed", at, at + 0.2), ("effective", at + 0.2, at + 0.5), ("safe", at + 0.5, at + 1.0)]
    below = {"trace": trace, "status": "ok", "attributes": {}}
    return [
        {
            "trace": trace,
            "id": root,
            "name": "scaling",
            "start": at,
            "end": at + 1.0,
            "status": "ok",
            "attributes": told,
        },
        *(
            below | {"id": f"{root}-{name}", "parent": root, "name": name, "start": start, "end": end}
            for name, start, end in phases
        ),
    ]
