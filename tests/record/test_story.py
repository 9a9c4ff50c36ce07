"""The story of a run: which events belong to one cause, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from policies.scaling.detector import Cause
from primitives.errors import UserError
from primitives.event import Event
from primitives.graph import InstanceId
from seep.cli.app import app
from seep.protocol import events as protocol
from seep.record import events as record
from seep.record.causes.story import chains_of, story

C0, C1, S0 = InstanceId("counter", 0), InstanceId("counter", 1), InstanceId("splitter", 0)

SCALED_OUT: list[Event] = [
    record.BottleneckFound(subject=C0, cause=Cause.CPU, why="0.97 of its core in 2 reports", at=3.0),
    record.WaitingForVMs(operator="counter", needed=1, why="0.97 of its core", at=3.1),
    record.ScalingOut(operator="counter", before=1, after=2, why="0.97 of its core", at=3.5),
    protocol.MoveAnnounced(operator="counter", plan=7, first=210, slots=128, view=12, instances=(C0, C1), at=4.0),
    protocol.MoveSealed(operator="counter", plan=7, view=12, at=4.1),
    protocol.MoveEffective(operator="counter", plan=7, first=210, at=4.2),
    protocol.StateTakenIn(subject=C1, origin=C0, first=210, bytes=12_300_000, at=4.28),
    record.ScaledOut(operator="counter", before=1, after=2, seconds=0.8, waited=0.5, latency_peak=0.1, at=4.3),
    protocol.MoveComplete(operator="counter", plan=7, at=4.9),
]
LOST: list[Event] = [
    record.NodeKilled(node="n2", hosted=(C1, S0), at=9.0),
    protocol.NodeLost(node="n2", why="its port refuses connections", at=9.1),
    protocol.Rebound(subject=C1, to="n4", lost="n2", at=9.11),
    protocol.Rebound(subject=S0, to="n5", lost="n2", at=9.12),
    protocol.StoodReady(subject=C1, epoch=400, at=9.2),
    protocol.StateRestored(subject=C1, epoch=400, at=9.2),
    record.InstanceRecovered(subject=C1, seconds=0.41, detected=0.1, restored=0.11, replayed=0.2, at=9.5),
]
BY_HAND: list[Event] = [
    protocol.MoveAnnounced(operator="splitter", plan=8, first=500, slots=256, view=20, instances=(S0,), at=12.0),
    protocol.MoveSealed(operator="splitter", plan=8, view=20, at=12.1),
]
ALL = [*SCALED_OUT, *LOST, *BY_HAND]


def told(events: list[Event], **chosen: object) -> list[str]:
    return story([json.loads(json.dumps(event.to_json())) for event in events], **chosen)  # type: ignore[arg-type]


def test_a_decision_is_told_from_its_reason_until_both_sides_are_safe() -> None:
    assert told(SCALED_OUT) == [
        "decision 1: scaled counter 1 → 2 because 0.97 of its core",
        "   3.000 s  bottleneck counter[0]: cpu: 0.97 of its core in 2 reports",
        "   3.100 s  waited for VMs, 1 needed: 0.97 of its core",
        "   3.500 s  decided: counter 1 → 2",
        "   4.000 s  plan 7, view 12: 128 slots from epoch 210 on, between counter[0], counter[1]",
        "   4.100 s  plan 7 sealed by view 12",
        "   4.200 s  plan 7 in effect: epoch 210 is open",
        "   4.280 s  counter[1] has 12.3 MB of state from counter[0] in 80 ms",
        "   4.300 s  done in 800 ms",
        "   4.900 s  plan 7 safe: both sides are backed up beyond it",
    ]


def test_the_loss_of_a_node_is_told_with_what_came_of_all_that_it_hosted() -> None:
    assert told(LOST) == [
        "lost node n2 with counter[1], splitter[0]",
        "   9.000 s  n2 was killed on purpose with counter[1], splitter[0]",
        "   9.100 s  n2 was given up: its port refuses connections",
        "   9.110 s  counter[1] starts on n4",
        "   9.120 s  splitter[0] starts on n5",
        "   9.200 s  counter[1] finds its state of epoch 400 ready there",
        "   9.200 s  counter[1] has its state of epoch 400",
        "   9.500 s  counter[1] recovered in 410 ms (detected 100 ms, restored 110 ms, replayed 200 ms)",
    ]


def test_a_plan_that_no_decision_stands_behind_is_told_by_itself() -> None:
    assert told(ALL)[-3:] == [
        "moved slots of splitter by plan 8",
        "  12.000 s  plan 8, view 20: 256 slots from epoch 500 on, between splitter[0]",
        "  12.100 s  plan 8 sealed by view 20",
    ]


def test_each_event_of_a_plan_is_told_once() -> None:
    chains = chains_of([event.to_json() for event in ALL])
    assert [len(chain.events) for chain in chains] == [len(SCALED_OUT), len(LOST), len(BY_HAND)]


@pytest.mark.parametrize(
    ("chosen", "headlines"),
    [
        ({"instance": "counter[1]"}, ["decision 1: scaled", "lost node n2"]),
        ({"instance": "splitter[0]"}, ["lost node n2", "moved slots of splitter"]),
        ({"decision": 1}, ["decision 1: scaled"]),
        ({"epoch": 210}, ["decision 1: scaled"]),
        ({"epoch": 400}, ["lost node n2"]),
        ({"epoch": 450}, ["lost node n2"]),
        ({"epoch": 300, "instance": "counter[0]"}, ["decision 1: scaled"]),
    ],
)
def test_only_what_is_asked_for_is_told(chosen: dict[str, object], headlines: list[str]) -> None:
    found = [line for line in told(ALL, **chosen) if not line.startswith(" ")]
    assert [line[: len(start)] for line, start in zip(found, headlines, strict=True)] == headlines


def test_a_plan_that_is_announced_just_before_its_decision_is_told_belongs_to_it() -> None:
    announced, decided = SCALED_OUT[3], replace(SCALED_OUT[2], at=4.05)
    lines = told([*SCALED_OUT[:2], announced, decided, *SCALED_OUT[4:]])
    assert [line for line in lines if not line.startswith(" ")] == [
        "decision 1: scaled counter 1 → 2 because 0.97 of its core"
    ]
    assert lines[-1] == "   4.900 s  plan 7 safe: both sides are backed up beyond it"


def test_a_decision_that_is_refused_as_another_goes_on_does_not_end_the_other() -> None:
    refused = record.ScalingRefused(operator="counter", why="to 4: it is being scaled to 2", meanwhile=2, at=4.15)
    lines = told([*SCALED_OUT[:5], refused, *SCALED_OUT[5:]])
    assert lines[0] == "decision 1: scaled counter 1 → 2 because 0.97 of its core"
    assert "   4.150 s  scaling refused to 4: it is being scaled to 2" in lines


def test_what_is_not_in_the_record_is_refused_with_what_there_is() -> None:
    with pytest.raises(UserError, match=r"instance other\[0\]: the record has decisions 1 to 1, .*counter"):
        told(ALL, instance="other[0]")
    with pytest.raises(UserError, match="nothing was decided, moved or lost"):
        told([record.RunFinished(why="at epoch 9")])


def test_a_decision_that_came_to_nothing_says_why() -> None:
    begun = record.ScalingIn(operator="counter", before=2, after=1, why="idle", at=1.0)
    refused = record.ScalingRefused(operator="counter", why="busy", at=2.0)
    again = record.ScalingIn(operator="counter", before=2, after=1, why="still idle", at=3.0)
    lines = [line for line in told([begun, refused, again]) if not line.startswith(" ")]
    assert lines == [
        "decision 1: did not change (scaling refused: busy) counter 2 → 1 because idle",
        "decision 2: is changing counter 2 → 1 because still idle",
    ]


def report(directory: Path, **more: object) -> str:
    path = directory / "run.json"
    content = {"summary": {}, "series": [], "events": [event.to_json() for event in ALL]} | more
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_the_command_tells_the_story_of_a_report(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["story", report(tmp_path), "--decision", "1"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "decision 1: scaled counter 1 → 2 because 0.97 of its core"


def test_the_command_shows_the_messages_that_a_failure_has_left(tmp_path: Path) -> None:
    kept = {"manager": ["← n1: Committed(out[0]#0, 7)"], "counter[1]#0": ["← Tick(…)", "→ n1: Trim(…)"]}
    asked = ["story", report(tmp_path, story=kept), "--instance", "counter[1]", "--messages"]
    done = CliRunner().invoke(app, asked)
    assert done.stdout.splitlines()[-3:] == [
        "counter[1]#0 took (←) and answered (→):",
        "  ← Tick(…)",
        "  → n1: Trim(…)",
    ]
    without = CliRunner().invoke(app, ["story", report(tmp_path), "--messages"])
    assert without.exit_code == 1
    assert "there are no messages" in without.stderr


def test_the_command_says_what_is_no_report(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["story", str(tmp_path / "none.json")])
    assert done.exit_code == 1
    assert "there is no report" in done.stderr
