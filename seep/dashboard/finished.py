"""A finished run: answers the requests that read from a report, so that its page can be looked at afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from primitives.errors import UserError
from seep.dashboard.requests import (
    MOST_EVENTS,
    NEWEST_EVENTS,
    ActingRequest,
    DescribeRun,
    ReadMigrations,
    ReadReport,
    ReadSlots,
    ReadStatus,
    ReadStory,
    request_of,
)
from seep.logs.versions import own_version
from seep.record.report import PARTS, thinned
from seep.record.status import InstanceStatus, Status, operator_status

#: The most migrations in a list.
_LISTED = 100
#: Kinds of events with which a run ends -> its phase then; that of the first one holds.
_PHASES = {"failed": "failed", "finished": "finished", "halted": "halted"}

Answer = Mapping[str, Any]
Point = Mapping[str, Any]


class FinishedRun:
    """Answers requests from the report of a run; whatever a report does not have is refused in words."""

    def __init__(self, report: Mapping[str, Any], id: str) -> None:
        """`id` stands for that of the run, such as the name of the report's file."""
        self._report, self._id = report, id
        self._events: Sequence[Mapping[str, Any]] = report.get("events", ())
        self._graph: Mapping[str, Any] = report.get("graph") or {"operators": {}, "edges": []}
        self._answers: Mapping[str, Callable[[Any], Answer]] = {
            DescribeRun.do: self._describe,
            ReadStatus.do: self._status,
            ReadReport.do: self._parts,
            ReadStory.do: lambda _: {"events": self._events, "story": report.get("story", {})},
            ReadSlots.do: self._slots,
            ReadMigrations.do: lambda _: {"migrations": report.get("migrations", [])[-_LISTED:]},
        }

    def answer(self, body: Mapping[str, Any]) -> Answer:
        """Answers a request; raises UserError if the report does not have what it asks for, or it acts."""
        request = request_of(body)
        if isinstance(request, ActingRequest):
            raise request.refused(self._phase)
        if request.do not in self._answers:
            raise UserError(f"this run is over and shown from its report, which has nothing for {request.do!r}")
        return self._answers[request.do](request)

    @property
    def _phase(self) -> str:
        kinds = {each["kind"] for each in self._events}
        return next((phase for kind, phase in _PHASES.items() if kind in kinds), "stopped")

    @property
    def _failure(self) -> str:
        failure = self._report.get("summary", {}).get("failure")
        return failure["text"] if failure else ""

    def _describe(self, _: DescribeRun) -> Answer:
        kinds = self._graph["operators"]
        return {
            "id": self._id,
            "query": self._report.get("query", ""),
            "version": own_version(),
            "is_live": False,
            "phase": self._phase,
            "failure": self._failure,
            "acts": [],
            "stateful": [operator for operator, kind in kinds.items() if kind == "stateful"],
            **self._graph,
        }

    def _status(self, request: ReadStatus) -> Answer:
        """Returns the status of the last sample; the wait for a change is over."""
        series, newest = self._report.get("series", ()), len(self._events) - 1
        first = newest + 1 if request.after is None else max(request.after + 1, newest + 1 - MOST_EVENTS)
        return {
            "phase": self._phase,
            "failure": self._failure,
            "status": self._last_status(series).to_json(),
            "wrong": [f"the run has failed: {self._failure}"] if self._failure else [],
            "events": self._events[-NEWEST_EVENTS:],
            "new": self._events[first:],
            "number": newest,
        } | ({"sample": series[-1] if series else None} if request.sample else {})

    def _last_status(self, series: Sequence[Point]) -> Status:
        return status_of(series, self._graph["operators"], self._report.get("summary", {}).get("epochs", 0))

    def _parts(self, request: ReadReport) -> Answer:
        wanted = request.only or PARTS
        parts = {name: part for name, part in self._report.items() if name in wanted}
        return parts | ({"series": thinned(parts["series"], request.points)} if "series" in parts else {})

    def _slots(self, request: ReadSlots) -> Answer:
        """Returns the owners of slots at the end; rows by slot are counted only while a run lives."""
        known: Mapping[str, Any] = self._report.get("slots", {})
        if request.operator not in known:
            raise UserError(f"{request.operator!r} is no operator with slots in this report; those are {_all(known)}")
        owned = known[request.operator]
        return {"operator": request.operator, **owned, "rows": [], "bucket": 1, "seconds": 0.0, "hottest": None}


def status_of(series: Sequence[Point], order: Iterable[str], committed: int) -> Status:
    """Returns what the last points of a time series tell of the status; what they do not have is 0 or empty."""
    last: Point = series[-1] if series else {}
    instances = tuple(_instances(series, committed))
    by_operator = {name: [each for each in instances if each.operator == name] for name in order}
    return Status(
        at=last.get("at", 0.0),
        ticked=committed + last.get("epochs_in_flight", 0),
        committed=committed,
        rows_read=last.get("rows", 0),
        rows_per_second=last.get("rows_per_second", 0.0),
        latency=last.get("latency", {}),
        instances=instances,
        nodes=last.get("nodes", 0),
        idle_nodes=last.get("idle_nodes", 0),
        offered=last.get("offered", 0.0),
        vms=last.get("vms", {}),
        imbalance=last.get("imbalance", {}),
        operators=tuple(operator_status(name, of, None) for name, of in by_operator.items() if of),
        edges=last.get("edges", {}),
        rows_out_per_second=last.get("rows_out_per_second", 0.0),
        window=last.get("window", 0),
        since_commit=last.get("since_commit", 0.0),
    )


def _instances(series: Sequence[Point], committed: int) -> Iterator[InstanceStatus]:
    """Yields the instances of the last point, with their rates since the one before."""
    last: Point = series[-1] if series else {"instances": {}}
    before: Point = series[-2] if len(series) > 1 else last
    seconds = last.get("at", 0.0) - before.get("at", 0.0)
    for name, figures in last["instances"].items():
        former = before["instances"].get(name, figures)
        operator, _, index = name.partition("#")[0].partition("[")
        yield InstanceStatus(
            name=name,
            operator=operator,
            node=figures["node"],
            phase="",
            epoch=committed,
            rows_in=figures["rows_in"],
            rows_out=figures.get("rows_out", 0),
            cpu=0.0,
            utilisation=figures["utilisation"],
            waiting=figures.get("waiting", 0),
            outbox_bytes=figures["outbox_bytes"],
            state_bytes=figures["state_bytes"],
            counters={},
            rows_in_per_second=_rate(former, figures, "rows_in", seconds),
            rows_out_per_second=_rate(former, figures, "rows_out", seconds),
            unsent=figures.get("unsent", 0),
            index=int(index.rstrip("]") or 0),
        )


def _rate(former: Mapping[str, Any], figures: Mapping[str, Any], name: str, seconds: float) -> float:
    """Returns the growth of a figure per second; an older report may not have it."""
    grown = figures.get(name, 0) - former.get(name, 0)
    return max(0.0, grown / seconds) if seconds > 0 else 0.0


def _all(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"
