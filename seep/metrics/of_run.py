"""Metrics of a run as a whole: its phase and progress, latencies, VMs, and everything that changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import vmpool.events
from primitives.event import event_kinds
from seep.metrics.metric import (
    Choice,
    Metric,
    MetricSample,
    Present,
    Reading,
    by_choice,
    counter,
    gauge,
    histogram,
    of_run,
)
from seep.protocol import events as protocol_events
from seep.record import events as record_events
from seep.record.totals import PushTotals
from vmpool.vm import VmState

#: The modules with all events of a run.
_EVENTS = {module.__name__ for module in (vmpool.events, protocol_events, record_events)}


def label_of(kind: str) -> str:
    """Returns a kind of event as the value of a label.

    >>> label_of("waiting for VMs")
    'waiting_for_vms'
    """
    return kind.lower().replace(" ", "_")


#: Event -> the phase of a run after it.
_LAST_PHASES = {"failed": "failed", "halted": "halted", "finished": "finished"}
PHASES = Choice("phase", ("waiting", "running", "finished", "halted", "failed"))
#: The kinds of open decisions and requests.
DECISIONS = Choice("kind", ("scaling", "rebalance", "balance", "migration", "drain"))
VM_STATES = Choice("state", tuple(state.value for state in VmState))
EVENTS = Choice(
    "kind",
    tuple(sorted(label_of(kind) for kind, each in event_kinds().items() if each.__module__ in _EVENTS)),
)


def _phase(present: Present) -> Mapping[str, float]:
    there = present.status.totals.events
    ended = next((phase for event, phase in _LAST_PHASES.items() if event in there), None)
    now = ended or present.facts.query.phase.value
    return {phase: float(phase == now) for phase in PHASES.values}


def _ends(outcomes: Mapping[str, str]) -> tuple[Choice, Reading]:
    """Counts events by the outcome that each kind stands for."""

    def read(present: Present) -> Mapping[str, float]:
        events = present.status.totals.events
        return {outcome: events.get(kind, 0) for kind, outcome in outcomes.items()}

    return Choice("outcome", tuple(outcomes.values())), by_choice(read)


def _count_ends(name: str, help: str, outcomes: Mapping[str, str]) -> Metric:
    choice, read = _ends(outcomes)
    return counter(name, help, read, choice=choice)


def _count(name: str, help: str, kind: str) -> Metric:
    """Counts the events of one kind."""
    return counter(name, help, of_run(lambda present: present.status.totals.events.get(kind, 0)))


def _durations(name: str, help: str, of: str) -> Metric:
    return histogram(name, help, of_run(lambda present: present.status.totals.durations.get(of)))


def _events(present: Present) -> Mapping[str, float]:
    events = {label_of(kind): count for kind, count in present.status.totals.events.items()}
    return {kind: events.get(kind, 0) for kind in EVENTS.values}


def _open_decisions(present: Present) -> Mapping[str, float]:
    kinds = [each.kind for each in present.status.decisions]
    return {kind: kinds.count(kind) for kind in DECISIONS.values}


def _oldest_decisions(present: Present) -> Mapping[str, float]:
    now, opened = present.status.at, [(each.kind, each.since) for each in present.status.decisions]
    ages = {kind: [now - since for of, since in opened if of == kind] for kind in DECISIONS.values}
    return {kind: max([0.0, *each]) for kind, each in ages.items()}


def _open_recoveries(present: Present) -> float:
    return sum(change.done is None for change in present.facts.recoveries)


def _vms(present: Present) -> Mapping[str, float]:
    return {state: present.status.vms.get(state, 0) for state in VM_STATES.values}


def _nodes(present: Present) -> Mapping[str, float]:
    status = present.status
    return {"busy": status.nodes - status.idle_nodes, "idle": status.idle_nodes}


def _info(present: Present) -> Iterable[MetricSample]:
    return (MetricSample((present.run, present.query), 1),)


def _last_checkpoint_age(present: Present) -> float | None:
    return min((each.age for each in present.status.checkpoints), default=None)


def _last_checkpoint_bytes(present: Present) -> float | None:
    stored = present.status.checkpoints
    return min(stored, key=lambda each: each.age).bytes if stored else None


PUSHED = Choice("signal", ("metrics", "traces"))


def _pushes(value: Callable[[PushTotals], float]) -> Reading:
    return by_choice(lambda present: {what: value(each) for what, each in present.status.totals.pushes.items()})


def _dropped_traces(present: Present) -> float | None:
    pushes = present.status.totals.pushes
    return sum(each.dropped for each in pushes.values()) if pushes else None


PUSHES = (
    counter(
        "seep_pushes_total",
        "Pushes that a collector has taken; no series unless they are asked for.",
        _pushes(lambda each: each.delivered),
        choice=PUSHED,
    ),
    counter(
        "seep_push_failures_total",
        "Pushes that a collector has not taken, or not whole; no series unless they are asked for.",
        _pushes(lambda each: each.failed),
        choice=PUSHED,
    ),
    counter(
        "seep_push_dropped_traces_total",
        "Traces that were given up: a collector has refused them, or too many were waiting for it.",
        of_run(_dropped_traces),
    ),
)

PROGRESS = (
    gauge("seep_run_info", "The run and its query; always 1.", _info, told=("run", "query")),
    gauge("seep_run_phase", "1 for the phase that the run is in, 0 for others.", by_choice(_phase), choice=PHASES),
    gauge(
        "seep_run_uptime_seconds",
        "Time since the query began to run.",
        of_run(lambda present: max(0.0, present.status.at)),
        unit="seconds",
    ),
    counter(
        "seep_run_epochs_opened_total",
        "The last epoch that was opened at the sources; a run that continues goes on with the numbers.",
        of_run(lambda present: present.status.ticked),
    ),
    counter(
        "seep_run_epochs_committed_total",
        "The last epoch that all sinks have committed.",
        of_run(lambda present: present.status.committed),
    ),
    gauge(
        "seep_run_epochs_in_flight",
        "Epochs that are open: opened and not committed.",
        of_run(lambda present: present.status.ticked - present.status.committed),
    ),
    histogram(
        "seep_run_latency_seconds",
        "Time from the creation of an epoch's oldest row until a sink has committed the epoch.",
        of_run(lambda present: present.status.totals.latency),
    ),
    gauge(
        "seep_run_nodes",
        "Live nodes, by whether they host an instance.",
        by_choice(_nodes),
        choice=Choice("state", ("busy", "idle")),
    ),
    counter("seep_run_events_total", "Events of the run, by kind.", by_choice(_events), choice=EVENTS),
)

POOL = (
    gauge("seep_pool_vms", "VMs of the pool, by state.", by_choice(_vms), choice=VM_STATES),
    counter(
        "seep_pool_vm_seconds_total",
        "Cost of the pool: time that each VM has existed, added up.",
        of_run(lambda present: present.status.vm_seconds),
        unit="seconds",
    ),
    _count_ends(
        "seep_pool_vm_changes_total",
        "VMs that were ordered, have become ready, were lost, and were released.",
        {"vm ordered": "ordered", "vm ready": "ready", "vm lost": "lost", "vm released": "released"},
    ),
    _count("seep_pool_exhausted_total", "How often more VMs were needed than `pool.max_vms` allows.", "pool exhausted"),
)

CHECKPOINTS = (
    _count_ends(
        "seep_checkpoints_total",
        "Checkpoints in storage, by how they ended.",
        {"persisted": "stored", "savepoint": "savepoint", "checkpoint failed": "failed"},
    ),
    gauge(
        "seep_checkpoint_age_seconds",
        "Age of the newest checkpoint that this run has stored; no series before the first.",
        of_run(_last_checkpoint_age),
        unit="seconds",
    ),
    gauge(
        "seep_checkpoint_size_bytes",
        "State in the newest checkpoint that this run has stored, with the checkpoints that it builds on.",
        of_run(_last_checkpoint_bytes),
        unit="bytes",
    ),
    _durations("seep_checkpoint_duration_seconds", "Time to store a checkpoint.", "checkpoint"),
)

RECOVERIES = (
    _count("seep_nodes_lost_total", "Nodes that were given up.", "node lost"),
    gauge("seep_recoveries_open", "Instances of lost nodes whose recovery has not ended.", of_run(_open_recoveries)),
    _count_ends(
        "seep_recoveries_total",
        "Instances of lost nodes: those started on another node, and those that have caught up.",
        {"rebound": "begun", "recovered": "recovered"},
    ),
    _durations("seep_recovery_duration_seconds", "Time to recover an instance, from the loss of its node.", "recovery"),
    _count("seep_replicas_late_total", "How often holders of backups were too slow, and left out.", "replica late"),
    _count("seep_replicas_ready_total", "Lost instances whose state was on the new node already.", "stood ready"),
)

CHANGES = (
    gauge(
        "seep_decisions_open",
        "Decisions and requests that have not ended, by kind.",
        by_choice(_open_decisions),
        choice=DECISIONS,
    ),
    gauge(
        "seep_decisions_oldest_seconds",
        "Age of the oldest open decision or request, by kind; 0 if none is open.",
        by_choice(_oldest_decisions),
        choice=DECISIONS,
        unit="seconds",
    ),
    _count_ends(
        "seep_scalings_total",
        "Decisions to scale, by how they ended.",
        {
            "scaled out": "scaled_out",
            "scaled in": "scaled_in",
            "scaling aborted": "aborted",
            "scaling replaced": "replaced",
            "scaling refused": "refused",
            "scaling called off": "called_off",
            "scaling given up": "given_up",
        },
    ),
    _durations("seep_scaling_duration_seconds", "Time in which the slots of a scaling moved.", "scaling"),
    _count_ends(
        "seep_migrations_total",
        "Migrations that were asked for, by how they ended; `begun` has those that have begun.",
        {
            "migration begun": "begun",
            "migrated": "migrated",
            "migration cancelled": "cancelled",
            "migration refused": "refused",
        },
    ),
    _durations("seep_migration_duration_seconds", "Time of a migration, from its beginning.", "migration"),
    gauge(
        "seep_moves_open",
        "Announced moves of slots, the steps of all changes, that are not complete.",
        of_run(lambda present: len(present.facts.query.moves)),
    ),
    _count_ends(
        "seep_moves_total",
        "Moves of slots by stage.",
        {
            "move announced": "announced",
            "move sealed": "sealed",
            "move effective": "effective",
            "move complete": "complete",
        },
    ),
    gauge(
        "seep_splits_open",
        "Splits of backups that are being prepared.",
        of_run(lambda present: len(present.facts.query.splits)),
    ),
    _count_ends(
        "seep_splits_total",
        "Splits of backups by stage.",
        {"split begun": "begun", "split effective": "effective", "split aborted": "aborted"},
    ),
    _count_ends(
        "seep_balancings_total",
        "Rebalances, by how they ended.",
        {"balanced": "balanced", "balancing called off": "called_off", "balancing failed": "failed"},
    ),
    _durations("seep_balancing_duration_seconds", "Time of a rebalance.", "balancing"),
)
