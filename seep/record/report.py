"""The report of a run: samples taken while it runs, and a summary of them and of the events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.event import Event
from primitives.graph import QueryGraph
from primitives.topology import Assignment, Topology
from seep.record.causes.spans import Span
from seep.record.samples import Sample

#: The most runs of slots that are told of an operator.
_RUNS = 4096

#: Events after which a run does nothing more.
_ENDS = ("finished", "failed", "halted")


def make_report(
    query: str,
    events: Iterable[Event],
    samples: Sequence[Sample],
    *,
    rows: int,
    latency: Mapping[str, float],
    largest_gap: float,
    latencies: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    counters: Mapping[str, int] | None = None,
    counters_exact: bool = False,
    vm_seconds: Mapping[str, float] | None = None,
    migrations: Sequence[Mapping[str, Any]] = (),
    spans: Sequence[Span] = (),
    totals: Mapping[str, Any] | None = None,
    failure: SeepError | None = None,
    story: Mapping[str, Sequence[str]] | None = None,
    topology: Topology | None = None,
) -> dict[str, Any]:
    """The report as plain data for JSON. All times are seconds.

    It has `query`, `summary`, `latencies` (of epochs: their `histogram`, and a `timeline` by quarters of a second),
    `migrations`, `spans` (of changes and recoveries), `events` and `series`, and if seep itself has failed `story`: by
    machine, what it took and answered last. Of what happens often in a long run the newest are there, and of samples
    fewer the older they are; `totals` has how many events there ever were, by kind, and how many migrations.

    `rows` were read by the sources; `latency` is that of the whole run; `largest_gap` is between two commits; `epochs`
    were committed, those of the last sample if not given. `counters` are lower bounds unless they are said to be exact.
    With the `topology`, the report has the `graph` of the query, and by operator the owners of its `slots`, as runs of
    slots with one owner.
    """
    happened = list(events)
    last = samples[-1].at if samples else 0.0
    end = min((each.at for each in happened if each.kind in _ENDS), default=last)
    during = [sample for sample in samples if sample.at <= end]
    seconds = end - samples[0].at if samples else 0.0
    committed = max((sample.committed for sample in samples), default=0)
    return (
        {
            "query": query,
            "summary": {
                "rows": rows,
                "seconds": seconds,
                "rows_per_second": rows / seconds if seconds else 0.0,
                "epochs": committed if epochs is None else epochs,
                "latency": dict(latency),
                "largest_gap": largest_gap,
                "recoveries": [_recovery(each) for each in happened if each.kind == "recovered"],
                "scalings": [_scaling(each) for each in happened if each.kind in ("scaled out", "scaled in")],
                "vm_seconds": sum((vm_seconds or {}).values()),
                "vms": dict(vm_seconds or {}),
                "counters": dict(counters or {}),
                "counters_exact": counters_exact,
                "failure": None if failure is None else {"kind": _kind(failure), "text": str(failure)},
            },
            "latencies": dict(latencies or {}),
            "migrations": [dict(each) for each in migrations],
            "spans": [span.to_json() for span in spans],
            "totals": dict(totals or {}),
            "events": [event.to_json() for event in happened],
            "series": [sample.to_json() for sample in during],
        }
        | _layout(topology)
        | ({"story": {machine: list(lines) for machine, lines in story.items()}} if story else {})
    )


def _layout(topology: Topology | None) -> dict[str, Any]:
    """The query graph, and the owners of slots after all announced plans."""
    if topology is None:
        return {}
    graph = topology.graph
    return {
        "graph": graph_of(graph),
        "slots": {name: owned(each[-1].assignment) for name, each in topology.history.items() if graph.inputs[name]},
    }


def graph_of(graph: QueryGraph) -> dict[str, Any]:
    """Returns the operators of a query with their kinds, and its edges, as plain data."""
    return {
        "operators": {name: graph.kind(name).value for name in graph.order},
        "edges": [[edge.upstream, edge.downstream] for edge in graph.edges],
    }


def owned(assignment: Assignment) -> dict[str, Any]:
    """Returns the owners of slots as runs of slots with one owner; of very scattered slots, coarsely."""
    starts, owners = assignment.runs
    if len(starts) > _RUNS:
        starts = np.linspace(0, assignment.owners.size, _RUNS, endpoint=False).astype(np.int32)
        owners = assignment.owners[starts]
    return {"slots": assignment.owners.size, "starts": starts.tolist(), "owners": owners.tolist()}


def _recovery(event: Event) -> dict[str, Any]:
    """The instance of a recovery, its duration, and the duration of each part."""
    return {"instance": event.instance, "at": event.at, "seconds": event.seconds, **event.parts}


def _scaling(event: Event) -> dict[str, Any]:
    """The operator of a scaling, its instances before and after, and the highest latency meanwhile."""
    return {"operator": event.operator, "at": event.at, "seconds": event.seconds, **event.numbers}


def _kind(failure: SeepError) -> str:
    kinds = {UserError: "user", EnvironmentFault: "environment"}
    return next((name for kind, name in kinds.items() if isinstance(failure, kind)), "internal")
