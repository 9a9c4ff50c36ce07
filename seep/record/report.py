"""The report of a run: samples taken while it runs, and a summary of them and of the events."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.event import Event
from primitives.graph import QueryGraph
from primitives.topology import Assignment, Topology
from seep.record.causes.spans import Span
from seep.record.samples import Sample

#: The most runs of slots that are told of an operator.
_RUNS = 4096

T = TypeVar("T")

#: The parts of a report; `story` is there only if seep itself has failed.
PARTS = (
    "query",
    "summary",
    "latencies",
    "migrations",
    "spans",
    "totals",
    "events",
    "series",
    "graph",
    "slots",
    "story",
)

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
    only: Container[str] = PARTS,
    points: int | None = None,
) -> dict[str, Any]:
    """The report as plain data for JSON, or `only` some parts of it. All times are seconds.

    It has `query`, `summary`, `latencies` (of epochs: their `histogram`, and a `timeline` by quarters of a second),
    `migrations`, `spans` (of changes and recoveries), `events` and `series`, and if seep itself has failed `story`: by
    machine, what it took and answered last. Of what happens often in a long run the newest are there, and of samples
    fewer the older they are; `totals` has how many events there ever were, by kind, and how many migrations.

    `rows` were read by the sources; `latency` is that of the whole run; `largest_gap` is between two commits; `epochs`
    were committed, those of the last sample if not given. `counters` are lower bounds unless they are said to be exact.
    The series has at most `points` points, if that is given: see `thinned`. With the `topology`, the report has the
    `graph` of the query, and by operator the owners of its `slots`, as runs of slots with one owner.
    """
    happened = list(events)
    last = samples[-1].at if samples else 0.0
    end = min((each.at for each in happened if each.kind in _ENDS), default=last)
    seconds = end - samples[0].at if samples else 0.0
    committed = max((sample.committed for sample in samples), default=0)

    def summary() -> dict[str, Any]:
        return {
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
        }

    parts: dict[str, Callable[[], Any]] = {
        "query": lambda: query,
        "summary": summary,
        "latencies": lambda: dict(latencies or {}),
        "migrations": lambda: [dict(each) for each in migrations],
        "spans": lambda: [span.to_json() for span in spans],
        "totals": lambda: dict(totals or {}),
        "events": lambda: [event.to_json() for event in happened],
        "series": lambda: [each.to_json() for each in thinned([s for s in samples if s.at <= end], points)],
    }
    if topology is not None:
        parts |= {"graph": partial(graph_of, topology.graph), "slots": partial(_slots_of, topology)}
    if story:
        parts["story"] = lambda: {machine: list(lines) for machine, lines in story.items()}
    return {name: part() for name, part in parts.items() if name in only}


def thinned(series: Sequence[T], points: int | None) -> list[T]:
    """Returns at most so many points of a time series: the newest half of these as they are, and earlier ones evenly.

    >>> thinned(range(100), 8)
    [0, 31, 63, 95, 96, 97, 98, 99]
    """
    if points is None or len(series) <= points:
        return list(series)
    newest = points // 2
    early = np.linspace(0, len(series) - newest - 1, points - newest).astype(int)
    return [*(series[at] for at in early.tolist()), *series[len(series) - newest :]]


def _slots_of(topology: Topology) -> dict[str, Any]:
    """The owners of slots after all announced plans, by operator."""
    inputs = topology.graph.inputs
    return {name: owned(each[-1].assignment) for name, each in topology.history.items() if inputs[name]}


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
