"""The laws of control, one by one: what keeps to them, and what does not."""

from __future__ import annotations

import pytest

from seep.record.events import ScaledOut, ScalingFailed, ScalingGivenUp, ScalingIn, ScalingOut
from seep.record.status import OpenDecision
from seep.simulator.laws import LawBroken, Laws


def decision(by_hand: bool = False, since: float = 1.0, kind: str = "scaling") -> OpenDecision:
    return OpenDecision(kind, "sum", since, by_hand, "why")


def laws() -> Laws:
    return Laws(timeout=5.0, standing=lambda _: None)


def look(these: Laws, now: float, *is_open: OpenDecision, committed: int = 0, late: bool = False) -> None:
    these.look(now, committed, is_open, late)


def test_a_decision_that_is_over_says_how() -> None:
    these = laws()
    look(these, 1.0, decision())
    these.hear(ScalingGivenUp(operator="sum", why="no VM"))
    look(these, 2.0)
    look(these, 3.0, decision(since=3.0))
    with pytest.raises(LawBroken, match="scaling of sum is over, and nothing says how"):
        look(these, 4.0)


def test_one_decision_is_open_per_operator() -> None:
    with pytest.raises(LawBroken, match="open more than once"):
        look(laws(), 2.0, decision(), decision(since=2.0))


def test_a_decision_gets_on_within_its_timeout() -> None:
    these = laws()
    look(these, 1.0, decision())
    look(these, 6.0, decision())
    with pytest.raises(LawBroken, match="open for ever"):
        look(these, 7.0, decision())


def test_a_migration_is_held_to_epochs_once_faults_are_over() -> None:
    these, migration = laws(), decision(kind="migration")
    look(these, 1.0, migration)
    look(these, 90.0, migration, committed=90)
    these.faults_are_over(91.0, is_steady=False)
    look(these, 92.0, migration, committed=92)
    with pytest.raises(LawBroken, match="has not got on for 110 epochs"):
        look(these, 110.0, migration, committed=110)


def test_what_was_asked_for_by_hand_stays_so() -> None:
    these = laws()
    look(these, 1.0, decision(by_hand=True))
    with pytest.raises(LawBroken, match="a policy has changed what was asked for by hand"):
        look(these, 2.0, decision(by_hand=False))


def test_a_late_answer_opens_nothing() -> None:
    look(laws(), 1.0, decision(by_hand=True), late=True)
    with pytest.raises(LawBroken, match="a late answer of a policy was heeded"):
        look(laws(), 1.0, decision(), late=True)


def test_what_a_policy_raises_is_its_own_affair_and_what_the_steward_raises_is_not() -> None:
    these = laws()
    these.hear(ScalingFailed(why="UserError: policy Wild fails at 3.0 s"))
    look(these, 1.0)
    these.hear(ScalingFailed(why="KeyError: 7"))
    with pytest.raises(LawBroken, match="the steward has failed: KeyError: 7"):
        look(these, 2.0)


def test_what_is_told_has_happened() -> None:
    these = laws()
    these.hear(ScaledOut(operator="sum", before=2, after=2, seconds=1.0, waited=0.0, latency_peak=0.0, why=""))
    with pytest.raises(LawBroken, match="what is told has not happened"):
        look(these, 1.0)


def test_on_a_steady_load_nothing_is_scaled_in_and_out_again() -> None:
    these, fresh = laws(), decision(since=3.0)
    these.faults_are_over(2.0, is_steady=True)
    these.hear(ScalingOut(operator="sum", before=2, after=3, why="one has hot slots"))
    look(these, 3.0, fresh)
    these.hear(ScalingIn(operator="sum", before=3, after=2, why="the others have little to do"))
    look(these, 4.0, fresh)
    these.hear(ScalingOut(operator="sum", before=2, after=3, why=""))
    with pytest.raises(LawBroken, match="sum is scaled in and out again on a steady load"):
        look(these, 5.0, fresh)


def test_when_the_run_is_over_nothing_is_open() -> None:
    these = laws()
    these.end(1.0, 0, ())
    with pytest.raises(LawBroken, match="the run is over"):
        these.end(2.0, 0, (decision(),))
