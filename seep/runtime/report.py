"""The report of a run: samples taken while it runs, and what they and the events come to in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.event import Event
from seep.runtime.fading_series import FadingSeries
from seep.runtime.metrics import InstanceStatus, Status

#: EventLog after which a run does nothing more.
_ENDS = ("finished", "failed", "halted")


class Recorder:
    """Keeps samples of a run's status, which the event loop has it take. Close it before what it asks for the status.

    Its memory is bounded: the longer ago, the farther apart are the samples that are kept.
    """

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status
        self._samples = FadingSeries[Status]()
        self._is_closed = False

    @property
    def samples(self) -> tuple[Status, ...]:
        """What was sampled so far, by time."""
        return tuple(self._samples)

    def close(self) -> None:
        """Takes no more samples; what was sampled stays."""
        self._is_closed = True

    def sample(self) -> None:
        """Takes one now."""
        if not self._is_closed:
            self._samples.append(self._status())


@dataclass(slots=True)
class Commits:
    """How evenly the sinks get on: told of every commit, knows the longest pause between two.

    >>> commits = Commits()
    >>> for epoch, at in [(1, 0.0), (2, 0.1), (2, 0.2), (5, 0.5)]:
    ...     commits.note(epoch, at)
    >>> commits.largest_gap
    0.4
    """

    epoch: int = 0  #: all sinks have committed it
    at: float | None = None  #: when they had
    largest_gap: float = 0.0

    def note(self, epoch: int, at: float) -> None:
        """All sinks have committed `epoch`, perhaps for a while already."""
        if epoch <= self.epoch:
            return
        if self.at is not None:
            self.largest_gap = max(self.largest_gap, at - self.at)
        self.epoch, self.at = epoch, at


def make_report(
    query: str,
    events: Iterable[Event],
    samples: Sequence[Status],
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
    totals: Mapping[str, Any] | None = None,
    failure: SeepError | None = None,
) -> dict[str, Any]:
    """The report as plain data for JSON. All times are seconds.

    It has `query`, `summary`, `latencies` (of epochs: their `histogram`, and a `timeline` by quarters of a second),
    `migrations`, `events` and `series`. Of what happens often in a long run the newest are there, and of samples fewer
    the older they are; `totals` has how many events there ever were, by kind, and how many migrations.

    `rows` were read by the sources; `latency` is that of the whole run; `largest_gap` is between two commits; `epochs`
    were committed, those of the last sample if not given. `counters` are lower bounds unless they are said to be exact.
    """
    happened = list(events)
    last = samples[-1].at if samples else 0.0
    end = min((each.at for each in happened if each.kind in _ENDS), default=last)
    during = [sample for sample in samples if sample.at <= end]
    seconds = end - samples[0].at if samples else 0.0
    committed = max((sample.committed for sample in samples), default=0)
    return {
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
        "totals": dict(totals or {}),
        "events": [event.to_json() for event in happened],
        "series": [_point(sample) for sample in during],
    }


def _recovery(event: Event) -> dict[str, Any]:
    """Whose, how long, and how long each part of it took."""
    return {"instance": event.instance, "at": event.at, "seconds": event.seconds, **event.parts}


def _scaling(event: Event) -> dict[str, Any]:
    """Which operator, from how many instances to how many, and the highest latency meanwhile."""
    return {"operator": event.operator, "at": event.at, "seconds": event.seconds, **event.numbers}


def _instance(status: InstanceStatus) -> dict[str, Any]:
    return {
        "node": status.node,
        "utilisation": status.utilisation,
        "rows_in": status.rows_in,
        "state_bytes": status.state_bytes,
        "outbox_bytes": status.outbox_bytes,
    }


def _kind(failure: SeepError) -> str:
    kinds = {UserError: "user", EnvironmentFault: "environment"}
    return next((name for kind, name in kinds.items() if isinstance(failure, kind)), "internal")


def _point(status: Status) -> dict[str, Any]:
    """A sample, as a point of the time series."""
    return {
        "at": status.at,
        "rows": status.rows_read,
        "rows_per_second": status.rows_per_second,
        "offered": status.offered,
        "latency": dict(status.latency),
        "epochs_in_flight": status.ticked - status.committed,
        "nodes": status.nodes,
        "idle_nodes": status.idle_nodes,
        "vms": dict(status.vms),
        "imbalance": dict(status.imbalance),
        "instances": {each.name: _instance(each) for each in status.instances},
    }
