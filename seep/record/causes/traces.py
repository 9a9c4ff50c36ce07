"""Traces: each change, recovery and checkpoint in storage as a tree of spans, made from a run's events alone.

| trace | begins with | its spans |
|---|---|---|
| `scaling`, `migration`, `balance` | a decision | `decided`, a `plan` for each step |
| `drain` | a node that is to leave | a `plan` for each step |
| `plan` | a plan without a known decision | as below |
| `recovery` | the loss of a node with instances | an `instance` for each, with `detected`, `restored`, `replayed` |
| `checkpoint`, `savepoint` | | |

A `plan` has `sealed`, `effective`, a `transfer` for each new owner, and `safe`; a split from backup has `restored`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

from primitives.event import Event, NodeEvent, OperatorEvent
from primitives.graph import InstanceId
from seep.protocol.events import (
    MoveAnnounced,
    MoveComplete,
    MoveEffective,
    MoveSealed,
    NodeLeaving,
    NodeLost,
    Rebound,
    SplitAborted,
    SplitBegun,
    SplitEffective,
    StateRestored,
    StateTakenIn,
)
from seep.record.causes.spans import Span, SpanStatus, SpanTree, Value
from seep.record.events import (
    Balanced,
    BalancingBegun,
    BalancingCalledOff,
    BalancingFailed,
    CheckpointFailed,
    CheckpointStored,
    Drained,
    DrainGivenUp,
    InstanceRecovered,
    Migrated,
    MigrationBegun,
    MigrationOver,
    NodeKilled,
    RunFailed,
    RunFinished,
    RunHalted,
    SavepointStored,
    ScalingAborted,
    ScalingBegun,
    ScalingCalledOff,
    ScalingDone,
    ScalingGivenUp,
    ScalingRefused,
    ScalingReplaced,
)
from seep.record.ring import Ring

T = TypeVar("T")

#: The most open traces; the oldest is ended when there are more.
_MOST_OPEN = 500
#: The most spans of ended traces that are kept.
_KEPT = 2_000
#: The most plans in a trace, transfers in a plan, and instances that a span names.
_MOST_PLANS, _MOST_TRANSFERS, _NAMED = 200, 20, 20


@dataclass(slots=True, eq=False)
class _Trace:
    """An open trace."""

    number: int  #: 1 for the first of the run
    tree: SpanTree
    operator: str | None = None
    node: str | None = None
    migration: int | None = None
    #: exactly the plans that are not complete
    plans: dict[int, _Plan] = field(default_factory=dict)
    #: how it has ended, while some of its plans are open
    over: tuple[SpanStatus, str] | None = None
    #: of a recovery: the instances that have not recovered, each with its span and its phase now
    waiting: dict[InstanceId, tuple[SpanTree, SpanTree]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.tree.name

    def add_plan(self, number: int, plan: _Plan) -> None:
        """Adds a plan; the oldest complete one is left out if there are too many."""
        self.plans[number] = plan
        self.tree.children.append(plan.tree)
        ended = next((i for i, each in enumerate(self.tree.children) if each.end is not None), None)
        if len(self.tree.children) > _MOST_PLANS and ended is not None:
            del self.tree.children[ended]
            self.tree.attributes["left_out"] = int(str(self.tree.attributes.get("left_out", 0))) + 1


@dataclass(slots=True, eq=False)
class _Plan:
    """An open plan."""

    tree: SpanTree
    operator: str
    first: int | None = None  #: the first epoch of the new owners
    effective: float | None = None
    phase: SpanTree | None = None

    def enter(self, name: str, at: float) -> None:
        """Ends the present phase, and begins the next one."""
        self.leave(at)
        self.phase = self.tree.child(name, at)

    def leave(self, at: float) -> None:
        if self.phase is not None:
            self.phase.close(at)

    def take_in(self, event: StateTakenIn) -> None:
        """Adds the transfer of state from an old owner to a new one."""
        bytes_, count = (int(str(self.tree.attributes.get(name, 0))) for name in ("bytes", "transfers"))
        self.tree.attributes |= {"bytes": bytes_ + event.bytes, "transfers": count + 1}
        if count < _MOST_TRANSFERS:
            start = self.tree.start if self.effective is None else self.effective
            made = self.tree.child("transfer", min(start, event.at), instance=str(event.subject))
            made.attributes |= {"origin": str(event.origin), "bytes": event.bytes}
            made.close(event.at)


class Traces:
    """Makes spans of events. A trace is handed out once, when all of it has ended; its parents come first.

    The spans follow from the events and the name of the run alone, with their ids. It is a pure machine: an event has
    its time.

    >>> traces = Traces("run-1")
    >>> traces.hear(BalancingBegun(operator="counter", why="skew", imbalance=2.0, slots=8, at=3.0))
    ()
    >>> [span.name for span in traces.open()]
    ['balance']
    >>> (span,) = traces.hear(BalancingCalledOff(operator="counter", why="the run is over", at=4.0))
    >>> span.name, span.start, span.end, span.status.value, span.reason
    ('balance', 3.0, 4.0, 'error', 'the run is over')
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._number = self._decisions = 0
        self._open: list[_Trace] = []  #: in the order of their beginning
        self._killed: dict[str, float] = {}  #: when nodes were killed that are not given up yet
        self._lost: dict[str, tuple[float, float, str]] = {}  #: lost nodes: since when, when given up, and why
        self._ended: list[_Trace] = []
        self._is_over = False

    def hear(self, event: Event) -> tuple[Span, ...]:
        """Handles an event of the run; returns the spans of the traces that have ended with it."""
        self._handle(event)
        while len(self._open) > _MOST_OPEN:
            self._end(self._open[0], event.at, SpanStatus.UNSET, f"more than {_MOST_OPEN} traces were open")
        ended, self._ended = self._ended, []
        return tuple(span for trace in ended for span in self._spans(trace))

    def open(self) -> tuple[Span, ...]:
        """Returns the spans of all open traces, as far as they have begun."""
        return tuple(span for trace in self._open for span in self._spans(trace))

    def shift(self, seconds: float) -> None:
        """Counts times from a moment that was so many seconds later."""
        for trace in self._open:
            trace.tree.shift(seconds)

    def _spans(self, trace: _Trace) -> Iterable[Span]:
        return trace.tree.spans(self._run, str(trace.number))

    def _handle(self, event: Event) -> None:
        match event:
            case ScalingBegun() | MigrationBegun() | BalancingBegun():
                self._decide(event)
            case ScalingDone() | Balanced() | MigrationOver():
                self._end_decision(event)
            case ScalingAborted() | ScalingCalledOff() | ScalingGivenUp() | ScalingRefused() | ScalingReplaced():
                self._stop_scaling(event)
            case BalancingCalledOff():
                self._stop(self._newest("balance", event.operator), "balance", event)
            case BalancingFailed():
                self._stop(None, "balance", event)
            case MoveAnnounced() | SplitBegun():
                self._plan(event)
            case MoveSealed() | MoveEffective() | MoveComplete() | SplitEffective() | SplitAborted():
                self._advance(event)
            case StateTakenIn():
                self._take_in(event)
            case NodeLeaving():
                self._begin("drain", event.at, node=event.node)
            case Drained() | DrainGivenUp():
                self._end_drain(event)
            case CheckpointStored() | CheckpointFailed():
                self._store(event)
            case RunFinished() | RunHalted() | RunFailed():
                self._end_run(event)
            case NodeKilled() | NodeLost() | Rebound() | InstanceRecovered():
                self._recover(event)
        if isinstance(event, StateRestored | SplitEffective):
            self._note_restored(event.subject, event.at)

    # -- traces -------------------------------------------------------------------------------------------------------

    def _begin(self, name: str, at: float, operator: str | None = None, node: str | None = None) -> _Trace:
        self._number += 1
        where = {"operator": operator, "node": node}
        tree = SpanTree(name, at, {each: value for each, value in where.items() if value is not None})
        trace = _Trace(self._number, tree, operator, node)
        self._open.append(trace)
        return trace

    def _end(self, trace: _Trace, at: float, status: SpanStatus = SpanStatus.OK, reason: str = "") -> None:
        trace.tree.close(at, status, reason)
        self._open.remove(trace)
        self._ended.append(trace)

    def _finish(self, trace: _Trace, at: float, status: SpanStatus = SpanStatus.OK, reason: str = "") -> None:
        """Ends a trace as soon as all its plans have ended; at the end of the run that is now."""
        trace.over = (status, reason)
        self._end_if_whole(trace, at)

    def _end_if_whole(self, trace: _Trace, at: float) -> None:
        if trace.over is not None and (self._is_over or not trace.plans):
            self._end(trace, at, *trace.over)

    def _newest(self, name: str, operator: str | None, migration: int | None = None) -> _Trace | None:
        """Returns the newest open trace of this name whose end was not told yet."""
        those = (each for each in reversed(self._open) if each.name == name and each.operator == operator)
        return next((each for each in those if each.over is None and migration in (None, each.migration)), None)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _decide(self, event: ScalingBegun | MigrationBegun | BalancingBegun) -> None:
        """Opens the trace of a decision; it adopts a plan that was announced before the decision was told."""
        name, about = _about(event)
        trace = self._begin(name, event.at, event.operator)
        self._decisions += 1
        trace.tree.attributes |= {"decision": self._decisions, "why": event.why, **about}
        trace.migration = event.migration if isinstance(event, MigrationBegun) else None
        for lone in [each for each in self._open if each.name == "plan" and each.operator == event.operator]:
            self._open.remove(lone)
            for number, plan in lone.plans.items():
                trace.add_plan(number, plan)

    def _end_decision(self, event: ScalingDone | Balanced | MigrationOver) -> None:
        name = (
            "scaling" if isinstance(event, ScalingDone) else "balance" if isinstance(event, Balanced) else "migration"
        )
        number = event.migration if isinstance(event, MigrationOver) else None
        trace = self._newest(name, event.operator, number) or self._begin(name, event.at, event.operator)
        trace.tree.attributes |= event.numbers
        waited = event.parts.get("waited")
        if event.seconds is not None and waited is not None:
            begun = event.at - event.seconds
            trace.tree.child("decided", begun - waited).close(begun)
        if isinstance(event, MigrationOver) and not isinstance(event, Migrated):
            self._finish(trace, event.at, SpanStatus.ERROR, event.why)
        else:
            self._finish(trace, event.at)

    def _stop_scaling(self, event: OperatorEvent) -> None:
        """Ends a scaling, or tells of a decision that has not begun."""
        is_another = isinstance(event, ScalingReplaced) or (
            isinstance(event, ScalingRefused) and event.meanwhile is not None
        )
        self._stop(None if is_another else self._newest("scaling", event.operator), "scaling", event)

    def _stop(self, trace: _Trace | None, name: str, event: OperatorEvent) -> None:
        if trace is None:
            trace = self._begin(name, event.at, event.operator)
        self._finish(trace, event.at, SpanStatus.ERROR, event.why)

    def _end_drain(self, event: NodeEvent) -> None:
        for trace in [each for each in self._open if each.name == "drain" and each.node == event.node]:
            is_given_up = isinstance(event, DrainGivenUp)
            self._finish(trace, event.at, SpanStatus.ERROR if is_given_up else SpanStatus.OK, event.why)

    # -- plans --------------------------------------------------------------------------------------------------------

    def _plan(self, event: MoveAnnounced | SplitBegun) -> None:
        tree = SpanTree("plan", event.at, {"plan": event.plan, "operator": event.operator})
        plan = _Plan(tree, event.operator)
        owner = self._owner(event)
        if isinstance(event, MoveAnnounced):
            plan.first = event.first
            tree.attributes |= {"epoch": event.first, "slots": event.slots, "view": event.view}
            tree.attributes["instances"] = tuple(map(str, event.instances[:_NAMED]))
            tree.attributes["instance_count"] = len(event.instances)
            plan.enter("sealed", event.at)
        else:
            tree.attributes |= {"instances": (str(event.subject),), "instance_count": event.shares}
            plan.enter("restored", event.at)
        if owner is not None:
            owner.add_plan(event.plan, plan)
            return
        lone = self._begin("plan", event.at, event.operator)
        lone.tree, lone.over = tree, (SpanStatus.OK, "")
        lone.plans[event.plan] = plan

    def _owner(self, event: MoveAnnounced | SplitBegun) -> _Trace | None:
        """Returns the trace to which a plan belongs: the newest open decision on the operator, or drain.

        A split of a lost instance's backup belongs to its recovery.
        """
        if isinstance(event, SplitBegun):
            losses = (each for each in reversed(self._open) if event.subject in each.waiting)
            if (loss := next(losses, None)) is not None:
                return loss
        return next((each for each in reversed(self._open) if each.over is None and _decides(each, event)), None)

    def _advance(self, event: MoveSealed | MoveEffective | MoveComplete | SplitEffective | SplitAborted) -> None:
        trace = next((each for each in reversed(self._open) if event.plan in each.plans), None)
        if trace is None:
            return
        plan = trace.plans[event.plan]
        match event:
            case MoveSealed():
                plan.enter("effective", event.at)
            case MoveEffective():
                plan.effective = event.at
                plan.enter("safe", event.at)
            case SplitAborted():
                self._end_plan(trace, event.plan, event.at, SpanStatus.ERROR, "nothing has changed")
            case SplitEffective(first=first):
                plan.tree.attributes["epoch"] = first
                self._end_plan(trace, event.plan, event.at)
            case MoveComplete():
                self._end_plan(trace, event.plan, event.at)

    def _end_plan(
        self, trace: _Trace, number: int, at: float, status: SpanStatus = SpanStatus.OK, reason: str = ""
    ) -> None:
        plan = trace.plans.pop(number)
        plan.tree.close(at, status, reason)
        if plan.tree is trace.tree:
            self._open.remove(trace)
            self._ended.append(trace)
        else:
            self._end_if_whole(trace, at)

    def _take_in(self, event: StateTakenIn) -> None:
        """Adds a transfer to its plan; if that is complete already, the transfer has no span."""
        for trace in reversed(self._open):
            for plan in trace.plans.values():
                if plan.first == event.first and plan.operator == event.operator:
                    plan.take_in(event)
                    return

    # -- recoveries ---------------------------------------------------------------------------------------------------

    def _recover(self, event: NodeKilled | NodeLost | Rebound | InstanceRecovered) -> None:
        match event:
            case NodeKilled():
                _remember(self._killed, event.node, event.at)
            case NodeLost() if not self._is_over:
                self._lose(event)
            case Rebound() if not self._is_over:
                self._rebind(event)
            case InstanceRecovered():
                self._note_recovered(event)

    def _lose(self, event: NodeLost) -> None:
        since = min(self._killed.pop(event.node, event.at), event.at)
        _remember(self._lost, event.node, (since, event.at, event.why))
        for instance in event.hosted or ():
            self._await(event.node, instance)

    def _await(self, node: str, instance: InstanceId) -> SpanTree | None:
        """Opens the span of an instance in the recovery of its node; the loss of an empty node is no recovery."""
        trace = self._recovery(node)
        if trace is None and node in self._lost:
            trace = self._begin("recovery", self._lost[node][0], node=node)
            trace.tree.attributes["why"] = self._lost[node][2]
        if trace is None:
            return None
        if instance not in trace.waiting:
            since, given_up, _ = self._lost[node]
            tree = trace.tree.child("instance", since, instance=str(instance), operator=instance.operator)
            tree.child("detected", since).close(given_up)
            trace.waiting[instance] = (tree, tree.child("restored", given_up))
            trace.tree.attributes["instance_count"] = len(trace.tree.children)
        return trace.waiting[instance][0]

    def _recovery(self, node: str) -> _Trace | None:
        return next((each for each in reversed(self._open) if each.name == "recovery" and each.node == node), None)

    def _rebind(self, event: Rebound) -> None:
        those = [event.lost] if event.lost else [str(each.node) for each in self._open if event.subject in each.waiting]
        for node in those:
            tree = self._await(node, event.subject)
            if tree is not None:
                tree.attributes["to"] = event.to

    def _note_restored(self, instance: InstanceId, at: float) -> None:
        for trace in self._open:
            tree, phase = trace.waiting.get(instance, (None, None))
            if tree is not None and phase is not None and phase.name == "restored":
                phase.close(at)
                trace.waiting[instance] = (tree, tree.child("replayed", at))

    def _note_recovered(self, event: InstanceRecovered) -> None:
        those = (each for each in self._open if event.subject in each.waiting)
        trace = next((each for each in those if event.lost in ("", each.node)), None)
        if trace is None:
            return
        tree, phase = trace.waiting.pop(event.subject)
        if phase.name == "restored":  # it had no state to restore
            since = max(phase.start, event.at - event.replayed)
            phase.close(since)
            tree.child("replayed", since)
        tree.close(event.at)
        if not trace.waiting:
            self._finish(trace, event.at)

    # -- checkpoints, and the end -------------------------------------------------------------------------------------

    def _store(self, event: CheckpointStored | CheckpointFailed) -> None:
        name = "savepoint" if isinstance(event, SavepointStored) else "checkpoint"
        trace = self._begin(name, event.at - (event.seconds or 0.0))
        if isinstance(event, CheckpointFailed):
            self._end(trace, event.at, SpanStatus.ERROR, event.why)
        else:
            trace.tree.attributes |= event.numbers
            self._end(trace, event.at)

    def _end_run(self, event: RunFinished | RunHalted | RunFailed) -> None:
        """Ends plans and recoveries, of which nothing more is told; the steward tells how its decisions have ended."""
        self._is_over = True
        status = SpanStatus.ERROR if isinstance(event, RunFailed) else SpanStatus.UNSET
        reason = f"the run is over: {event.why}" if event.why else "the run is over"
        for trace in tuple(self._open):
            for plan in trace.plans.values():
                plan.tree.close(event.at, status, reason)
            if trace.over is not None or trace.name == "recovery":
                self._end(trace, event.at, *(trace.over or (status, reason)))


class KeptTraces:
    """The traces of a run: the newest ended ones, and all open ones. Thread-safe."""

    def __init__(self, run: str, most: int = _KEPT) -> None:
        """`most` spans of ended traces are kept, and at least one trace."""
        self._traces, self._most = Traces(run), most
        self._ended = Ring[tuple[Span, ...]](most, len)  #: each item is one trace
        self._lock = threading.Lock()

    def hear(self, event: Event) -> None:
        """Handles an event of the run."""
        with self._lock:
            for _, spans in groupby(self._traces.hear(event), attrgetter("trace")):
                self._ended.append(tuple(spans))

    def shift(self, seconds: float) -> None:
        """Counts all times from a moment that was so many seconds later."""
        with self._lock:
            self._traces.shift(seconds)
            before, self._ended = self._ended, Ring[tuple[Span, ...]](self._most, len)
            for spans in before:
                self._ended.append(tuple(_earlier(span, seconds) for span in spans))

    def since(self, number: int) -> tuple[int, list[tuple[Span, ...]]]:
        """Returns the kept traces that have ended from a number on, counted from 0, with the number of the first.

        Parents come first in each. Numbers count from the moment in which the query began to run.
        """
        return self._ended.since(number)

    def __iter__(self) -> Iterator[Span]:
        """Yields all kept spans: those of ended traces, then those of open ones."""
        with self._lock:
            ended, still_open = list(self._ended), self._traces.open()
        return iter([span for spans in (*ended, still_open) for span in spans])


def _about(event: ScalingBegun | MigrationBegun | BalancingBegun) -> tuple[str, dict[str, Value]]:
    """Returns the name of a decision's trace, and its figures."""
    match event:
        case ScalingBegun(before=before, after=after):
            return "scaling", {"before": before, "after": after}
        case MigrationBegun(strategy=strategy, slots=slots, steps=steps):
            return "migration", {"strategy": strategy, "slots": slots, "steps": steps}
    return "balance", {"imbalance": event.imbalance, "slots": event.slots}


def _earlier(span: Span, seconds: float) -> Span:
    return replace(span, start=span.start - seconds, end=None if span.end is None else span.end - seconds)


def _decides(trace: _Trace, event: MoveAnnounced | SplitBegun) -> bool:
    return trace.operator == event.operator or trace.name == "drain"


def _remember(known: dict[str, T], node: str, value: T) -> None:
    """Notes a fact about a node; the oldest is forgotten if there are too many."""
    known[node] = value
    while len(known) > _MOST_OPEN:
        del known[next(iter(known))]
