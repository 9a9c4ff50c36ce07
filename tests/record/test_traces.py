"""Traces: which spans come of the events of a run, and that they are whole, bounded and always the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seep
from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol import events as protocol
from seep.protocol.view import Seat
from seep.record import events as record
from seep.record.causes.spans import Span
from seep.record.causes.traces import KeptTraces, Traces
from seep.testing import InProcess, script
from tests.record.kit import Recorded
from tests.record.test_events import EXAMPLES
from tests.record.test_story import BY_HAND, C0, C1, LOST, S0, SCALED_OUT

MIGRATED = record.Migrated(operator="counter", seconds=3.0, steps=1, steps_done=1, slots_moved=9, waited=0.5, at=9.0)


def made(events: Iterable[Event], run: str = "run-1") -> list[Span]:
    """All spans of these events: of the ended traces, then of the open ones."""
    traces = Traces(run)
    return [*(span for event in events for span in traces.hear(event)), *traces.open()]


def named(spans: Iterable[Span], *names: str) -> list[Span]:
    return [span for span in spans if span.name in names]


def drawn(spans: Sequence[Span]) -> list[str]:
    """The spans in words, indented by their depth."""
    depths: dict[str | None, int] = {None: -1}
    lines = []
    for span in spans:
        depths[span.id] = depths[span.parent] + 1
        times = f"{span.start:g} to {span.end:g}" if span.end is not None else f"{span.start:g}"
        lines.append(f"{'  ' * depths[span.id]}{span.name} {times} {span.status.value}")
    return lines


def check(spans: Sequence[Span]) -> None:
    """Ids are unique, parents come first in the same trace, and a child lies within its parent."""
    assert max(Counter(span.id for span in spans).values(), default=1) == 1
    known: dict[str, Span] = {}
    for span in spans:
        assert (len(span.trace), len(span.id)) == (32, 16)
        assert span.end is None or span.start <= span.end
        if span.parent is not None:
            parent = known[span.parent]
            assert parent.trace == span.trace
            assert parent.end is None or (parent.start <= span.start and span.end is not None)
            assert parent.end is None or span.end is None or span.end <= parent.end
        known[span.id] = span


def test_a_scale_out_is_a_tree_from_its_decision_until_both_sides_are_safe() -> None:
    spans = made(SCALED_OUT)
    check(spans)
    assert drawn(spans) == [
        "scaling 3 to 4.9 ok",
        "  plan 4 to 4.9 ok",
        "    sealed 4 to 4.1 ok",
        "    effective 4.1 to 4.2 ok",
        "    safe 4.2 to 4.9 ok",
        "    transfer 4.2 to 4.28 ok",
        "  decided 3 to 3.5 ok",
    ]
    root, plan, *_ = spans
    assert root.attributes["operator"] == "counter"
    assert (root.attributes["decision"], root.attributes["before"], root.attributes["after"]) == (1, 1, 2)
    assert root.attributes["why"] == "0.97 of its core"
    figures = {"plan": 7, "operator": "counter", "epoch": 210, "slots": 128, "view": 12, "bytes": 12_300_000}
    assert plan.attributes == figures | {"instances": ("counter[0]", "counter[1]"), "instance_count": 2, "transfers": 1}


def test_a_plan_announced_before_its_decision_is_told_belongs_to_it() -> None:
    first, second, *others = [event for event in SCALED_OUT if event.kind in ("scaling out", "move announced")]
    assert not others
    spans = made([second, first, *SCALED_OUT[4:]])
    check(spans)
    assert [span.name for span in spans if span.parent is None] == ["scaling"]
    assert len(named(spans, "plan")) == 1


def test_a_recovery_has_the_phases_of_each_instance() -> None:
    spans = made([replace(e, hosted=(C1, S0)) if isinstance(e, protocol.NodeLost) else e for e in LOST])
    check(spans)
    assert drawn(spans) == [
        "recovery 9 unset",
        "  instance 9 to 9.5 ok",
        "    detected 9 to 9.1 ok",
        "    restored 9.1 to 9.2 ok",
        "    replayed 9.2 to 9.5 ok",
        "  instance 9 unset",
        "    detected 9 to 9.1 ok",
        "    restored 9.1 unset",
    ]
    root, instance, *_ = spans
    assert root.attributes == {"node": "n2", "why": "its port refuses connections", "instance_count": 2}
    assert instance.attributes == {"instance": "counter[1]", "operator": "counter", "to": "n4"}


def test_an_instance_without_state_is_restored_when_its_replay_began() -> None:
    over = record.InstanceRecovered(subject=S0, seconds=0.5, detected=0.1, restored=0.1, replayed=0.3, at=9.5)
    stateless = [LOST[0], LOST[1], LOST[3], replace(over, lost="n2")]
    spans = made(stateless)
    assert [span.end for span in named(spans, "recovery")] == [9.5]
    assert drawn(named(made(stateless), "recovery")) == ["recovery 9 to 9.5 ok"]
    assert [(round(span.start, 3), span.end) for span in named(spans, "replayed")] == [(9.2, 9.5)]


def test_two_losses_of_one_instance_end_each_with_its_own_recovery() -> None:
    again = [
        protocol.NodeLost(node="n4", hosted=(C1,), at=9.15),
        protocol.Rebound(subject=C1, to="n5", lost="n4", at=9.16),
    ]
    over = record.InstanceRecovered(subject=C1, seconds=0.4, detected=0.1, restored=0.1, replayed=0.2)
    first, second = replace(over, lost="n2", at=9.5), replace(over, lost="n4", at=9.6)
    spans = made(
        [LOST[0], LOST[1], LOST[2], *again, protocol.StateRestored(subject=C1, epoch=4, at=9.3), second, first]
    )
    check(spans)
    ends = {span.attributes["node"]: span.end for span in named(spans, "recovery")}
    assert ends == {"n4": 9.6, "n2": 9.5}


def test_the_loss_of_a_node_that_hosts_nothing_is_no_recovery() -> None:
    assert made([protocol.NodeLost(node="n9", hosted=(), at=1.0)]) == []


@pytest.mark.parametrize(
    "end",
    [
        record.ScalingAborted(operator="counter", why="it is tried again", at=9.0),
        record.ScalingCalledOff(operator="counter", why="the run is over", at=9.0),
        record.ScalingGivenUp(operator="counter", why="no VM", at=9.0),
        record.ScalingRefused(operator="counter", why="busy", at=9.0),
    ],
    ids=lambda event: str(event.kind),
)
@pytest.mark.parametrize("is_begun", [True, False])
def test_a_scaling_that_was_not_carried_out_is_an_error_with_its_reason(end: Event, *, is_begun: bool) -> None:
    (span,) = made([SCALED_OUT[2], end] if is_begun else [end])
    assert (span.name, span.status, span.reason, span.end) == ("scaling", "error", end.detail, 9.0)
    assert span.start == (3.5 if is_begun else 9.0)


def test_a_decision_refused_because_another_goes_on_does_not_end_the_other() -> None:
    refused = record.ScalingRefused(operator="counter", why="to 4: it is being scaled to 2", meanwhile=2, at=4.0)
    replaced = record.ScalingReplaced(operator="counter", why="to 3: 4 are wanted now", at=4.1)
    spans = made([SCALED_OUT[2], refused, replaced, *SCALED_OUT[3:]])
    ends = [(span.status.value, span.reason) for span in spans if span.parent is None]
    assert ends == [("error", refused.why), ("error", replaced.why), ("ok", "")]


def test_a_decision_that_was_given_up_ends_when_its_open_plans_do() -> None:
    given_up = record.ScalingGivenUp(operator="counter", why="no progress", at=4.05)
    spans = made([*SCALED_OUT[2:4], given_up, *SCALED_OUT[4:7], SCALED_OUT[8]])
    check(spans)
    assert [(span.start, span.end, span.status.value) for span in named(spans, "scaling")] == [(3.5, 4.9, "error")]
    assert [span.status.value for span in named(spans, "plan")] == ["ok"]


def test_migrations_of_one_operator_end_by_their_numbers() -> None:
    begun = record.MigrationBegun(operator="counter", strategy="fluid", slots=9, steps=1, why="asked for", at=6.0)
    refused = record.MigrationRefused(operator="counter", why="no such slot", migration=5, at=7.0)
    spans = made([replace(begun, migration=4), replace(begun, migration=5), replace(MIGRATED, migration=4), refused])
    check(spans)
    roots = [(span.end, span.status.value, span.reason) for span in spans if span.parent is None]
    assert sorted(roots) == [(7.0, "error", "no such slot"), (9.0, "ok", "")]
    assert [(span.start, span.end) for span in named(spans, "decided")] == [(5.5, 6.0)]


def test_balance_drains_and_checkpoints_are_traces() -> None:
    balance = [
        record.BalancingBegun(operator="counter", why="skew", imbalance=2.0, slots=8, at=1.0),
        record.Balanced(operator="counter", seconds=1.0, before=2.0, after=1.1, slots=8, bytes=99, at=3.0),
    ]
    drain = [
        protocol.NodeLeaving(node="n1", at=4.0),
        replace(BY_HAND[0], at=4.1),
        record.DrainGivenUp(node="n1", why="it was lost before", at=4.2),
        protocol.MoveComplete(operator="splitter", plan=8, at=4.5),
    ]
    stored = [
        record.SavepointStored(id=3, epoch=9, seconds=0.5, bytes=70, at=6.0),
        record.CheckpointPersisted(id=4, epoch=12, seconds=0.5, bytes=70, at=7.0),
        record.CheckpointFailed(why="the bucket is gone", at=8.0),
    ]
    spans = made([*balance, *drain, *stored])
    check(spans)
    assert drawn(spans) == [
        "balance 1 to 3 ok",
        "drain 4 to 4.5 error",
        "  plan 4.1 to 4.5 ok",
        "    sealed 4.1 to 4.5 ok",
        "savepoint 5.5 to 6 ok",
        "checkpoint 6.5 to 7 ok",
        "checkpoint 8 to 8 error",
    ]
    assert spans[0].attributes["bytes"] == 99
    assert spans[-3].attributes == {"id": 3, "epoch": 9, "bytes": 70}


def test_a_split_from_backup_is_a_plan_of_the_recovery_or_decision_that_made_it() -> None:
    split = [
        protocol.SplitBegun(subject=C1, plan=5, shares=2, at=9.15),
        protocol.SplitAborted(subject=C1, plan=5, at=9.18),
    ]
    lost = [LOST[0], replace(LOST[1], hosted=(C1,)), LOST[2]]  # type: ignore[call-arg]
    spans = made([*lost, *split, *LOST[4:]])
    check(spans)
    (plan,) = named(spans, "plan")
    assert (plan.trace, plan.status) == (spans[0].trace, "error")
    decision = record.ScalingOut(operator="counter", before=1, after=2, why="full", at=9.2)
    done = [protocol.SplitEffective(subject=C0, plan=6, first=70, at=9.6), replace(SCALED_OUT[7], at=9.7)]
    spans = made([protocol.SplitBegun(subject=C0, plan=6, shares=2, at=9.1), decision, *done])
    check(spans)
    assert [span.name for span in spans] == ["scaling", "plan", "restored", "decided"]


def test_the_end_of_the_run_ends_plans_and_recoveries_and_decisions_as_the_steward_says() -> None:
    lost = replace(LOST[1], hosted=(C1,))  # type: ignore[call-arg]
    called_off = record.ScalingCalledOff(operator="counter", why="the run is over", at=9.9)
    spans = made([*SCALED_OUT[2:5], *BY_HAND, lost, record.RunHalted(why="as somebody asked for", at=9.8), called_off])
    check(spans)
    assert {span.name: span.status.value for span in spans if span.parent is None} == {
        "plan": "unset",
        "recovery": "unset",
        "scaling": "error",
    }
    assert all(span.end is not None for span in spans)
    assert {span.reason for span in named(spans, "recovery")} == {"the run is over: as somebody asked for"}


def test_a_node_that_ends_after_the_run_is_not_to_be_recovered() -> None:
    assert made([record.RunFinished(at=9.0), protocol.NodeLost(node="n2", hosted=(C1,), at=9.1)]) == []


# -- laws --------------------------------------------------------------------------------------------------------------

INSTANCES = [C0, C1, S0]


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Events of every kind in any order, also in such as no run gives; a few operators, nodes and plans."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    chosen = draw(st.lists(st.sampled_from([each for each, _ in EXAMPLES]), max_size=60))
    at, events = 0.0, []
    for example in chosen:
        at += rng.choice((0.0, 0.25, 1.0))
        events.append(_altered(example, rng, at))
    return events


def _altered(event: Event, rng: random.Random, at: float) -> Event:
    fields: dict[str, object] = {"at": at}
    if "subject" in event.__dataclass_fields__:
        fields["subject"] = rng.choice(INSTANCES)
    elif "operator" in event.__dataclass_fields__:
        fields["operator"] = rng.choice(("counter", "splitter"))
    choices = {"plan": (1, 2, 3), "first": (7, 8), "node": ("n1", "n2"), "lost": ("", "n1", "n2"), "migration": (0, 1)}
    fields |= {name: rng.choice(values) for name, values in choices.items() if name in event.__dataclass_fields__}
    return replace(event, **fields)


@given(histories())
def test_spans_are_unique_lie_within_their_parents_and_are_open_or_ended(events: list[Event]) -> None:
    check(made(events))


@given(histories(), st.data())
def test_how_events_arrive_in_portions_makes_no_difference(events: list[Event], data: st.DataObject) -> None:
    whole, kept = made(events), KeptTraces("run-1")
    for event in events:
        kept.hear(event)
        if data.draw(st.booleans()):
            list(kept)
    assert list(kept) == whole


@given(histories())
def test_a_trace_is_handed_out_once_and_is_not_open_any_more(events: list[Event]) -> None:
    traces = Traces("run-1")
    for event in events:
        before = {span.id for span in traces.open()}
        ended = traces.hear(event)
        assert all(span.end is not None for span in ended)
        still_open = {span.id for span in traces.open()}
        assert not still_open & {span.id for span in ended}
        adopted = event.kind in ("scaling out", "scaling in", "migration begun", "balancing")
        assert adopted or before <= still_open | {span.id for span in ended}


def test_ids_follow_from_the_run_and_differ_between_runs() -> None:
    ids = [span.id for span in made(SCALED_OUT)]
    assert ids == [span.id for span in made(SCALED_OUT)]
    assert not set(ids) & {span.id for span in made(SCALED_OUT, "run-2")}


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_open_traces_are_bounded_and_the_oldest_ends_first() -> None:
    traces = Traces("run-1")
    ended = [
        span for number in range(700) for span in traces.hear(protocol.NodeLeaving(node=f"n{number}", at=float(number)))
    ]
    assert len(traces.open()) == 500
    assert [span.attributes["node"] for span in ended] == [f"n{number}" for number in range(200)]
    assert {span.reason for span in ended} == {"more than 500 traces were open"}


def test_a_migration_in_very_many_steps_keeps_the_newest_of_them_and_counts_the_others() -> None:
    traces = Traces("run-1")
    begun = record.MigrationBegun(operator="counter", strategy="fluid", slots=9, steps=1500, why="asked for", at=1.0)
    traces.hear(begun)
    for plan in range(1500):
        for event in (SCALED_OUT[3], SCALED_OUT[6], SCALED_OUT[8]):
            about = {"plan": plan} if "plan" in event.__dataclass_fields__ else {}
            traces.hear(replace(event, at=2.0 + plan, **about))
    spans = traces.hear(replace(MIGRATED, at=9_999.0))
    check(spans)
    assert spans[0].attributes["left_out"] == 1_300
    assert [span.attributes["plan"] for span in named(spans, "plan")] == list(range(1_300, 1_500))


def test_a_plan_between_very_many_owners_has_some_transfers_and_the_bytes_of_all() -> None:
    traces = Traces("run-1")
    traces.hear(SCALED_OUT[3])
    for number in range(100):
        traces.hear(protocol.StateTakenIn(subject=InstanceId("counter", number), origin=C0, first=210, bytes=5, at=5.0))
    spans = traces.hear(replace(SCALED_OUT[8], at=6.0))
    assert len(named(spans, "transfer")) == 20
    assert (spans[0].attributes["transfers"], spans[0].attributes["bytes"]) == (100, 500)


def test_of_many_ended_traces_the_newest_are_kept() -> None:
    kept = KeptTraces("run-1", most=10)
    for number in range(30):
        kept.hear(record.CheckpointFailed(why="full", at=float(number)))
    assert [span.start for span in kept] == [float(number) for number in range(20, 30)]


# -- where they come from ----------------------------------------------------------------------------------------------


def test_the_record_has_them_in_its_report_with_the_times_of_its_events() -> None:
    it = Recorded()
    it.clock.now = 5.0
    it.record.tell(record.CheckpointPersisted(id=1, epoch=0, seconds=1.0))
    it.record.tell(protocol.NodeLeaving(node="n1"))
    it.clock.now = 7.0
    it.record.begin()
    placement = {C1: Seat("n2", 0)}
    it.clock.now = 8.0
    it.record.killed("n2", placement)
    it.clock.now = 8.5
    it.record.given_up("n2", "silent", placement, ticked=4)
    it.record.tell(protocol.NodeLost(node="n2"))
    it.record.tell(protocol.Rebound(subject=C1, to="n3", lost="n2"))
    it.clock.now = 9.0
    it.record.tell(protocol.StateRestored(subject=C1, epoch=2))
    it.clock.now = 10.0
    it.record.committed(4)
    spans = it.record.report("q", rows=0, is_over=False, vm_seconds={})["spans"]
    times = [(span["name"], span["start"], span.get("end"), span["status"]) for span in spans]
    assert times == [
        ("checkpoint", -3.0, -2.0, "ok"),
        ("recovery", 1.0, 3.0, "ok"),
        ("instance", 1.0, 3.0, "ok"),
        ("detected", 1.0, 1.5, "ok"),
        ("restored", 1.5, 2.0, "ok"),
        ("replayed", 2.0, 3.0, "ok"),
        ("drain", -2.0, None, "unset"),
    ]


def simulated() -> list[Event]:
    """The events of a query that is scaled out, migrated, loses a node and gives one up, a second each pulse."""
    batches = [pa.record_batch({"word": list("abcdefgh")}) for _ in range(60)]
    query = seep.Query("words")
    words = query.source("lines", script(*batches)).key_by("word")
    words.aggregate("counter", n=seep.count(), emit="end").sink("out", seep.sinks.collect())
    events: list[Event] = []
    with InProcess(query, nodes=4, rows_per_epoch=8) as run:

        def pulses(times: int) -> None:
            for _ in range(times):
                run.pulse()
                run.settle()
                events.extend(event.dated(float(run.manager.ticked)) for event in run.events[len(events) :])

        pulses(3)
        run.scale("counter", 2)
        pulses(12)
        run.kill("counter")
        pulses(6)
        run.migrate("counter", 3, strategy="batched")
        pulses(30)
        run.drain(run.manager.placement[InstanceId("counter", 1)].node)
        run.run()
        events.extend(event.dated(float(run.manager.ticked)) for event in run.events[len(events) :])
    return events


def test_a_simulated_run_has_a_trace_for_each_change_and_a_plan_for_each_move() -> None:
    events = simulated()
    spans = made(events)
    check(spans)
    roots = Counter(span.name for span in spans if span.parent is None)
    assert roots.keys() >= {"scaling", "migration", "recovery", "drain"}
    moves = {event.plan for event in events if isinstance(event, protocol.MoveAnnounced)}
    assert {span.attributes["plan"] for span in named(spans, "plan")} == moves
    by_id = {span.id: span for span in spans}
    migration = next(span for span in named(spans, "migration"))
    steps = [span for span in named(spans, "plan") if span.parent == migration.id]
    assert len(steps) == migration.attributes["steps"]
    for step in steps:
        phases = [span.name for span in spans if span.parent == step.id]
        assert phases[:3] == ["sealed", "effective", "safe"]
    taken = sum(event.bytes for event in events if isinstance(event, protocol.StateTakenIn))
    assert sum(int(str(span.attributes["bytes"])) for span in named(spans, "transfer")) == taken
    restored = [span for span in named(spans, "restored") if span.end is not None]
    assert "counter[0]" in {by_id[str(span.parent)].attributes["instance"] for span in restored}
