"""Migrations that were asked for: refused at once if they make no sense, and over at some time, whatever comes."""

from __future__ import annotations

import pytest

from policies.migration.settings import MigrationSettings
from policies.scaling.settings import ScalingSettings
from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.control.migration import MigrationProgress, MigrationState
from seep.control.requests import MigrationRequests
from tests.control.staging import Shell
from tests.protocol.staging import GRAPH

REQUESTS = MigrationRequests(GRAPH, MigrationSettings())


def migrate(shell: Shell, parallelism: int = 2, at: float | None = None) -> int:
    (number,) = shell.steward.migrate(shell.facts(), REQUESTS.migrate(shell.clock, {"sum": parallelism}, {}, at))
    return number


def progress(shell: Shell, number: int) -> MigrationProgress:
    (found,) = shell.steward.progress(shell.facts(), number)
    return found


def test_a_migration_moves_its_slots_and_is_over_when_both_sides_have_a_backup() -> None:
    shell = Shell(lead=0)
    number = migrate(shell)
    shell.rounds(0.1)
    assert progress(shell, number).state is MigrationState.MOVING
    shell.settle()
    shell.rounds(5)
    assert progress(shell, number).state is MigrationState.DONE
    assert shell.over == [number]
    assert shell.told() == ["migration begun", "migrated"]


def test_a_target_that_makes_no_sense_is_refused_at_once() -> None:
    shell = Shell()
    with pytest.raises(UserError, match="cannot have 5 instances"):
        migrate(shell, 5)
    assert not shell.is_open


def test_one_that_waits_for_vms_is_given_up_after_the_timeout() -> None:
    shell = Shell(free=0, scaling=ScalingSettings(timeout=30.0))
    number = migrate(shell)
    shell.rounds(29)
    assert shell.is_open
    shell.rounds(2)
    assert progress(shell, number).state is MigrationState.CANCELLED
    assert "for 30 s it waited for 1 VM" in progress(shell, number).why
    assert shell.wanted == 0
    assert shell.over == [number]


def test_one_that_is_to_begin_later_is_not_given_up_before() -> None:
    shell = Shell(scaling=ScalingSettings(timeout=30.0))
    number = migrate(shell, at=100.0)
    shell.rounds(90)
    assert progress(shell, number).state is MigrationState.WAITING
    shell.rounds(20)
    assert progress(shell, number).state is MigrationState.MOVING


def test_one_that_needs_no_vms_has_none_got_ready_for_its_time() -> None:
    shell = Shell(free=0, lead=0)
    shell.steward.migrate(shell.facts(), REQUESTS.migrate(shell.clock, {"sum": 2}, {"vertical": True}, at=2.0))
    shell.rounds(1)
    assert shell.wanted == 0
    shell.rounds(2)
    assert shell.wanted == 0
    assert "migration begun" in shell.told()


def test_one_whose_step_never_takes_effect_is_given_up_after_the_timeout() -> None:
    shell = Shell(scaling=ScalingSettings(timeout=30.0))
    number = migrate(shell)
    shell.rounds(32)
    assert progress(shell, number).state is MigrationState.CANCELLED
    assert shell.over == [number]


def test_one_whose_backups_never_come_is_over_after_the_timeout_with_all_slots_moved() -> None:
    shell = Shell(lead=0, scaling=ScalingSettings(timeout=30.0))
    number = migrate(shell)
    shell.rounds(0.1)
    shell.desk.acknowledge()
    shell.desk.tick(2)
    shell.desk.commit(shell.desk.manager.ticked)
    shell.rounds(0.1)
    assert progress(shell, number).state is MigrationState.SETTLING
    shell.rounds(32)
    assert progress(shell, number).state is MigrationState.DONE
    assert "backups of what has moved" in progress(shell, number).why


def test_what_has_moved_stays_where_it_is_when_it_is_called_off() -> None:
    shell = Shell(lead=0)
    number = migrate(shell)
    shell.steward.cancel(shell.facts(), number)
    shell.rounds(0.1)
    assert progress(shell, number).state is MigrationState.CANCELLED
    assert shell.desk.manager.topology.history["sum"][-1].assignment.slots_of(0) == SlotSet.full(2)


def test_the_steward_keeps_what_it_asked_for_and_was_answered_last() -> None:
    shell = Shell(lead=0)
    migrate(shell)
    shell.rounds(0.1)
    lines = shell.steward.ring.texts()
    assert any("MoveSlots(2, sum, 2 slots to 1" in line for line in lines)
    assert any("answer to 2 at 0.05 s: accepted, plan 1" in line for line in lines)
