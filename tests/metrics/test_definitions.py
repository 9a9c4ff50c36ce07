"""The definitions of metrics: names by Prometheus' rules, labels that are bounded, and values that are the record's."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from policies.observation import Change, Observation
from primitives.event import event_kinds
from primitives.graph import InstanceId
from seep.metrics.definitions import METRICS, samples
from seep.metrics.metric import Metric, MetricType, Present
from seep.metrics.of_run import label_of
from seep.protocol.events import NodeLost
from seep.protocol.manager.state import QueryPhase
from seep.record.events import CheckpointPersisted, InstanceRecovered, RunFinished, ScaledOut
from seep.record.histogram import BOUNDS, DurationCounts
from seep.record.reports import BulkTransfer, HandedPart, Resources
from seep.record.status import OpenDecision
from tests.metrics.kit import Script, series_of
from tests.record.kit import figures

#: Labels that Prometheus gives to all that it scrapes, or that have a meaning of their own.
TAKEN = {"instance", "job", "le", "quantile", "__name__"}
UNITS = ("seconds", "bytes", "ratio")
#: Units and forms of numbers that Prometheus' rules tell to avoid: base units only, and no type in a name.
AVOIDED = r"_(ms|millis|milliseconds|us|minutes|hours|kb|kib|mb|mib|gib|percent|count|sum|bucket|gauge|counter)(_|$)"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_keeps_to_the_rules_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"seep(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
    assert not re.search(AVOIDED, metric.name)
    base = metric.name.removesuffix("_total")
    found = next((unit for unit in UNITS if base.endswith(f"_{unit}")), "")
    assert metric.unit == found
    assert metric.type is not MetricType.HISTOGRAM or metric.unit == "seconds"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_labels_are_few_and_named_by_the_rules(metric: Metric) -> None:
    assert len(metric.labels) == len(set(metric.labels)) <= 3
    assert [each for each in metric.labels if not re.fullmatch(r"[a-z]+", each) or each in TAKEN] == []
    if metric.choice:
        assert len(metric.choice.values) == len(set(metric.choice.values)) <= 100
        assert [each for each in metric.choice.values if not re.fullmatch(r"[a-z_]+", each)] == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_help_text_is_a_sentence(metric: Metric) -> None:
    assert re.fullmatch(r"[A-Z0-9`].*\.", metric.help)
    assert "\n" not in metric.help


def test_no_two_metrics_have_the_same_name() -> None:
    names = [metric.name.removesuffix("_total") for metric in METRICS]
    assert len(names) == len(set(names)) > 50


def busy(instances: int = 3) -> Script:
    """A run in which everything has happened that a metric tells of."""
    script = Script()
    placed = [script.add() for _ in range(instances)]
    for who in placed:
        script.work(who, 10, latencies=(0.02,), handed=(HandedPart(3, 100, 50, 7),), watermark=5, state_bytes=40)
        script.work(who, 20, watermark=7)
    record = script.it.record
    script.it.positions["numbers"] = {0: (40, 40, 2), 1: (10, 10, 3)}
    script.it.take(
        "n9",
        script.at,
        figures("numbers", watermark=9),
        transfers=(BulkTransfer("n1", "warm-up", 30), BulkTransfer("n2", "warm-up", 12)),
        resources=Resources(rss=70, read=1, written=2, received=3, sent=4),
    )
    script.nodes.append("n9")
    record.tell(NodeLost(node="n7"))
    who = InstanceId("counter", 0)
    record.tell(InstanceRecovered(subject=who, seconds=0.4, detected=0.1, restored=0.1, replayed=0.2))
    record.tell(ScaledOut(operator="counter", before=1, after=2, seconds=3.0, waited=0.0, latency_peak=0.1))
    record.tell(CheckpointPersisted(id=1, epoch=4, seconds=0.5, bytes=600))
    return script


def whole(script: Script) -> Present:
    """Its present with all that comes from outside the record."""
    decision = OpenDecision("scaling", "counter", 1.0, False, "")
    facts = script.facts(vms={"warm": 2}, decisions=[decision], vm_seconds=12.5)
    observation = Observation(at=1.0, seconds=1.0, instances={}, offered={"numbers": 50.0}, behind={"numbers": 8.0})
    groups = dict.fromkeys(facts.query.placement, ("n1", "n2"))
    query = replace(facts.query, groups=groups, ticked=9)
    change = Change("counter", 0.5, 1, 1)
    present = Present.of("r1", "words", replace(facts, observation=observation, query=query, recoveries=(change,)))
    assert present is not None
    return present


def test_metrics_have_the_values_of_the_record() -> None:
    found = series_of(whole(busy()))
    assert {
        name: found[name, labels]
        for name, labels in [
            ("seep_run_info", ("r1", "words")),
            ("seep_run_nodes", ("busy",)),
            ("seep_source_rows_read_total", ("numbers",)),
            ("seep_source_shed_rows_total", ("numbers",)),
            ("seep_source_rows_behind", ("numbers",)),
            ("seep_source_offered_rows_per_second", ("numbers",)),
            ("seep_operator_instances", ("counter",)),
            ("seep_operator_rows_in_total", ("counter",)),
            ("seep_operator_late_rows_total", ("counter",)),
            ("seep_operator_dead_letter_rows_total", ("counter",)),
            ("seep_operator_handed_over_bytes_total", ("counter",)),
            ("seep_operator_prefetched_bytes_total", ("counter",)),
            ("seep_operator_held_back_rows_total", ("counter",)),
            ("seep_instance_rows_in_total", ("counter", "1")),
            ("seep_instance_backup_holders", ("counter", "1")),
            ("seep_instance_unsafe_epochs", ("counter", "1")),
            ("seep_node_resident_memory_bytes", ("n9",)),
            ("seep_node_network_sent_bytes_total", ("n9",)),
            ("seep_node_bulk_transfer_bytes", ("n9", "warm_up")),
            ("seep_node_cpu_seconds_total", ("n2.0",)),
            ("seep_pool_vms", ("warm",)),
            ("seep_pool_vm_seconds_total", ()),
            ("seep_checkpoints_total", ("stored",)),
            ("seep_checkpoint_size_bytes", ()),
            ("seep_nodes_lost_total", ()),
            ("seep_recoveries_open", ()),
            ("seep_recoveries_total", ("recovered",)),
            ("seep_scalings_total", ("scaled_out",)),
            ("seep_decisions_open", ("scaling",)),
            ("seep_decisions_oldest_seconds", ("scaling",)),
            ("seep_run_events_total", ("node_lost",)),
        ]
    } == {
        "seep_run_info": 1,
        "seep_run_nodes": 3,
        "seep_source_rows_read_total": 50,
        "seep_source_shed_rows_total": 5,
        "seep_source_rows_behind": 8.0,
        "seep_source_offered_rows_per_second": 50.0,
        "seep_operator_instances": 3,
        "seep_operator_rows_in_total": 90,
        "seep_operator_late_rows_total": 45,
        "seep_operator_dead_letter_rows_total": 30,
        "seep_operator_handed_over_bytes_total": 300,
        "seep_operator_prefetched_bytes_total": 150,
        "seep_operator_held_back_rows_total": 21,
        "seep_instance_rows_in_total": 30,
        "seep_instance_backup_holders": 2,
        "seep_instance_unsafe_epochs": 9,
        "seep_node_resident_memory_bytes": 70,
        "seep_node_network_sent_bytes_total": 4,
        "seep_node_bulk_transfer_bytes": 42,
        "seep_node_cpu_seconds_total": 6.0,
        "seep_pool_vms": 2,
        "seep_pool_vm_seconds_total": 12.5,
        "seep_checkpoints_total": 1,
        "seep_checkpoint_size_bytes": 600,
        "seep_nodes_lost_total": 1,
        "seep_recoveries_open": 1,
        "seep_recoveries_total": 1,
        "seep_scalings_total": 1,
        "seep_decisions_open": 1,
        "seep_decisions_oldest_seconds": 5.0,
        "seep_run_events_total": 1,
    }


def test_a_histogram_has_all_durations_in_buckets_that_grow() -> None:
    latency = series_of(whole(busy()))["seep_run_latency_seconds", ()]
    assert isinstance(latency, DurationCounts)
    assert (latency.number, latency.total) == (3, pytest.approx(0.06))
    assert dict(zip(BOUNDS, latency.up_to, strict=True)) == {bound: 3 if bound > 0.02 else 0 for bound in BOUNDS}
    for name, seconds in {"recovery": 0.4, "scaling": 3.0, "checkpoint": 0.5}.items():
        duration = series_of(whole(busy()))[f"seep_{name}_duration_seconds", ()]
        assert isinstance(duration, DurationCounts)
        assert (duration.number, duration.total) == (1, seconds)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_at_most_a_series_for_each_that_there_is(metric: Metric) -> None:
    present = whole(busy(instances=5))
    found = list(metric.read(present))
    assert len(found) <= metric.most_series(present)
    assert {len(each.labels) for each in found} <= {len(metric.labels)}
    if metric.choice:
        place = metric.labels.index(metric.choice.label)
        assert {each.labels[place] for each in found} <= set(metric.choice.values)
    assert all(isinstance(each.value, DurationCounts) or math.isfinite(each.value) for each in found)


#: What a run has only at times, or only with slots that are counted.
SELDOM = {"seep_operator_hottest_slot_ratio", "seep_operator_imbalance_ratio"}


def test_each_metric_has_samples_in_a_run_where_everything_happens() -> None:
    script = busy()
    script.it.record.pushed("traces", failed=True, dropped=2)
    assert {metric.name for metric in METRICS} - {metric.name for metric, _ in samples(whole(script))} <= SELDOM


def test_the_number_of_all_series_grows_with_instances_and_nodes_alone() -> None:
    few, many = whole(busy(instances=2)), whole(busy(instances=40))
    per_instance, per_node = 14, 13
    assert len(series_of(many)) - len(series_of(few)) <= 38 * (per_instance + per_node)


def test_series_of_retired_instances_and_lost_nodes_vanish() -> None:
    script = Script()
    stays, goes = script.add(), script.add()
    for who in (stays, goes):
        script.work(who, 5)
    script.retire(goes, 1)
    script.lose(stays)
    labels = {each for _, of in series_of(script.present()) for each in of}
    assert "n0.1" in labels, "the placement says where the instance is now"
    assert labels & {"n0.0", "n1.0"} == set()
    assert {of for name, of in script.series() if name.startswith("seep_instance_")} == {
        ("counter", "0"),
        ("counter", "0", "n0.1"),
    }


def test_an_instance_that_two_nodes_report_is_told_of_by_the_one_on_which_it_is_placed() -> None:
    """The other one was given up, and does not know it yet."""
    script = Script()
    who = script.add()
    for incarnation, nbytes in ((9, 111), (10, 222)):
        script._seat(who, incarnation)
        script.work(who, 1, state_bytes=nbytes)
    assert script.series()["seep_instance_state_bytes", ("counter", "0")] == 222


def test_no_label_has_a_key_a_path_or_a_message() -> None:
    told = {label for metric in METRICS for label in metric.labels}
    assert told == {"run", "query", "phase", "kind", "state", "outcome", "operator", "index", "node", "signal"}


def test_the_phase_is_that_of_the_run_and_its_end_is_told() -> None:
    script = busy()
    query = replace(script.facts().query, phase=QueryPhase.RUNNING)

    def phases() -> dict[str, float | DurationCounts]:
        present = Present.of("r1", "words", replace(script.facts(), query=query))
        assert present is not None
        return {of[0]: value for (name, of), value in series_of(present).items() if name == "seep_run_phase"}

    assert [phase for phase, value in phases().items() if value] == ["running"]
    script.it.record.tell(RunFinished(why="at epoch 9"))
    assert [phase for phase, value in phases().items() if value] == ["finished"]


def test_every_kind_of_event_is_counted() -> None:
    ours = ("seep.protocol.events", "seep.record.events", "vmpool.events")
    kinds = {label_of(kind) for kind, each in event_kinds().items() if each.__module__ in ours}
    assert {of[0] for name, of in series_of(whole(busy())) if name == "seep_run_events_total"} == kinds
    assert len(kinds) > 60


def test_every_outcome_is_an_event_that_there_is() -> None:
    outcomes = [metric for metric in METRICS if metric.choice and metric.choice.label == "outcome"]
    told = Script().present()
    counted = dict.fromkeys(event_kinds(), 1)
    totals = replace(told.status.totals, events=counted)
    present = replace(told, status=replace(told.status, totals=totals))
    assert {value for metric in outcomes for _, value in metric.read(present)} == {1}


def test_without_a_status_there_is_nothing_to_tell() -> None:
    assert Present.of("r1", "words", replace(Script().facts(), status=None)) is None
