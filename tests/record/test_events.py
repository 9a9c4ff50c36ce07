"""Every kind of event has one class, which tells in words and as JSON what its fields say."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

import seep.protocol.events as protocol
import seep.record.events as record
import vmpool.events as pool
from policies.scaling.detector import Cause
from primitives.event import Event, event_kinds
from primitives.graph import InstanceId
from seep.channels.wire import decode, encode

COUNTER = InstanceId("counter", 2)
MOVED: dict[str, Any] = {"operator": "counter", "seconds": 1.5, "steps": 2, "steps_done": 2, "slots_moved": 1024}

#: One of each kind, and what it says.
EXAMPLES: list[tuple[Event, str]] = [
    (protocol.NodeLost(node="n1", why="silent for 3 s"), "node lost n1 silent for 3 s"),
    (protocol.NodeLeaving(node="n1"), "node leaving n1"),
    (protocol.Rebound(subject=COUNTER, to="n2"), "rebound counter[2] to n2"),
    (protocol.StateRestored(subject=COUNTER, epoch=7), "restored counter[2] at epoch 7"),
    (protocol.StoodReady(subject=COUNTER, epoch=7), "stood ready counter[2] at epoch 7"),
    (protocol.Retired(subject=COUNTER), "retired counter[2]"),
    (protocol.ReplicaLate(subject=COUNTER, nodes=("n1", "n2")), "replica late counter[2] on n1, n2: left out"),
    (
        protocol.MoveAnnounced(operator="counter", plan=3, first=9, slots=512, view=12),
        "move announced counter plan 3 at epoch 9: 512 slots",
    ),
    (protocol.MoveSealed(operator="counter", plan=3, view=13), "move sealed counter plan 3 by view 13"),
    (
        protocol.MoveEffective(operator="counter", plan=3, first=9),
        "move effective counter plan 3, epoch 9 is open",
    ),
    (
        protocol.StateTakenIn(subject=COUNTER, origin=InstanceId("counter", 0), first=9, bytes=2048),
        "state taken in counter[2] 2,048 bytes from counter[0] at epoch 9",
    ),
    (protocol.MoveComplete(operator="counter", plan=3), "move complete counter plan 3"),
    (protocol.SplitBegun(subject=COUNTER, plan=3, shares=2), "split begun counter[2] plan 3 into 2"),
    (protocol.SplitEffective(subject=COUNTER, plan=3, first=8), "split effective counter[2] plan 3 from epoch 8"),
    (protocol.SplitAborted(subject=COUNTER, plan=3), "split aborted counter[2] plan 3"),
    (pool.VMOrdered(vm="vm-1", provider="aws"), "vm ordered vm-1: from provider aws"),
    (pool.VMReady(vm="vm-1", nodes=("n1", "n2"), seconds=60.0), "vm ready in 60.000 s vm-1: with n1, n2"),
    (pool.VMLost(vm="vm-1", why="it is gone", seconds=61.0), "vm lost in 61.000 s vm-1: it is gone"),
    (pool.VMReleased(vm="vm-1", why="idle", seconds=62.0), "vm released in 62.000 s vm-1: idle"),
    (pool.PoolResized(before=1, after=2), "pool resized 2 warm VMs are kept, 1 were"),
    (
        pool.PoolExhausted(missing=1, most=4, states="4 used"),
        "pool exhausted 1 more VMs are needed, and max_vms is 4 (4 used): raise pool.max_vms, or lower pool.reserve "
        "or the bounds of operators",
    ),
    (pool.ProviderFailed(vm="vm-1", why="no room"), "provider failed vm-1: no room"),
    (record.NodeJoined(node="n1"), "node joined n1"),
    (record.NodeNotice(node="n1", left=120.0), "notice n1 its VM will be taken away in 120 s"),
    (record.Drained(node="n1"), "drained n1"),
    (record.DrainGivenUp(node="n1", why="no VM came"), "drain given up n1 no VM came"),
    (record.NodeKilled(node="n1", hosted=(COUNTER,)), "killed n1 with counter[2]"),
    (record.NodeStopped(node="n1"), "stopped n1"),
    (record.NodeContinued(node="n1"), "continued n1"),
    (record.StrikeFailed(strike="kill x at 1 s", why="it is gone"), "strike failed kill x at 1 s: it is gone"),
    (record.RefusedMessage(node="n1", sender="n2", why="no such type"), "refused message n1 from n2: no such type"),
    (record.RunFinished(why="at epoch 9"), "finished at epoch 9"),
    (record.RunHalted(why="as somebody asked for"), "halted as somebody asked for"),
    (record.RunFailed(why="out of memory"), "failed out of memory"),
    (
        record.InstanceRecovered(subject=COUNTER, seconds=0.5, detected=0.1, restored=0.15, replayed=0.25),
        "recovered counter[2] in 0.500 s (detected 0.100, restored 0.150, replayed 0.250)",
    ),
    (
        record.BottleneckFound(subject=COUNTER, cause=Cause.CPU, why="90 % in 2 reports"),
        "bottleneck counter[2] cpu: 90 % in 2 reports",
    ),
    (record.WaitingForVMs(operator="counter", needed=2, why="hot"), "waiting for VMs counter 2 needed: hot"),
    (record.ScalingOut(operator="counter", before=1, after=2, why="hot"), "scaling out counter 1 → 2: hot"),
    (record.ScalingIn(operator="counter", before=2, after=1, why="cold"), "scaling in counter 2 → 1: cold"),
    (
        record.ScaledOut(operator="counter", before=1, after=2, seconds=1.5, waited=0.1, latency_peak=0.25),
        "scaled out counter in 1.500 s (waited 0.100) 1 → 2, latency up to 0.250 s",
    ),
    (
        record.ScaledIn(operator="counter", before=2, after=1, seconds=1.5, waited=0.1, latency_peak=0.25),
        "scaled in counter in 1.500 s (waited 0.100) 2 → 1, latency up to 0.250 s",
    ),
    (record.ScalingAborted(operator="counter", why="it is tried again"), "scaling aborted counter it is tried again"),
    (
        record.ScalingReplaced(operator="counter", why="to 2: 3 are wanted"),
        "scaling replaced counter to 2: 3 are wanted",
    ),
    (record.NothingToScale(operator="counter", why="it has 2"), "nothing to scale counter it has 2"),
    (
        record.SplitNotPossible(operator="counter", why="no backup"),
        "split not possible counter no backup; its owners hand slots over instead",
    ),
    (record.ScalingRefused(operator="counter", why="busy"), "scaling refused counter busy"),
    (record.ScalingCalledOff(operator="counter", why="the run is over"), "scaling called off counter the run is over"),
    (record.ScalingGivenUp(operator="counter", why="no VM"), "scaling given up counter no VM"),
    (record.ScalingFailed(why="ValueError: no"), "scaling failed ValueError: no"),
    (
        record.PolicySlow(policy="Slow", seconds=3.0),
        "policy slow in 3.000 s policy Slow has not decided yet, and is not asked again until it has",
    ),
    (
        record.MigrationBegun(operator="counter", strategy="batched", slots=1024, steps=2, why="asked for"),
        "migration begun counter batched, 1,024 slots in 2 steps: asked for",
    ),
    (
        record.Migrated(**MOVED, bytes=2048, held_back=3, waited=0.1, moved=1.0, settled=0.5, latency={"max": 0.25}),
        "migrated counter in 1.500 s (waited 0.100, moved 1.000, settled 0.500) 1,024 of 1,024 slots in 2 steps, "
        "2,048 bytes handed over, 3 rows held back, latency up to 0.250 s",
    ),
    (
        record.MigrationCancelled(**MOVED, why="somebody cancelled it"),
        "migration cancelled counter in 1.500 s 1,024 of 1,024 slots in 2 steps: somebody cancelled it",
    ),
    (
        record.MigrationRefused(operator="counter", why="it is empty"),
        "migration refused counter 0 of 0 slots in 0 steps: it is empty",
    ),
    (
        record.BalancingBegun(operator="counter", imbalance=1.8, slots=9, why="one is full"),
        "balancing counter one is full",
    ),
    (
        record.Balanced(operator="counter", seconds=1.0, before=1.8, after=1.1, slots=9, bytes=100),
        "balanced counter in 1.000 s the fullest instance had 1.80 times the mean, now 1.10",
    ),
    (record.BalancingCalledOff(operator="counter", why="no node"), "balancing called off counter no node"),
    (record.NothingToBalance(operator="counter", why="even"), "nothing to balance counter even"),
    (record.HotSlot(subject=COUNTER, slot=7, share=0.5, why="key 'a'"), "hot slot counter[2] key 'a'"),
    (record.BalancingFailed(operator="counter", why="too slow"), "balancing failed counter too slow"),
    (
        record.ReplicasPlaced(groups={COUNTER: ("n1", "n2"), InstanceId("counter", 1): ("n3",)}),
        "replicas placed counter[1] on n3; counter[2] on n1, n2",
    ),
    (
        record.RunResumed(id=4, epoch=90, passed_over=(5, 6)),
        "resumed from checkpoint 4 at epoch 90, not from 5, 6",
    ),
    (record.CheckpointPersisted(id=4, epoch=90, seconds=0.5), "persisted in 0.500 s checkpoint 4 at epoch 90"),
    (record.SavepointStored(id=4, epoch=90, seconds=0.5), "savepoint in 0.500 s checkpoint 4 at epoch 90"),
    (record.CheckpointFailed(why="no room"), "checkpoint failed no room"),
    (record.CleaningFailed(why="no right"), "cleaning failed no right"),
    (
        record.Compacted(id=5, operators=("counter", "joined"), origin=4, seconds=0.5),
        "compacted in 0.500 s checkpoint 5: counter, joined in full, from checkpoint 4",
    ),
    (record.CompactionFailed(why="no room"), "compaction failed no room"),
]


def test_there_is_an_example_of_every_kind() -> None:
    ours = {kind for kind, cls in event_kinds().items() if cls.__module__.startswith(("seep.", "vmpool."))}
    assert {example.kind for example, _ in EXAMPLES} == ours
    assert len(EXAMPLES) == len(ours)


@pytest.mark.parametrize(("example", "words"), EXAMPLES, ids=[example.kind for example, _ in EXAMPLES])
def test_an_event_says_what_its_fields_say(example: Event, words: str) -> None:
    assert example.text() == str(example) == words


@pytest.mark.parametrize("example", [example for example, _ in EXAMPLES], ids=lambda each: each.kind)
def test_an_event_is_what_its_fields_make_it(example: Event) -> None:
    values = {each.name: getattr(example, each.name) for each in fields(example)}
    assert event_kinds()[example.kind](**values) == example


@pytest.mark.parametrize("example", [example for example, _ in EXAMPLES], ids=lambda each: each.kind)
def test_an_event_cannot_be_changed_and_has_no_other_attributes(example: Event) -> None:
    with pytest.raises(FrozenInstanceError):
        example.at = 2.0  # type: ignore[misc]
    assert not hasattr(example, "__dict__")


@pytest.mark.parametrize("cls", event_kinds().values(), ids=lambda cls: cls.kind)
def test_every_kind_is_described(cls: type[Event]) -> None:
    assert cls.__doc__
    assert cls.__doc__.endswith((".", ".\n"))
    assert not cls.__doc__.startswith(cls.__name__ + "(")


def test_json_has_what_every_event_can_be_asked_for_and_fields_that_are_not_among_it() -> None:
    done = record.ScaledOut(
        operator="counter", before=1, after=2, seconds=1.5, waited=0.1, latency_peak=0.25, why="hot", at=9.0
    )
    assert done.to_json() == {
        "kind": "scaled out",
        "at": 9.0,
        "operator": "counter",
        "detail": "1 → 2, latency up to 0.250 s",
        "seconds": 1.5,
        "parts": {"waited": 0.1},
        "numbers": {"before": 1, "after": 2, "latency_peak": 0.25},
        "why": "hot",
    }
    assert record.NodeKilled(node="n1", hosted=(COUNTER,), at=1.0).to_json() == {
        "kind": "killed",
        "at": 1.0,
        "node": "n1",
        "detail": "with counter[2]",
        "hosted": ["counter[2]"],
    }


def test_json_does_not_say_the_detail_twice() -> None:
    failed = record.CheckpointFailed(why="no room", at=2.0)
    assert failed.to_json() == {"kind": "checkpoint failed", "at": 2.0, "detail": "no room"}


def test_what_does_not_apply_to_an_event_is_empty() -> None:
    finished = record.RunFinished()
    assert (finished.operator, finished.instance, finished.node, finished.seconds) == (None, None, None, None)
    assert (finished.detail, dict(finished.parts), dict(finished.numbers)) == ("", {}, {})


def test_an_event_gets_its_time_later() -> None:
    event = record.RunFinished(why="at epoch 9")
    assert event.dated(4.5) == record.RunFinished(why="at epoch 9", at=4.5)


@pytest.mark.parametrize("example", [example for example, _ in EXAMPLES], ids=lambda each: each.kind)
def test_an_event_travels_between_processes_as_it_is(example: Event) -> None:
    assert decode(encode(example.dated(1.5))) == example.dated(1.5)
