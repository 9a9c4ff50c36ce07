"""Metrics of the parts of a run: sources, operators, instances and nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from primitives.graph import InstanceId
from seep.metrics.metric import (
    Choice,
    Metric,
    MetricSample,
    Present,
    Reading,
    Scope,
    by_instance,
    by_instance_status,
    by_node,
    by_operator,
    counter,
    gauge,
)
from seep.protocol.bulk import BulkKind
from seep.record.status import NodeStatus, OperatorStatus
from seep.record.totals import HandedTotals, InstanceTotals, SourceTotals

TRANSFERS = Choice("kind", tuple(kind.value.replace("-", "_") for kind in BulkKind))


def _statuses(value: Callable[[OperatorStatus], float | None]) -> Reading:
    return by_operator(lambda present: {each.name: value(each) for each in present.operators})


def _totals(value: Callable[[InstanceTotals], float]) -> Reading:
    return by_operator(lambda present: {o: value(each) for o, each in present.status.totals.operators.items()})


def _handed(value: Callable[[HandedTotals], float]) -> Reading:
    return by_operator(lambda present: {o: value(each) for o, each in present.status.totals.handed.items()})


def _totals_of_instances(value: Callable[[InstanceTotals], float]) -> Reading:
    def read(present: Present, who: InstanceId) -> float | None:
        totals = present.status.totals.instances.get(who.operator, {}).get(who.index)
        return None if totals is None else value(totals)

    return by_instance(read)


def _sources(value: Callable[[SourceTotals], float]) -> Reading:
    return by_operator(lambda present: {o: value(each) for o, each in present.status.totals.sources.items()})


def _observed(of: str) -> Reading:
    """Reads a figure of the last observation, by source."""
    return by_operator(lambda present: getattr(present.facts.observation, of, {}))


def _nodes_of_instances(present: Present) -> Iterable[MetricSample]:
    placement = present.facts.query.placement
    return (MetricSample((who.operator, str(who.index), placement[who].node), 1) for who in sorted(placement))


def _epochs_behind(present: Present, who: InstanceId) -> float | None:
    status = present.instances.get(who)
    return None if status is None else max(0, present.status.ticked - status.epoch)


def _epochs_unsafe(present: Present, who: InstanceId) -> float:
    query = present.facts.query
    return max(0, query.ticked - query.safe[who])


def _holders(present: Present, who: InstanceId) -> float | None:
    group = present.facts.query.groups.get(who)
    return None if group is None else len(group)


def _transfers(present: Present) -> Iterable[MetricSample]:
    for node in present.nodes:
        for kind in TRANSFERS.values:
            nbytes = sum(each.nbytes for each in node.transfers if each.kind.replace("-", "_") == kind)
            yield MetricSample((node.name, kind), nbytes)


SOURCES = (
    counter(
        "seep_source_rows_read_total",
        "Rows that a source has read, each counted once even after failures.",
        _sources(lambda totals: totals.read),
        scope=Scope.OPERATOR,
    ),
    counter(
        "seep_source_shed_rows_total",
        "Rows that a source has skipped because they were overdue.",
        _sources(lambda totals: totals.shed),
        scope=Scope.OPERATOR,
    ),
    gauge(
        "seep_source_rows_behind",
        "Rows that are due by a source's rate and not read yet; 0 without a rate.",
        _observed("behind"),
        scope=Scope.OPERATOR,
    ),
    gauge(
        "seep_source_offered_rows_per_second",
        "Rows that are due in a second by a source's rate, or that it reads without one.",
        _observed("offered"),
        scope=Scope.OPERATOR,
    ),
)

OPERATORS = (
    gauge(
        "seep_operator_instances",
        "Instances that report.",
        _statuses(lambda each: each.instances),
        scope=Scope.OPERATOR,
    ),
    counter(
        "seep_operator_rows_in_total",
        "Rows that an operator has received, by all its instances, past ones too; a row that is processed again after "
        "a failure counts again.",
        _totals(lambda totals: totals.rows_in),
        scope=Scope.OPERATOR,
    ),
    counter(
        "seep_operator_rows_out_total",
        "Rows that an operator has put out, counted in the same way.",
        _totals(lambda totals: totals.rows_out),
        scope=Scope.OPERATOR,
    ),
    counter(
        "seep_operator_late_rows_total",
        "Late rows, counted in the same way.",
        _totals(lambda totals: totals.late),
        scope=Scope.OPERATOR,
    ),
    counter(
        "seep_operator_dead_letter_rows_total",
        "Rows that were put aside as dead letters, counted in the same way.",
        _totals(lambda totals: totals.dead_letters),
        scope=Scope.OPERATOR,
    ),
    counter(
        "seep_operator_cpu_seconds_total",
        "CPU time of the threads of an operator's instances, past ones too.",
        _totals(lambda totals: totals.cpu),
        scope=Scope.OPERATOR,
        unit="seconds",
    ),
    gauge(
        "seep_operator_imbalance_ratio",
        "Input of the fullest instance over the mean of the operator's instances; no series for one instance.",
        by_operator(lambda present: present.status.imbalance),
        scope=Scope.OPERATOR,
        unit="ratio",
    ),
    gauge(
        "seep_operator_hottest_slot_ratio",
        "Share of the operator's rows that its hottest slot has; no series unless rows are counted by slot.",
        _statuses(lambda each: None if each.hottest is None else each.hottest.share),
        scope=Scope.OPERATOR,
        unit="ratio",
    ),
    counter(
        "seep_operator_handed_over_bytes_total",
        "State that was handed over to an operator's instances between two epochs.",
        _handed(lambda totals: totals.bytes),
        scope=Scope.OPERATOR,
        unit="bytes",
    ),
    counter(
        "seep_operator_prefetched_bytes_total",
        "Backups that new owners have fetched ahead of handovers.",
        _handed(lambda totals: totals.bytes_ahead),
        scope=Scope.OPERATOR,
        unit="bytes",
    ),
    counter(
        "seep_operator_held_back_rows_total",
        "Rows that waited for the state of their slots during handovers.",
        _handed(lambda totals: totals.held_back),
        scope=Scope.OPERATOR,
    ),
)

INSTANCES = (
    gauge(
        "seep_instance_info",
        "The node that an instance is placed on; always 1.",
        _nodes_of_instances,
        scope=Scope.INSTANCE,
        told=("node",),
    ),
    counter(
        "seep_instance_rows_in_total",
        "Rows that an instance has received, over all its incarnations.",
        _totals_of_instances(lambda totals: totals.rows_in),
        scope=Scope.INSTANCE,
    ),
    counter(
        "seep_instance_rows_out_total",
        "Rows that an instance has put out, over all its incarnations.",
        _totals_of_instances(lambda totals: totals.rows_out),
        scope=Scope.INSTANCE,
    ),
    counter(
        "seep_instance_cpu_seconds_total",
        "CPU time of an instance's thread, over all its incarnations.",
        _totals_of_instances(lambda totals: totals.cpu),
        scope=Scope.INSTANCE,
        unit="seconds",
    ),
    gauge(
        "seep_instance_utilisation_ratio",
        "Share of its CPU share that an instance uses.",
        by_instance_status(lambda each: each.utilisation),
        scope=Scope.INSTANCE,
        unit="ratio",
    ),
    gauge(
        "seep_instance_state_bytes",
        "Processing state of an instance.",
        by_instance_status(lambda each: each.state_bytes),
        scope=Scope.INSTANCE,
        unit="bytes",
    ),
    gauge(
        "seep_instance_buffer_bytes",
        "Buffer state of an instance: output that might have to be sent again.",
        by_instance_status(lambda each: each.outbox_bytes),
        scope=Scope.INSTANCE,
        unit="bytes",
    ),
    gauge(
        "seep_instance_waiting_messages",
        "Messages in the mailbox of an instance.",
        by_instance_status(lambda each: each.waiting),
        scope=Scope.INSTANCE,
    ),
    gauge(
        "seep_instance_unsent_epochs",
        "Epochs of output that the slowest receiver of an instance has not fetched: back-pressure from downstream.",
        by_instance_status(lambda each: each.unsent),
        scope=Scope.INSTANCE,
    ),
    gauge(
        "seep_instance_output_age_seconds",
        "Age of the oldest row of an instance's last epoch when it was put out; where it grows, time is lost.",
        by_instance_status(lambda each: each.age),
        scope=Scope.INSTANCE,
        unit="seconds",
    ),
    gauge(
        "seep_instance_watermark_lag",
        "Distance of an instance's watermark from the highest of the sources, in the unit of the event time.",
        by_instance_status(lambda each: each.watermark_behind),
        scope=Scope.INSTANCE,
    ),
    gauge(
        "seep_instance_epochs_behind",
        "Opened epochs that an instance has not processed.",
        by_instance(_epochs_behind),
        scope=Scope.INSTANCE,
    ),
    gauge(
        "seep_instance_unsafe_epochs",
        "Opened epochs that would be replayed if the instance were lost now.",
        by_instance(_epochs_unsafe),
        scope=Scope.INSTANCE,
    ),
    gauge(
        "seep_instance_backup_holders",
        "Nodes that are chosen to hold the backups of an instance; no series if none are chosen.",
        by_instance(_holders),
        scope=Scope.INSTANCE,
    ),
)


def _of_node(name: str, help: str, value: Callable[[NodeStatus], float], unit: str = "bytes") -> Metric:
    make = counter if name.endswith("_total") else gauge
    return make(name, help, by_node(value), scope=Scope.NODE, unit=unit)


NODES = (
    _of_node("seep_node_cpu_seconds_total", "CPU time of a node's process.", lambda node: node.cpu_seconds, "seconds"),
    _of_node("seep_node_cores", "Cores that a node may use.", lambda node: node.cores, ""),
    _of_node("seep_node_resident_memory_bytes", "Memory of a node's process.", lambda node: node.resources.rss),
    _of_node("seep_node_state_bytes", "State and buffers of the instances on a node.", lambda node: node.state_bytes),
    _of_node(
        "seep_node_disk_read_bytes_total", "Bytes that a node has read from disks.", lambda node: node.resources.read
    ),
    _of_node(
        "seep_node_disk_written_bytes_total",
        "Bytes that a node has written to disks.",
        lambda node: node.resources.written,
    ),
    _of_node(
        "seep_node_network_received_bytes_total",
        "Bytes that the machine of a node has received from other machines, for all its processes.",
        lambda node: node.resources.received,
    ),
    _of_node(
        "seep_node_network_sent_bytes_total",
        "Bytes that the machine of a node has sent to other machines, for all its processes.",
        lambda node: node.resources.sent,
    ),
    gauge(
        "seep_node_bulk_transfer_bytes",
        "State that a node is sending, by purpose.",
        _transfers,
        scope=Scope.NODE,
        choice=TRANSFERS,
        unit="bytes",
    ),
)
