"""Pacing: when the steps of a migration are due, by what they are told of time and epochs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.migration.move_stream import move_stream
from policies.migration.settings import MigrationSettings
from primitives.graph import InstanceId
from seep.control.migration import Migration, MigrationStep
from seep.control.pacing import ByTheClock, Now, StepByStep
from seep.record.facts import Handover


@dataclass(frozen=True)
class Before:
    """A step that is effective at epoch 10, and was so at 2 s."""

    first: int = 10
    effective: float | None = 2.0


def now(seconds: float = 5.0, ticked: int = 20, committed: int = 18) -> Now:
    return Now(seconds, ticked, committed, soonest=ticked + 3, horizon=ticked + 19)


def test_the_first_step_is_due_at_once_and_as_soon_as_can_be() -> None:
    course = StepByStep(MigrationSettings())
    assert course.may_begin(now(seconds=0.0))
    assert course.due(0, None, now(ticked=20)) == 23


def test_a_step_waits_until_the_one_before_has_taken_effect() -> None:
    course = StepByStep(MigrationSettings())
    assert course.due(1, Before(effective=None), now()) is None
    assert course.due(1, Before(), now()) == 23


@pytest.mark.parametrize(("committed", "due"), [(14, None), (15, 23)])
def test_without_a_gap_a_step_waits_until_hardly_more_epochs_are_open_than_usual(
    committed: int, due: int | None
) -> None:
    moment = now(seconds=2.1, ticked=20, committed=committed)._replace(usual=3)
    assert StepByStep(MigrationSettings()).due(1, Before(effective=2.0), moment) == due


@pytest.mark.parametrize(("seconds", "due"), [(2.9, None), (3.0, 23)])
def test_where_the_query_does_not_catch_up_a_step_comes_all_the_same(seconds: float, due: int | None) -> None:
    moment = now(seconds, ticked=20, committed=10)._replace(usual=3)
    assert StepByStep(MigrationSettings()).due(1, Before(effective=2.0), moment) == due


@pytest.mark.parametrize(("committed", "due"), [(14, None), (15, 23)])
def test_a_gap_in_epochs_counts_from_the_effect_of_the_step_before(committed: int, due: int | None) -> None:
    course = StepByStep(MigrationSettings(gap_epochs=5))
    assert course.due(1, Before(first=10), now(committed=committed)) == due


@pytest.mark.parametrize(("seconds", "due"), [(2.4, None), (2.5, 23)])
def test_a_gap_in_time_counts_from_the_effect_of_the_step_before(seconds: float, due: int | None) -> None:
    assert StepByStep(MigrationSettings(gap=0.5)).due(1, Before(effective=2.0), now(seconds)) == due


def test_a_migration_begins_at_its_time() -> None:
    course = StepByStep(MigrationSettings(), at=7.5)
    assert not course.may_begin(now(seconds=7.4))
    assert course.may_begin(now(seconds=7.5))


def test_a_migration_to_an_epoch_is_announced_before_it_can_be_open_and_effective_right_then() -> None:
    course = StepByStep(MigrationSettings(), epoch=100)
    assert course.due(0, None, now(ticked=80)) is None
    assert course.due(0, None, now(ticked=81)) == 100
    assert course.due(1, Before(first=100), now(ticked=110, committed=104)) == 113


@pytest.mark.parametrize(("epoch", "is_near"), [(20 + 1_200, True), (20 + 1_201, False)])
def test_vms_are_got_ready_a_minute_before_an_epoch(epoch: int, is_near: bool) -> None:
    assert StepByStep(MigrationSettings(), epoch=epoch).is_near(now(ticked=20)._replace(epoch_length=0.05)) == is_near


@pytest.mark.parametrize(("at", "is_near"), [(65.0, True), (65.1, False)])
def test_vms_are_got_ready_a_minute_before_a_time(at: float, is_near: bool) -> None:
    assert StepByStep(MigrationSettings(), at=at).is_near(now(seconds=5.0)) == is_near


def test_an_epoch_that_has_passed_already_means_as_soon_as_can_be() -> None:
    assert StepByStep(MigrationSettings(), epoch=7).due(0, None, now(ticked=20)) == 23


@given(lead=st.integers(1, 500), ticked=st.integers(0, 1_000), epoch=st.integers(0, 2_000) | st.none())
def test_a_step_is_never_effective_before_its_lead_is_over(lead: int, ticked: int, epoch: int | None) -> None:
    course = StepByStep(MigrationSettings(lead=lead), epoch=epoch)
    due = course.due(0, None, now(ticked=ticked))
    assert due is None or due >= ticked + 1 + lead
    assert due is None or epoch is None or due >= epoch


def test_steps_of_a_stream_are_due_at_their_epochs_whatever_has_become_of_others() -> None:
    rows = [{"epoch": epoch, "slot": epoch, "instance": 1} for epoch in (30, 31, 90)]
    course = ByTheClock(move_stream(rows, 8))
    assert course.may_begin(now())
    dues = [course.due(number, Before(effective=None), now(ticked=20)) for number in range(3)]
    assert dues == [30, 31, None]


def test_steps_of_a_stream_are_due_at_their_times() -> None:
    course = ByTheClock(move_stream([{"time": 1.5, "slot": 3, "instance": 1}], 8))
    assert course.due(0, None, now(seconds=1.4)) is None
    assert course.due(0, None, now(seconds=1.6, ticked=20)) == 23


# -- what is fetched ahead --------------------------------------------------------------------------------------------


def step(handed_again: int) -> MigrationStep:
    """A step that had fetched 900 bytes ahead, of which so many had changed."""
    return MigrationStep(1, 1, 10, (InstanceId("sum", 1),), 0.0, handed=Handover(nbytes=handed_again, nbytes_ahead=900))


def migration(*taken: MigrationStep, prepare: bool = True) -> Migration:
    settings = MigrationSettings(prepare=prepare)
    return Migration("sum", StepByStep(settings), 0.0, settings=settings, taken=list(taken))


def test_steps_are_prepared_unless_they_are_not_to_be() -> None:
    assert migration().is_worth_preparing
    assert not migration(prepare=False).is_worth_preparing


@pytest.mark.parametrize(("changed", "is_worth"), [(0, True), (300, True), (301, False), (900, False)])
def test_steps_are_prepared_as_long_as_little_of_what_is_fetched_changes(changed: int, is_worth: bool) -> None:
    assert migration(step(0), step(changed)).is_worth_preparing == is_worth


def test_after_a_while_without_it_is_tried_again() -> None:
    bare = MigrationStep(1, 2, 20, (InstanceId("sum", 1),), 0.0, handed=Handover(nbytes=900))
    assert not migration(step(900), *[bare] * 15).is_worth_preparing
    assert migration(step(900), *[bare] * 16).is_worth_preparing
