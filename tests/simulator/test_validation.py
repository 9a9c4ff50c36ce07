"""Each rule about what machines keep, switched off, is found by `validate`, also where the output is still exact."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.moves import Moves
from seep.protocol.manager.recovery import Recovery
from seep.protocol.manager.replication import Replication
from seep.protocol.manager.roster import Roster
from seep.protocol.manager.safety import SafeEpochs
from seep.protocol.manager.source_log import SourceLog
from seep.protocol.node import Node
from seep.simulator.faults import What
from seep.simulator.schedule import Plan, Verdict, run_schedule
from seep.simulator.world import Limits

LIMITS = Limits(steps=20_000)


def keep_replication_of_retired_instances() -> AbstractContextManager[Any]:
    return patch.object(Replication, "retire", lambda _self, _owner: None)


def keep_the_log_of_retired_sources() -> AbstractContextManager[Any]:
    return patch.object(SourceLog, "forget", lambda _self, _source: None)


def keep_the_numbers_of_retired_instances() -> AbstractContextManager[Any]:
    return patch.object(Roster, "forget", lambda _self, _instance: None)


def keep_backups_recorded_on_lost_nodes() -> AbstractContextManager[Any]:
    return patch.object(BackupRegistry, "lose", lambda _self, _node: None)


def move_slots_that_are_on_their_way() -> AbstractContextManager[Any]:
    return patch.object(Moves, "_conflict", lambda _self, _operator, _parts: None)


def open_the_epoch_of_a_plan_that_is_not_sealed() -> AbstractContextManager[Any]:
    return patch.object(Moves, "holds_back", lambda _self, _epoch: False)


def leave_a_pin_behind() -> AbstractContextManager[Any]:
    return patch.object(SafeEpochs, "unpin", lambda _self, _instance: None)


def recover_nothing() -> AbstractContextManager[Any]:
    return patch.object(Recovery, "_recover", lambda _self, _instance: None)


def forget_the_letters_that_waited_for_a_view() -> AbstractContextManager[Any]:
    return patch.object(Node, "_catch_up", lambda _self: [])


MOVES = (What.MOVE, What.MOVE_BACK, What.BLIND_MOVE)

#: The rule, the kinds of fault that show it soonest, and the words that say what does not hold.
KEPT: dict[Callable[[], AbstractContextManager[Any]], tuple[tuple[What, ...], str]] = {
    keep_replication_of_retired_instances: (MOVES, "replication is kept for"),
    keep_the_log_of_retired_sources: ((What.DRAIN, *MOVES), "a source log is kept for"),
    keep_the_numbers_of_retired_instances: (MOVES, "incarnations are numbered of"),
    keep_backups_recorded_on_lost_nodes: ((What.KILL, What.CHECKPOINT), "which is lost"),
    move_slots_that_are_on_their_way: (MOVES, "that another plan is still moving"),
    open_the_epoch_of_a_plan_that_is_not_sealed: (MOVES, "was sealed"),
    leave_a_pin_behind: ((What.SPLIT, What.CHECKPOINT), "and pinned is"),
    recover_nothing: ((What.KILL,), "which is lost, and nothing is done about it"),
    forget_the_letters_that_waited_for_a_view: ((), "still waits"),
}


@pytest.mark.parametrize("broken", KEPT, ids=lambda rule: rule.__name__)
def test_a_machine_that_is_not_as_it_must_be_is_found(broken: Callable[[], AbstractContextManager[Any]]) -> None:
    kinds, words = KEPT[broken]
    with broken():
        outcomes = (run_schedule(seed, Plan(only=kinds, limits=LIMITS)) for seed in range(300))
        notes = (outcome.note for outcome in outcomes if outcome.verdict is Verdict.VIOLATION)
        assert any(note.startswith("InternalError: ") and words in note for note in notes)
