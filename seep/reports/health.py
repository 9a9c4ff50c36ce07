"""Health: what is wrong with a run now, in sentences for a person on call."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from primitives.event import Event
from seep.protocol.events import NodeLost, Rebound
from seep.record.events import InstanceRecovered
from seep.record.status import InstanceStatus, Status
from seep.reports import figures

#: The query is stalled if nothing is committed for so many seconds while at least so many epochs are in flight.
_STALLED, _SOME = 5.0, 3
#: Sources fall behind if they read less than this part of the rows that are due.
_ENOUGH = 0.9
#: The most names in a sentence.
_NAMES = 3
#: Seconds for which a failure that nothing ends is shown, and those for which a warning is.
_LONG, _SHORT = 300.0, 60.0


class _Trouble(NamedTuple):
    """What an event says about now, until another event ends it."""

    words: str  #: with the operator, instance and node of the event
    ended_by: frozenset[str] = frozenset()  #: kinds of later events, about the same or about nothing particular
    lasts: float = _LONG  #: seconds


_CHANGED = frozenset({"scaled out", "scaled in", "migrated", "balanced", "nothing to scale", "nothing to balance"})
_BEGUN = frozenset({"scaling out", "scaling in", "migration begun", "balancing"})
_GONE = frozenset({"node lost"})
_VM_CAME = frozenset({"vm ready"})
_NOT_SCALED = frozenset({"scaling refused", "scaling called off", "scaling given up", "scaling replaced"})

_TROUBLES = {
    "failed": _Trouble("the run has failed", lasts=float("inf")),
    "checkpoint failed": _Trouble(
        "the last checkpoint could not be stored", frozenset({"persisted", "savepoint"}), float("inf")
    ),
    "compaction failed": _Trouble("checkpoints could not be compacted", frozenset({"compacted", "persisted"})),
    "cleaning failed": _Trouble("old checkpoints could not be removed"),
    "scaling failed": _Trouble("the policy or its decision failed"),
    "scaling refused": _Trouble("a decision to scale {operator} was refused", _CHANGED | _BEGUN),
    "scaling aborted": _Trouble("a decision to scale {operator} was aborted and is tried again", _CHANGED | _BEGUN),
    "scaling given up": _Trouble("a decision to scale {operator} was given up", _CHANGED | _BEGUN),
    "migration refused": _Trouble("a migration of {operator} was refused", _CHANGED | _BEGUN),
    "balancing failed": _Trouble("balancing {operator} failed", _CHANGED | _BEGUN),
    "policy slow": _Trouble("the policy is slow", _BEGUN, _SHORT),
    "split aborted": _Trouble("a split of {operator} was aborted", _CHANGED, _SHORT),
    "waiting for VMs": _Trouble("a change of {operator} waits for VMs", _CHANGED | _BEGUN | _NOT_SCALED | _VM_CAME),
    "pool exhausted": _Trouble("the pool is exhausted", _VM_CAME),
    "provider failed": _Trouble("the provider of VMs failed", _VM_CAME),
    "vm lost": _Trouble("a VM was lost", lasts=_SHORT),
    "notice": _Trouble("node {node} will be taken away", _GONE | {"drained"}),
    "drain given up": _Trouble("the drain of node {node} was given up", _GONE | {"drained"}),
    "stopped": _Trouble("node {node} is frozen", _GONE | {"continued"}),
    "replica late": _Trouble("backups of {instance} are late", lasts=_SHORT),
    "bottleneck": _Trouble("{instance} is a bottleneck", _CHANGED | _BEGUN, _SHORT),
    "hot slot": _Trouble("{instance} has a hot slot", frozenset({"balanced"}), _SHORT),
    "refused message": _Trouble("a message was refused", lasts=_SHORT),
    "strike failed": _Trouble("a strike could not be dealt", lasts=_SHORT),
}

#: The kinds of events by which `problems` finds what is wrong.
RELEVANT = tuple(
    sorted({*_TROUBLES, "node lost", "rebound", "recovered"}.union(*(each.ended_by for each in _TROUBLES.values())))
)


def problems(status: Status, events: Sequence[Event]) -> tuple[str, ...]:
    """Returns what is wrong now, one sentence each, worst first; none if the run is healthy.

    `events` are the newest events of the kinds `RELEVANT`, in order.
    """
    of_status = (*_not_running(status), *_load(status))
    return (*_stalled(status), *_lost_nodes(status, events), *of_status, *_told(status, events))


# -- by the status -----------------------------------------------------------------------------------------------------


def _stalled(status: Status) -> Iterator[str]:
    in_flight = figures.of(status.in_flight, "epoch")
    if status.since_commit > _STALLED and status.in_flight >= min(_SOME, status.window or _SOME):
        yield f"no epoch was committed for {figures.time(status.since_commit)}: {in_flight} in flight{_slowest(status)}"
    elif status.window and status.in_flight >= status.window:
        yield f"{in_flight} in flight, as many as may be, so sources wait{_slowest(status)}"


def _slowest(status: Status) -> str:
    """Returns the instance that is behind all others, if it is known."""
    last = min(status.instances, key=lambda each: each.epoch, default=None)
    return f"; the last one is {last.name} on {last.node}, at epoch {last.epoch:,}" if last is not None else ""


def _not_running(status: Status) -> Iterator[str]:
    restoring = [each.name for each in status.instances if each.phase == "restoring"]
    if restoring:
        yield f"{figures.of(len(restoring), 'instance')} without state yet: {names(restoring)}"


def _load(status: Status) -> Iterator[str]:
    full = [each for each in status.instances if each.utilisation > status.full]
    if full:
        fullest = heapq.nlargest(_NAMES, full, key=lambda each: each.utilisation)
        yield f"{figures.of(len(full), 'full instance')}: {names([*map(_busy, fullest)], len(full))}"
    if status.rows_per_second < _ENOUGH * status.offered:
        due, read = f"{status.offered:,.0f} rows/s are due", f"{status.rows_per_second:,.0f} rows/s are read"
        yield f"sources fall behind: {due}, and {read}"


def _busy(instance: InstanceStatus) -> str:
    return f"{instance.name} on {instance.node} is busy {instance.utilisation:.0%}"


def names(listed: Sequence[str], count: int | None = None) -> str:
    """Returns the first of some names, and how many more there are.

    >>> names(["a", "b"]), names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = (len(listed) if count is None else count) - min(len(listed), _NAMES)
    return ", ".join(listed[:_NAMES]) + (f" and {more:,} more" if more else "")


# -- by events ---------------------------------------------------------------------------------------------------------


def _lost_nodes(status: Status, events: Sequence[Event]) -> Iterator[str]:
    """Yields lost nodes, until some time after everything on them has recovered."""
    for at, event in enumerate(events):
        if isinstance(event, NodeLost):
            later = events[at:]
            moved = [each.instance for each in later if isinstance(each, Rebound) and each.lost == event.node]
            back = {each.instance for each in later if isinstance(each, InstanceRecovered)}
            missing = [each for each in moved if each not in back]
            if missing or status.at - event.at < _SHORT:
                yield f"node {event.node} was lost {_ago(status, event)}{_returned(moved, missing)}"


def _returned(moved: Sequence[str], missing: Sequence[str]) -> str:
    if missing:
        return f"; {figures.of(len(missing), 'instance')} not recovered yet: {names(missing)}"
    return f"; {figures.of(len(moved), 'instance')} recovered" if moved else ""


def _told(status: Status, events: Sequence[Event]) -> Iterator[str]:
    """Yields the newest trouble of each kind and subject that is neither ended nor old, the newest first."""
    ends: dict[str, list[_Subject]] = {}  #: kind -> the subjects of later events of the kind
    seen = set()
    for event in reversed(events):
        trouble = _TROUBLES.get(event.kind)
        key = (event.kind, event.operator, event.instance, event.node)
        if trouble is not None and key not in seen and status.at - event.at < trouble.lasts:
            seen.add(key)
            if not any(_concerns(subject, event) for kind in trouble.ended_by for subject in ends.get(kind, ())):
                words = trouble.words.format(operator=event.operator, instance=event.instance, node=event.node)
                yield f"{words} {_ago(status, event)}"
        ends.setdefault(event.kind, []).append(_Subject(event.operator, event.node))


class _Subject(NamedTuple):
    operator: str | None
    node: str | None


def _concerns(later: _Subject, event: Event) -> bool:
    """Whether a later event is about the same operator and node, as far as both name one."""
    pairs = ((later.operator, event.operator), (later.node, event.node))
    return all(one == other for one, other in pairs if one is not None and other is not None)


def _ago(status: Status, event: Event) -> str:
    """Returns how long ago an event was, and its details."""
    ago = f"({figures.time(max(status.at - event.at, 0.0))} ago)"
    return f"{ago}: {event.detail}" if event.detail else ago
