"""What is wrong with a run is said in sentences, until it is over; a healthy run has none."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from policies.scaling.detector import Cause
from primitives.event import Event
from primitives.graph import InstanceId
from seep.logs.levels import EVENT_LEVELS
from seep.protocol.events import NodeLost, Rebound, ReplicaLate, SplitAborted
from seep.record import events as told
from seep.record.status import InstanceStatus, Status
from seep.reports.health import RELEVANT, problems
from vmpool.events import PoolExhausted, ProviderFailed, VMLost, VMReady

COUNTER, MAP = InstanceId("counter", 0), InstanceId("map", 0)


def instance(name: str = "counter[0]#0", **more: Any) -> InstanceStatus:
    given = {"operator": name.partition("[")[0], "node": "n1", "phase": "running", "epoch": 98} | more
    figures = {"rows_in": 0, "rows_out": 0, "cpu": 0.0, "utilisation": 0.3, "waiting": 0}
    return InstanceStatus(name=name, **({"outbox_bytes": 0, "state_bytes": 0, "counters": {}} | figures | given))


HEALTHY = Status(
    100.0,
    100,
    98,
    10_000,
    1000.0,
    {"p50": 0.03},
    (instance(), instance("map[0]#0")),
    2,
    0,
    offered=1000.0,
    window=16,
    since_commit=0.05,
)


def wrong(*events: Event, **changes: Any) -> list[str]:
    return list(problems(replace(HEALTHY, **changes), events))


def test_a_run_without_trouble_is_healthy() -> None:
    usual = [
        told.NodeJoined(node="n1", at=1.0),
        told.CheckpointPersisted(id=1, epoch=50, seconds=0.1, at=50.0),
        told.ScaledOut(operator="counter", before=1, after=2, seconds=1.0, waited=0.0, latency_peak=0.1, at=60.0),
    ]
    assert wrong(*usual) == []


def test_a_run_that_commits_nothing_is_stalled_and_the_slowest_instance_is_named() -> None:
    slow = instance("map[0]#0", epoch=90, node="n2")
    assert wrong(since_commit=12.0, instances=(instance(), slow), committed=90) == [
        "no epoch was committed for 12.0 s: 10 epochs in flight; the last one is map[0]#0 on n2, at epoch 90"
    ]


def test_a_run_with_long_epochs_is_not_stalled_while_one_is_open() -> None:
    assert wrong(since_commit=9.0, ticked=99, committed=98) == []


def test_a_full_window_makes_sources_wait() -> None:
    assert wrong(ticked=114, instances=()) == ["16 epochs in flight, as many as may be, so sources wait"]


def test_full_instances_are_counted_and_the_fullest_are_named() -> None:
    full = tuple(instance(f"counter[{at}]#0", utilisation=0.75 + at / 100) for at in range(12))
    assert wrong(instances=full) == [
        "12 full instances: counter[11]#0 on n1 is busy 86%, counter[10]#0 on n1 is busy 85%, "
        "counter[9]#0 on n1 is busy 84% and 9 more"
    ]
    assert wrong(instances=(full[0],)) == ["1 full instance: counter[0]#0 on n1 is busy 75%"]
    assert wrong(instances=(full[0],), full=0.8) == []


def test_instances_without_state_are_named() -> None:
    restoring = instance("counter[0]#1", phase="restoring")
    assert wrong(instances=(restoring,)) == ["1 instance without state yet: counter[0]#1"]


def test_sources_that_read_less_than_is_due_fall_behind() -> None:
    assert wrong(offered=2500.0) == ["sources fall behind: 2,500 rows/s are due, and 1,000 rows/s are read"]
    assert wrong(offered=1050.0) == []


LOST = NodeLost(node="n2", why="its process has ended", at=98.0)


def test_a_lost_node_is_named_until_some_time_after_all_its_instances_have_recovered() -> None:
    said = "node n2 was lost (2.00 s ago): its process has ended"
    moved = [Rebound(subject=each, to="n3", lost="n2", at=98.1) for each in (COUNTER, MAP)]
    back = [
        told.InstanceRecovered(subject=each, seconds=1.0, detected=0.5, restored=0.3, replayed=0.2, at=99.0)
        for each in (COUNTER, MAP)
    ]
    assert wrong(LOST) == [said]
    assert wrong(LOST, *moved) == [f"{said}; 2 instances not recovered yet: counter[0], map[0]"]
    assert wrong(LOST, *moved, back[0]) == [f"{said}; 1 instance not recovered yet: map[0]"]
    assert wrong(LOST, *moved, *back) == [f"{said}; 2 instances recovered"]
    assert wrong(LOST, *moved, *back, at=200.0) == []
    (still,) = wrong(LOST, *moved, back[0], at=1000.0)
    assert "1 instance not recovered yet: map[0]" in still


def test_an_earlier_recovery_is_not_taken_for_that_of_a_later_loss() -> None:
    back = told.InstanceRecovered(subject=COUNTER, seconds=1.0, detected=0.5, restored=0.3, replayed=0.2, at=90.0)
    (said,) = wrong(back, LOST, Rebound(subject=COUNTER, to="n3", lost="n2", at=98.1))
    assert said.endswith("; 1 instance not recovered yet: counter[0]")


SCALED = told.ScaledOut(operator="counter", before=1, after=2, seconds=1.0, waited=0.0, latency_peak=0.1, at=99.0)
BALANCED = told.Balanced(operator="counter", seconds=1.0, before=2.0, after=1.1, slots=9, bytes=1, at=99.0)
STORED = told.CheckpointPersisted(id=7, epoch=97, seconds=0.1, at=99.0)
READY = VMReady(vm="vm2", nodes=("n5",), seconds=3.0, at=99.0)
SAID = [
    (told.RunFailed(why="boom", at=98.0), "the run has failed (2.00 s ago): boom", None),
    (told.CheckpointFailed(why="disk", at=98.0), "the last checkpoint could not be stored (2.00 s ago): disk", STORED),
    (told.CompactionFailed(why="disk", at=98.0), "checkpoints could not be compacted (2.00 s ago): disk", STORED),
    (told.CleaningFailed(why="disk", at=98.0), "old checkpoints could not be removed (2.00 s ago): disk", None),
    (told.ScalingFailed(why="bug", at=98.0), "the policy or its decision failed (2.00 s ago): bug", None),
    (
        told.ScalingRefused(operator="counter", why="no node", at=98.0),
        "a decision to scale counter was refused (2.00 s ago): no node",
        SCALED,
    ),
    (
        told.ScalingAborted(operator="counter", why="lost", at=98.0),
        "a decision to scale counter was aborted and is tried again (2.00 s ago): lost",
        SCALED,
    ),
    (
        told.ScalingGivenUp(operator="counter", why="slow", at=98.0),
        "a decision to scale counter was given up (2.00 s ago): slow",
        SCALED,
    ),
    (
        told.MigrationRefused(operator="counter", why="busy", at=98.0),
        "a migration of counter was refused (2.00 s ago): 0 of 0 slots in 0 steps: busy",
        SCALED,
    ),
    (
        told.BalancingFailed(operator="counter", why="bug", at=98.0),
        "balancing counter failed (2.00 s ago): bug",
        BALANCED,
    ),
    (
        told.PolicySlow(policy="mine", seconds=9.0, at=98.0),
        "the policy is slow (2.00 s ago): policy mine has not decided yet, and is not asked again until it has",
        told.ScalingOut(operator="counter", before=1, after=2, why="full", at=99.0),
    ),
    (
        SplitAborted(subject=COUNTER, plan=3, at=98.0),
        "a split of counter was aborted (2.00 s ago): plan 3",
        SCALED,
    ),
    (
        told.WaitingForVMs(operator="counter", needed=2, why="scaling", at=98.0),
        "a change of counter waits for VMs (2.00 s ago): 2 needed: scaling",
        READY,
    ),
    (
        PoolExhausted(missing=1, most=4, states="4 used", at=98.0),
        "the pool is exhausted (2.00 s ago): 1 more VMs are needed, and max_vms is 4 (4 used): "
        "raise pool.max_vms, or lower pool.reserve or the bounds of operators",
        READY,
    ),
    (ProviderFailed(why="quota", at=98.0), "the provider of VMs failed (2.00 s ago): quota", READY),
    (VMLost(vm="vm1", why="gone", seconds=9.0, at=98.0), "a VM was lost (2.00 s ago): vm1: gone", None),
    (
        told.NodeNotice(node="n2", left=30.0, at=98.0),
        "node n2 will be taken away (2.00 s ago): its VM will be taken away in 30 s",
        told.Drained(node="n2", at=99.0),
    ),
    (
        told.DrainGivenUp(node="n2", why="no room", at=98.0),
        "the drain of node n2 was given up (2.00 s ago): no room",
        told.Drained(node="n2", at=99.0),
    ),
    (told.NodeStopped(node="n2", at=98.0), "node n2 is frozen (2.00 s ago)", told.NodeContinued(node="n2", at=99.0)),
    (
        ReplicaLate(subject=COUNTER, nodes=("n3",), at=98.0),
        "backups of counter[0] are late (2.00 s ago): on n3: left out",
        None,
    ),
    (
        told.BottleneckFound(subject=COUNTER, cause=Cause.CPU, why="90 %", at=98.0),
        f"counter[0] is a bottleneck (2.00 s ago): {Cause.CPU}: 90 %",
        SCALED,
    ),
    (
        told.HotSlot(subject=COUNTER, slot=3, share=0.6, why="one key has 60 %", at=98.0),
        "counter[0] has a hot slot (2.00 s ago): one key has 60 %",
        BALANCED,
    ),
    (
        told.RefusedMessage(sender="n9", why="no token", at=98.0),
        "a message was refused (2.00 s ago): from n9: no token",
        None,
    ),
    (
        told.StrikeFailed(strike="kill:map@1s", why="gone", at=98.0),
        "a strike could not be dealt (2.00 s ago): kill:map@1s: gone",
        None,
    ),
]


@pytest.mark.parametrize(("event", "said", "end"), SAID, ids=[event.kind for event, _, _ in SAID])
def test_a_failure_is_said_until_a_later_event_ends_it_or_it_is_old(event: Event, said: str, end: Event | None) -> None:
    assert wrong(event) == [said]
    assert event.kind in RELEVANT
    if end is not None:
        assert end.kind in RELEVANT
        assert wrong(event, end) == []
        assert wrong(end.dated(97.0), event) == [said], "what was before it does not end it"
    stays = event.kind in ("failed", "checkpoint failed")
    assert bool(wrong(event, at=100_000.0)) == stays


def test_the_success_of_another_operator_or_node_does_not_end_a_failure() -> None:
    refused = told.ScalingRefused(operator="map", why="no node", at=98.0)
    assert wrong(refused, SCALED) == ["a decision to scale map was refused (2.00 s ago): no node"]
    frozen = told.NodeStopped(node="n2", at=98.0)
    assert wrong(frozen, told.NodeContinued(node="n3", at=99.0)) == ["node n2 is frozen (2.00 s ago)"]


def test_the_same_failure_many_times_is_one_sentence_about_the_newest() -> None:
    failures = [told.CheckpointFailed(why=f"attempt {at}", at=90.0 + at) for at in range(8)]
    assert wrong(*failures) == ["the last checkpoint could not be stored (3.00 s ago): attempt 7"]


def test_every_event_that_is_logged_as_a_warning_or_an_error_is_known() -> None:
    loud = {kind for kind, level in EVENT_LEVELS.items() if level >= logging.WARNING}
    assert loud - {*RELEVANT} == {"killed"}, "a node that was killed is lost, too"
    assert {event.kind for event, _, _ in SAID} == (loud | {"waiting for VMs"}) - {"killed", "node lost"}
