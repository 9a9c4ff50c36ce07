"""The protocol under random schedules: every run ends, and every sink holds each row exactly once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from policies.migration.settings import Strategy
from seep.simulator.__main__ import main
from seep.simulator.faults import Fault, What
from seep.simulator.schedule import Outcome, Plan, Verdict, run_schedule
from seep.simulator.soak import DECISIONS, ENDINGS, Summary, missing, report, soak
from seep.simulator.world import Limits

SCHEDULES = 300


@pytest.fixture(scope="module")
def summary() -> Summary:
    return soak(range(1_000_000, 1_000_000 + SCHEDULES))


def test_random_schedules_with_faults_are_exact(summary: Summary) -> None:
    assert summary.schedules == SCHEDULES
    assert not summary.violations, report(summary)


def test_hardly_any_schedule_ends_because_state_is_lost(summary: Summary) -> None:
    """Losing an instance and its backup together ends a run early; were that common, little would be tested."""
    assert 0 < summary.verdicts[Verdict.STATE_LOST] < SCHEDULES / 8


@pytest.mark.parametrize("what", list(What))
def test_every_kind_of_fault_strikes_often(summary: Summary, what: What) -> None:
    assert summary.events[what] >= SCHEDULES / 50


@pytest.mark.parametrize("kind", ["move complete", "retired", "restored", "stood ready", "split effective", "rebound"])
def test_every_kind_of_plan_is_carried_out(summary: Summary, kind: str) -> None:
    assert summary.events[kind] >= SCHEDULES / 100


def test_splits_are_aborted_now_and_then(summary: Summary) -> None:
    """In about one of a hundred schedules, so three hundred have some."""
    assert summary.events["split aborted"] > 0


@pytest.mark.parametrize("kind", ENDINGS)
def test_decisions_end_in_every_way(summary: Summary, kind: str) -> None:
    assert summary.events[kind] > 0


@pytest.mark.parametrize("strategy", [*Strategy, "stream"])
def test_slots_move_by_every_strategy(summary: Summary, strategy: str) -> None:
    assert summary.events[f"strategy {strategy}"] >= SCHEDULES / 50


@pytest.mark.parametrize("what", list(What))
def test_every_kind_of_fault_strikes_while_something_is_decided(summary: Summary, what: What) -> None:
    assert sum(summary.pairs[what, decision] for decision in DECISIONS) > 0


def test_a_soak_says_what_has_never_happened() -> None:
    few = soak(range(1), Plan(most_faults=1), jobs=1)
    assert "never: " in report(few)
    assert missing(few)
    many = Summary()
    many.events.update([*What, *ENDINGS, *(f"strategy {each}" for each in (*Strategy, "stream"))])
    many.pairs.update((what, decision) for what in What for decision in DECISIONS)
    assert missing(many) == []


def test_a_seed_replays_exactly_in_another_process() -> None:
    """Neither the process nor its hash seed has a say in what happens."""
    program = "from seep.simulator.schedule import run_schedule; print(repr(run_schedule(7)))"
    elsewhere = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": h}
        ).stdout
        for h in ("1", "2")
    ]
    assert elsewhere == [f"{run_schedule(7)!r}\n"] * 2


def test_a_run_without_faults_is_exact() -> None:
    outcomes = [run_schedule(seed, faults=[]) for seed in range(25)]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.EXACT}


def test_the_loss_of_all_nodes_with_state_is_reported_not_papered_over() -> None:
    """Two at once, again and again: some runs must end with the error, and none with a wrong result."""
    faults = [Fault(step, What.KILL_PAIR, step, 5) for step in range(150, 600, 50)]
    verdicts = {run_schedule(seed, faults=faults).verdict for seed in range(40)}
    assert verdicts == {Verdict.EXACT, Verdict.STATE_LOST}


@pytest.mark.acceptance
def test_the_loss_of_two_nodes_at_once_seldom_hits_all_replicas() -> None:
    """There must be nodes enough to have them on, and time enough between to copy them again."""
    faults = [Fault(step, What.JOIN, step, 5) for step in range(10, 13)]
    faults += [Fault(step, What.KILL_PAIR, step, 5) for step in range(400, 1000, 300)]

    def lost(replicas: int) -> int:
        plan = Plan(limits=Limits(rows=30, replicas=replicas))
        outcomes = [run_schedule(seed, plan, faults) for seed in range(160)]
        assert not [outcome for outcome in outcomes if outcome.verdict is Verdict.VIOLATION]
        return sum(outcome.verdict is Verdict.STATE_LOST for outcome in outcomes)

    assert lost(2) < lost(0) / 2, "it is a quarter, give or take, of a few dozen"


def test_what_one_replica_had_of_an_earlier_incarnation_does_not_count_for_the_next() -> None:
    """Else what the next one, which began from an older backup, has yet to read is trimmed: it waits for ever."""
    faults = [
        *(Fault(step, What.MOVE, step, 5) for step in (250, 400)),
        *(Fault(step, What.KILL_CONCERNED, step, 5) for step in (300, 450)),
    ]
    assert run_schedule(147, Plan(limits=Limits(rows=30, replicas=2)), sorted(faults)).verdict is Verdict.EXACT


def test_replay_shows_the_events_of_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "3"]) == 0
    assert "exact after" in capsys.readouterr().out


def test_demo_loses_a_node_scales_out_and_differs_in_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "node lost" in shown
    assert "move complete" in shown
    assert "0 differences" in shown


def test_soak_ends_with_one_json_object_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--schedules", "20", "--jobs", "1", "--json"]) == 0
    assert '"violation": 0' in capsys.readouterr().out.splitlines()[-1]


def test_a_count_that_is_not_positive_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["soak", "--schedules", "0"])
    assert "not a positive number" in capsys.readouterr().err


def test_an_unknown_kind_of_fault_is_refused_and_the_known_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["soak", "--only", "kill,flood"])
    assert "flood is no kind of fault; choose from kill, kill_pair" in capsys.readouterr().err


def test_soak_can_be_confined_to_some_kinds_of_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--schedules", "20", "--jobs", "1", "--only", "blind_move,cut"]) == 0
    assert "kill" not in capsys.readouterr().out


def test_an_outcome_tells_its_seed_and_faults() -> None:
    outcome = run_schedule(11, Plan(most_faults=3))
    assert isinstance(outcome, Outcome)
    assert outcome.seed == 11
    assert 1 <= len(outcome.faults) <= 3
