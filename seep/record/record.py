"""The record: what a run knows about itself, in one place.

The owner of a run reports everything to it: events, reports of nodes, losses, commits. It returns the status, the
report, the input of policies, and the steward's facts. Its memory grows neither with the age of the run nor with the
number of past instances and nodes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from policies.balance.loads import SlotLoads
from policies.observation import Change, InstanceReport, Observation
from primitives.errors import SeepError
from primitives.event import Event
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Assignment, Topology
from seep.protocol.events import NodeLost, SplitEffective, StateRestored
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation, Seat
from seep.record.causes.traces import KeptTraces
from seep.record.commits import Commits
from seep.record.comparison import compared, pairs
from seep.record.dead_letters import DeadLetter, LetterSamples
from seep.record.events import CheckpointStored, InstanceRecovered, NodeKilled, SavepointStored
from seep.record.facts import Handover, QueryFacts
from seep.record.histogram import Histogram
from seep.record.latencies import LatencyRing, percentiles
from seep.record.log import EventLog
from seep.record.observer import Observer, Positions, RunSnapshot, SourceDemand
from seep.record.recoveries import Recovered, Recoveries, RecoveryChanges
from seep.record.report import PARTS, make_report
from seep.record.reports import InstanceFigures, NodeReport, check_figures, check_report
from seep.record.samples import Sample, sample_of
from seep.record.series import CoarseningSeries
from seep.record.slots.counts import SlotCounts
from seep.record.slots.rates import SlotRates
from seep.record.status import (
    FULL,
    CheckpointStatus,
    InstanceStatus,
    OpenDecision,
    OperatorStatus,
    Status,
    instance_status,
    node_status,
    operator_status,
)
from seep.record.tally import Tally
from seep.record.totals import Durations, PushTotals, RunTotals, SourceTotals, TotalCounters
from seep.rows.position import MIN_WATERMARK, Position

#: Seconds of the percentiles of "now"; or number of latencies, if there is none in that time.
_RECENT, _FEW = 5.0, 10
#: Weight of the last report in smoothed rates.
_WEIGHT = 0.2
#: Number of handovers, by operator and epoch, that are kept.
_HANDOVERS = 10_000
#: Number of checkpoints in a status.
_CHECKPOINTS = 10
#: Number of reports over which the reading rate is computed.
_PROGRESS = 50

P = ParamSpec("P")
T = TypeVar("T")


def _locked(
    method: Callable[Concatenate[Record, P], T],
) -> Callable[Concatenate[Record, P], T]:
    """Makes a method hold the record's lock."""

    def alone(self: Record, /, *arguments: P.args, **named: P.kwargs) -> T:
        with self._lock:
            return method(self, *arguments, **named)

    alone.__doc__ = method.__doc__
    return alone


class _Last(NamedTuple):
    """The latest data of a live instance."""

    node: str
    figures: InstanceFigures
    now: InstanceReport | None  #: between its node's last two reports; rates are smoothed


class _Node(NamedTuple):
    """The latest data of a live node."""

    report: NodeReport
    before: NodeReport | None


class Record:
    """The record of one run. Thread-safe; times are seconds since the query began to run, as in the log."""

    def __init__(
        self,
        graph: QueryGraph,
        sources: Mapping[str, SourceDemand],
        positions: Positions,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        run: str = "",
    ) -> None:
        """`positions` belong to the source log, whose owner keeps changing them; `wall_clock` returns unix time.

        The ids of traces follow from the id of the `run`.
        """
        self.graph = graph
        self.log = EventLog(clock)
        self.latencies = LatencyRing()
        self.commits = Commits()
        self._sources, self._positions, self._wall_clock = sources, positions, wall_clock
        self._lock = threading.RLock()
        self._nodes: dict[str, _Node] = {}
        #: exactly the instances in their nodes' latest reports
        self._instances: dict[Incarnation, _Last] = {}
        self._edges: dict[str, dict[str, float]] = {}  #: node -> edge -> rows per second
        self._read_before = 0  #: rows read by instances that have left
        self._read_to: int | None = None  #: the highest watermark that a source has reported, except that of the end
        self._progress: deque[tuple[float, int]] = deque(maxlen=_PROGRESS)  #: (time, rows read so far)
        self._handed: Mapping[tuple[str, int], Handover] = MappingProxyType({})
        slot_bits = {name: operator.slot_bits for name, operator in graph.operators.items()}
        self._slots, self._slot_rates = SlotCounts(slot_bits), SlotRates(slot_bits)
        self._letters = LetterSamples()
        self._tally = Tally()
        self._totals = TotalCounters()
        self._durations = Durations()
        self._pushes: Mapping[str, PushTotals] = MappingProxyType({})
        self._histogram = Histogram()
        self._recoveries = Recoveries()
        self._recovery_changes = RecoveryChanges()
        self.log.listen(self._recovery_changes.hear)
        self.log.listen(self._durations.hear)
        self._observer = Observer(sources)
        self.traces = KeptTraces(run)
        self.log.listen(self.traces.hear)
        #: of the node that was given up, and that the manager will report as lost: why, and its instances
        self._lost: tuple[str, tuple[InstanceId, ...] | None] = ("", None)
        self._seen = 0.0  #: time of the last observation
        self._offered = 0.0
        self._samples = CoarseningSeries[Sample]()
        self._last_sample: Sample | None = None
        self._latest: Status | None = None
        self.begun = wall_clock()  #: unix time at which the query began to run; until then, at which this was made

    # -- reports about the run ---------------------------------------------------------------------------------------

    @_locked
    def begin(self) -> None:
        """Notes that the query begins to run now."""
        self.latencies.shift(self.log.now)
        self.traces.shift(self.log.now)
        self._progress.clear()
        self.log.begin()
        self.begun = self._wall_clock()

    def tell(self, event: Event) -> None:
        """Adds an event to the log."""
        with self._lock:
            if isinstance(event, StateRestored | SplitEffective):
                self._recoveries.restored(event.subject, self.log.now)
            if isinstance(event, NodeLost):
                why, hosted = self._lost
                event = replace(event, why=why, hosted=hosted)
        self.log.add(event)

    def killed(self, node: str, placement: Mapping[InstanceId, Seat]) -> None:
        """Notes that a node is about to be killed on purpose."""
        with self._lock:
            self._recoveries.killed(node, self.log.now)
        self.log.add(NodeKilled(node=node, hosted=_hosted(node, placement)))

    @_locked
    def given_up(self, node: str, why: str, placement: Mapping[InstanceId, Seat], ticked: int) -> None:
        """Notes that a node is given up with its instances, after `ticked` opened epochs; the manager is told next."""
        hosted = _hosted(node, placement)
        self._lost = why, hosted
        stateful = {i for i in hosted if self.graph.kind(i.operator) is Kind.STATEFUL}
        self._recoveries.lost(node, hosted, stateful, ticked, self.log.now)

    def committed(self, epoch: int) -> bool:
        """Notes that all sinks have committed an epoch; returns whether that is new."""
        with self._lock:
            is_news = epoch > self.commits.epoch
            self.commits.note(epoch, self.log.now)
            over = self._recoveries.committed(epoch, self.log.now)
        for event in (event for recovered in over for event in _told(recovered)):
            self.log.add(event)
        return is_news

    @_locked
    def pushed(self, what: str, failed: bool = False, dropped: int = 0) -> None:
        """Notes a push of metrics or traces to a collector, and how many traces were given up with it."""
        self._pushes = {**self._pushes, what: self._pushes.get(what, PushTotals()).plus(failed, dropped)}

    # -- reports about nodes and instances ---------------------------------------------------------------------------

    @_locked
    def take(self, node: str, report: object) -> None:
        """Handles a node's report: the node hosts the instances that are in it.

        Raises MalformedReport if it is not valid.
        """
        told = check_report(report, self.graph)
        now = self.log.now
        known = self._nodes.get(node)
        before = known.report if known is not None else None
        rates = {each.instance: each for each in compared(node, before, told)} if before is not None else {}
        self._edges[node] = self._edge_rates(node, before, told)
        self._nodes[node] = _Node(told, before)
        lives = {identity: last for identity, last in self._instances.items() if last.node == node}
        self._forget(node)
        for figures in told.instances:
            identity = figures.identity
            if not self._tally.has_left(identity):
                self._note(figures, told.cores, now)
                rate = _smoothed(lives.get(identity), rates.get(identity.instance))
                self._instances[identity] = _Last(node, figures, rate)
        self._note_watermarks(told.instances)
        self._progress.append((now, self.rows_read))

    @_locked
    def left(self, node: str, last_word: object) -> None:
        """Handles the last figures of an instance that was told to stop.

        Raises MalformedReport if they are not valid.
        """
        figures = check_figures(last_word, self.graph)
        identity = figures.identity
        if self._tally.has_left(identity):
            return
        known = self._nodes.get(node)
        self._note(figures, known.report.cores if known is not None else 1.0, self.log.now)
        self._tally.left(identity)
        self._drop_instance(identity)
        self._read_before += figures.rows_out if identity.instance.operator in self._sources else 0

    @_locked
    def lost(self, identity: Incarnation, up_to: int | None) -> None:
        """Notes that an instance ended without last figures; another one processes the epochs after `up_to` again."""
        self._tally.lost(identity, up_to)
        self._drop_instance(identity)

    @_locked
    def unheard(self) -> None:
        """Notes that last figures are overdue: counters are lower bounds from now on."""
        self._tally.unheard()

    @_locked
    def drop(self, node: str) -> None:
        """Removes a node that is gone."""
        self._nodes.pop(node, None)
        self._edges.pop(node, None)
        self._forget(node)

    def _forget(self, node: str) -> None:
        for identity in [identity for identity, last in self._instances.items() if last.node == node]:
            self._instances.pop(identity)

    def _drop_instance(self, identity: Incarnation) -> None:
        self._instances.pop(identity, None)
        self._slots.forget(identity)
        self._totals.ended(identity)

    def _note(self, figures: InstanceFigures, cores: float, now: float) -> None:
        """Adds figures: counters so far, and data that is reported only once."""
        self._tally.note(figures.identity, figures.counted, figures.counters)
        self._totals.note(figures)
        self._note_handed(figures)
        self._letters.note(figures, now)
        if figures.slots is not None:
            self._slots.take(figures.identity, figures.slots, cores)
            self._slot_rates.take(figures.identity.instance.operator, figures.slots, now)
        if figures.latencies:
            self.latencies.add(now, figures.latencies)
            self._histogram.add(np.asarray(figures.latencies))

    def _note_handed(self, figures: InstanceFigures) -> None:
        if not figures.handed:
            return
        handed = dict(self._handed)
        for part in figures.handed:
            key = (figures.identity.instance.operator, part.epoch)
            sums = (a + b for a, b in zip(handed.get(key, Handover()), part[1:], strict=True))
            handed[key] = Handover(*sums)
        while len(handed) > _HANDOVERS:
            del handed[next(iter(handed))]
        self._handed = MappingProxyType(handed)

    def _note_watermarks(self, told: Iterable[InstanceFigures]) -> None:
        for figures in told:
            watermark = figures.watermark
            if figures.identity.instance.operator in self._sources and watermark is not None and _is_time(watermark):
                self._read_to = watermark if self._read_to is None else max(self._read_to, watermark)

    def _edge_rates(self, node: str, before: NodeReport | None, now: NodeReport) -> dict[str, float]:
        if before is None or now.at <= before.at:
            return {}
        rates: dict[str, float] = {}
        for early, late in pairs(before, now):
            for edge, rows in late.edges.items():
                rate = (rows - early.edges.get(edge, 0)) / (now.at - before.at)
                rates[edge] = rates.get(edge, 0.0) + rate
        known = self._edges.get(node, {})
        return {edge: _towards(known.get(edge), rate) for edge, rate in rates.items()}

    # -- rows by slot -------------------------------------------------------------------------------------------------

    @_locked
    def restart_slots(self, operators: Container[str] | None = None) -> None:
        """Removes all counts by slot, as balancers need those of other operators from now on; None: of all."""
        self._slots.restart(operators)

    @_locked
    def show_slots(self, operators: Iterable[str], seconds: float) -> None:
        """Keeps the rates by slot of these operators, in windows of so many seconds, apart from balancers' counts."""
        self._slot_rates.show(operators, seconds, self.log.now)

    @_locked
    def slot_load(self, operator: str, assignment: Assignment) -> dict[str, Any]:
        """Returns the owners of an operator's slots, and its rows per second by slot, as plain data."""
        return self._slot_rates.load(operator, assignment, self.log.now)

    @_locked
    def end_window(self, operator: str, seconds: float, assignment: Assignment, moving: SlotSet) -> SlotLoads | None:
        """Returns the counts by slot since the last call.

        If an instance has not reported yet, returns None, and the window continues.
        """
        if not self._slots.is_whole(operator, assignment):
            return None
        return self._slots.end_window(operator, seconds, assignment, moving)

    # -- queries for decisions ----------------------------------------------------------------------------------------

    @property
    @_locked
    def handed(self) -> Mapping[tuple[str, int], Handover]:
        """Returns the handovers by operator and epoch, as far as nodes have reported; an immutable value."""
        return self._handed

    @property
    @_locked
    def reported(self) -> Mapping[InstanceId, int]:
        """The last epoch that each live instance has reported."""
        told = sorted((who.instance, last.figures.epoch) for who, last in self._instances.items())
        return MappingProxyType(dict(told))

    @property
    @_locked
    def state_bytes(self) -> Mapping[InstanceId, int]:
        """Bytes of processing state of each live instance."""
        return MappingProxyType({who.instance: last.figures.state_bytes for who, last in self._instances.items()})

    @property
    def recoveries(self) -> tuple[Change, ...]:
        """Returns recoveries as changes: the newest ended ones, and all open ones."""
        return tuple(self._recovery_changes)

    @_locked
    def observe(self, query: QueryFacts, warm_nodes: int) -> Observation | None:
        """The observation for policies of the time since the last call; None at the first call."""
        since, self._seen = self._seen, self.log.now
        latest = {operator: query.latest(operator) for operator in query.topology.history}
        observation = self._observer.observe(
            RunSnapshot(
                at=self._seen,
                clock=self._wall_clock(),
                nodes={name: node.report for name, node in self._nodes.items()},
                slots={InstanceId(o, i): len(slots) for o, a in latest.items() for i, slots in a.parts.items()},
                positions={operator: dict(positions) for operator, positions in self._positions.items()},
                latencies=self.latencies.since(since).tolist(),
                epochs_in_flight=query.ticked - query.committed,
                warm_nodes=warm_nodes,
            )
        )
        if observation is not None:
            self._offered = sum(observation.offered.values())
        return observation

    # -- queries of people --------------------------------------------------------------------------------------------

    @property
    @_locked
    def rows_read(self) -> int:
        """Rows that sources have read, as reported."""
        of_sources = (each for who, each in self._instances.items() if who.instance.operator in self._sources)
        return self._read_before + sum(each.figures.rows_out for each in of_sources)

    @property
    @_locked
    def counters(self) -> tuple[dict[str, int], bool]:
        """Returns the sums of all operators' counters, and whether they are exact; if not, they are lower bounds."""
        return self._tally.total(), self._tally.is_exact

    @_locked
    def dead_letters(self, operator: str | None = None) -> tuple[tuple[DeadLetter, ...], dict[str, int]]:
        """Returns the newest dead letters of an operator, or of all, oldest first; and the number of all by operator.

        Operators without dead letters have no number.
        """
        totals = {name: totals.dead_letters for name, totals in self._totals.operators.items() if totals.dead_letters}
        return self._letters.newest(operator), {o: n for o, n in totals.items() if operator in (None, o)}

    @_locked
    def status(
        self,
        query: QueryFacts,
        vms: Mapping[str, int] = MappingProxyType({}),
        balanced: Iterable[str] = (),
        decisions: Iterable[OpenDecision] = (),
        vm_seconds: float = 0.0,
        full: float = FULL,
    ) -> Status:
        """Returns the present status of the run; the caller adds data of the pool, of balancing and of decisions.

        `full` is the part of its CPU share above which an instance is full.
        """
        instances = tuple(sorted(self._instance_statuses(), key=lambda status: status.name))
        used = {seat.node for seat in query.placement.values()}
        return Status(
            at=self.log.now,
            ticked=query.ticked,
            committed=query.committed,
            rows_read=self.rows_read,
            rows_per_second=self._rate(),
            latency=self._recent_latency(),
            instances=instances,
            nodes=len(query.nodes),
            idle_nodes=len(query.nodes - used),
            offered=self._offered,
            vms=dict(vms),
            imbalance=self._imbalance(),
            balanced=tuple(sorted(balanced)),
            operators=tuple(self._operator_statuses(instances)),
            edges=self._edges_now(),
            hosts=tuple(
                node_status(name, _node_state(name, query, used), *node) for name, node in sorted(self._nodes.items())
            ),
            decisions=tuple(decisions),
            checkpoints=self._checkpoints(),
            vm_seconds=vm_seconds,
            totals=self._totals_now(query),
            rows_out_per_second=self._rate_of_sinks(),
            window=query.window,
            since_commit=self.log.now - (self.commits.at or 0.0),
            full=full,
        )

    @_locked
    def sample(self, status: Status) -> None:
        """Keeps a status for the time series; the owner of the record calls it at even intervals."""
        self._latest = status
        self._last_sample = sample_of(status, self._last_sample)
        self._samples.append(status.at, self._last_sample)

    @property
    def latest(self) -> Status | None:
        """The status of the last sample."""
        return self._latest

    @property
    def newest_sample(self) -> Sample | None:
        """The last sample."""
        return self._last_sample

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The kept samples in order of time: all of the last minutes, and fewer the older they are."""
        return tuple(self._samples)

    @_locked
    def report(
        self,
        query: str,
        *,
        rows: int,
        is_over: bool,
        vm_seconds: Mapping[str, float],
        migrations: Sequence[Mapping[str, Any]] = (),
        all_migrations: int = 0,
        failure: SeepError | None = None,
        story: Mapping[str, Sequence[str]] = MappingProxyType({}),
        topology: Topology | None = None,
        only: Container[str] = PARTS,
        points: int | None = None,
    ) -> dict[str, Any]:
        """Returns events, time series and a summary, as plain data; or `only` some parts of them.

        `rows` are those in the source log; `all_migrations` is the number of all migrations.
        """
        counters, is_exact = self.counters
        return make_report(
            query,
            self.log,
            self.samples,
            rows=rows,
            latency=self.latencies.percentiles_since(-np.inf),
            latencies={"histogram": self._histogram.to_json(), "timeline": self.latencies.timeline()},
            largest_gap=self.commits.largest_gap,
            epochs=self.commits.epoch,
            counters=counters,
            counters_exact=is_exact and is_over,
            vm_seconds=vm_seconds,
            migrations=migrations,
            spans=list(self.traces),
            totals={"events": self.log.totals, "migrations": all_migrations},
            failure=failure,
            story=story,
            topology=topology,
            only=only,
            points=points,
        )

    def _checkpoints(self) -> tuple[CheckpointStatus, ...]:
        stored = [each for each in self.log.of("persisted", "savepoint") if isinstance(each, CheckpointStored)]
        now = self.log.now
        return tuple(
            CheckpointStatus(each.id, each.epoch, now - each.at, each.bytes, isinstance(each, SavepointStored))
            for each in stored[-_CHECKPOINTS:]
        )

    def _totals_now(self, query: QueryFacts) -> RunTotals:
        self._totals.keep(query.placement)
        return RunTotals(
            instances=self._totals.instances,
            operators=self._totals.operators,
            sources={source: _rows_of(positions) for source, positions in self._positions.items()},
            handed=self._totals.handed,
            events=self.log.totals,
            latency=self._histogram.counts(),
            durations=self._durations.counts(),
            pushes=self._pushes,
        )

    def _rate(self, seconds: float = 3.0) -> float:
        """Rows read per second, over the last seconds."""
        recent = [(at, rows) for at, rows in self._progress if at >= self.log.now - seconds]
        if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
            return 0.0
        return max(0.0, (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]))

    def _rate_of_sinks(self) -> float:
        sinks = (
            each.now for who, each in self._instances.items() if self.graph.kind(who.instance.operator) is Kind.SINK
        )
        return sum(now.rows_in for now in sinks if now is not None)

    def _recent_latency(self) -> dict[str, float]:
        recent = self.latencies.since(self.log.now - _RECENT)
        return percentiles(recent if len(recent) else self.latencies.newest(_FEW))

    def _imbalance(self) -> dict[str, float]:
        """Returns by operator the present input of its fullest instance over the mean of its instances."""
        rates: dict[str, list[float]] = {}
        for who, last in self._instances.items():
            if last.now is not None:
                rates.setdefault(who.instance.operator, []).append(last.now.rows_in)
        return {each: max(of) * len(of) / sum(of) for each, of in rates.items() if len(of) > 1 and any(of)}

    def _edges_now(self) -> dict[str, float]:
        rates: dict[str, float] = {}
        for edge, rate in (each for of_node in self._edges.values() for each in of_node.items()):
            rates[edge] = rates.get(edge, 0.0) + rate
        return dict(sorted(rates.items()))

    def _instance_statuses(self) -> Iterable[InstanceStatus]:
        return (
            instance_status(last.node, last.figures, last.now, self._behind(last.figures))
            for last in self._instances.values()
        )

    def _behind(self, figures: InstanceFigures) -> int | None:
        if figures.watermark is None or self._read_to is None:
            return None
        return max(0, self._read_to - figures.watermark)

    def _operator_statuses(self, instances: Sequence[InstanceStatus]) -> Iterable[OperatorStatus]:
        for operator in self.graph.order:
            of = [each for each in instances if each.operator == operator]
            if of:
                yield operator_status(operator, of, self._slots.hottest(operator))


def _hosted(node: str, placement: Mapping[InstanceId, Seat]) -> tuple[InstanceId, ...]:
    return tuple(instance for instance, seat in placement.items() if seat.node == node)


def _rows_of(positions: Mapping[int, Any]) -> SourceTotals:
    """The rows read and skipped up to a source's positions, by partition as in the source log."""
    there = [Position(*position) for position in positions.values()]
    return SourceTotals(sum(each.rows for each in there), sum(each.shed for each in there))


def _node_state(name: str, query: QueryFacts, hosts: Set[str]) -> str:
    if name not in query.nodes:
        return "lost"
    return "leaving" if name in query.leaving else "used" if name in hosts else "idle"


def _is_time(watermark: int) -> bool:
    """Whether a watermark is an event time, and not a mark of the beginning or the end of the input."""
    return MIN_WATERMARK < watermark < MAX_WATERMARK


def _told(recovered: Recovered) -> Iterable[InstanceRecovered]:
    return (
        InstanceRecovered(
            subject=instance,
            seconds=recovered.total,
            detected=recovered.detected,
            restored=recovered.restored,
            replayed=recovered.replayed,
            lost=recovered.node,
        )
        for instance in recovered.instances
    )


def _smoothed(last: _Last | None, now: InstanceReport | None) -> InstanceReport | None:
    """Smooths the rates of a report, because one epoch more or less changes them by much."""
    before = last.now if last is not None else None
    if now is None or before is None:
        return now
    rows_in, rows_out = _towards(before.rows_in, now.rows_in), _towards(before.rows_out, now.rows_out)
    return replace(now, rows_in=rows_in, rows_out=rows_out)


def _towards(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
