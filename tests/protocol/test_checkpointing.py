"""When a checkpoint is due, what it builds on, and who keeps it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from primitives.backup import StoreOutcome
from primitives.topology import Topology
from seep.protocol.instances.checkpointing import Checkpointing, CheckpointSettings, Copy
from seep.protocol.view import Seat, View
from tests.protocol.staging import GRAPH, PASS, SUM, node_of, view_of

HOME = node_of(PASS)  # the only upstream instance lives here, so here the backups are kept
TOPOLOGY = Topology.initial(GRAPH)


def checkpointing(
    every: int = 10, changed: int | None = None, counted: Copy | None = None, epoch: int = 0, view: View | None = None
) -> Checkpointing:
    made = Checkpointing(SUM, node_of(SUM), CheckpointSettings(every, changed), counted, epoch)
    made.on_view(view or view_of(TOPOLOGY))
    return made


def moved_away(idle: Iterable[str]) -> View:
    """The upstream instance lives elsewhere now."""
    return view_of(TOPOLOGY, 2, {PASS: Seat("elsewhere", 1)}, idle)


# -- when -------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_due_some_epochs_after_the_last_one() -> None:
    machine = checkpointing(every=10, epoch=4)
    assert [machine.is_due(epoch, changed=0) for epoch in (13, 14)] == [False, True]
    machine.taken(14)
    machine.on_counted(Copy((HOME,), 14))
    assert [machine.is_due(epoch, changed=0) for epoch in (23, 24)] == [False, True]


def test_a_checkpoint_is_due_when_much_has_changed_if_that_is_asked_for() -> None:
    machine = checkpointing(changed=100)
    assert [machine.is_due(1, changed) for changed in (99, 100)] == [False, True]
    assert not checkpointing(changed=None).is_due(1, 10**9)


def test_a_checkpoint_is_due_on_demand_and_once() -> None:
    machine = checkpointing()
    machine.wanted = True
    assert machine.is_due(1, 0)
    machine.taken(1)
    machine.on_counted(Copy((HOME,), 1))
    assert not machine.is_due(1, 0)


def test_plans_that_come_soon_after_a_checkpoint_share_the_next_one() -> None:
    machine = Checkpointing(SUM, node_of(SUM), CheckpointSettings(every=1000, apart=5), None, 10)
    machine.on_view(view_of(TOPOLOGY))
    machine.wanted = False
    machine.owed = True
    assert [machine.is_due(epoch, changed=0) for epoch in (14, 15)] == [False, True]
    machine.taken(15)
    machine.on_counted(Copy((HOME,), 15))
    assert not machine.is_due(999, changed=0)


def test_only_one_checkpoint_is_under_way_at_a_time() -> None:
    machine = checkpointing()
    machine.taken(1)
    machine.wanted = True
    assert not machine.is_due(1000, 1000)
    machine.on_counted(Copy((HOME,), 1))
    assert machine.is_due(2, 0)


def test_without_another_node_there_is_nobody_to_keep_a_backup() -> None:
    here = {i: Seat("only node", 0) for i in TOPOLOGY.all_instances()}
    machine = Checkpointing(SUM, "only node", CheckpointSettings(every=1), None, 0)
    machine.on_view(view_of(TOPOLOGY, seats=here))
    machine.wanted = True
    assert (machine.holders, machine.is_due(100, 100)) == ((), False)


def test_checkpoints_of_an_incarnation_are_counted() -> None:
    machine = checkpointing()
    for epoch in (1, 2, 3):
        machine.taken(epoch)
    assert machine.serial == 3


# -- against which base -----------------------------------------------------------------------------------------------


def test_the_first_checkpoint_is_full_and_the_next_builds_on_what_was_recorded() -> None:
    machine = checkpointing()
    assert machine.base is None
    machine.taken(5)
    assert machine.on_counted(Copy((HOME,), 5))
    assert machine.base == 5


def test_who_was_restored_builds_on_the_backup_that_it_came_from() -> None:
    assert checkpointing(counted=Copy((HOME,), 5), epoch=5).base == 5


@pytest.mark.parametrize("other", [Copy((HOME,), 4), Copy(("elsewhere",), 5)])
def test_a_record_of_another_checkpoint_is_not_taken_for_the_one_under_way(other: Copy) -> None:
    machine = checkpointing()
    machine.taken(5)
    assert not machine.on_counted(other)
    assert machine.under_way == [Copy((HOME,), 5)]


def test_a_holder_that_lacks_the_base_gets_a_full_checkpoint() -> None:
    machine = checkpointing(counted=Copy((HOME,), 5), epoch=5)
    machine.taken(8)
    machine.on_refused(8, StoreOutcome.NEEDS_FULL)
    assert (machine.base, machine.is_due(8, 0)) == (None, True)


@pytest.mark.parametrize(("epoch", "why"), [(7, StoreOutcome.NEEDS_FULL), (8, StoreOutcome.FENCED)])
def test_other_refusals_change_nothing(epoch: int, why: StoreOutcome) -> None:
    machine = checkpointing(counted=Copy((HOME,), 5), epoch=5)
    machine.taken(8)
    machine.on_refused(epoch, why)
    assert (machine.under_way, machine.counted, machine.wanted) == ([Copy((HOME,), 8)], Copy((HOME,), 5), False)


# -- at whom ----------------------------------------------------------------------------------------------------------


def test_a_backup_is_kept_where_an_upstream_instance_lives() -> None:
    assert checkpointing().holders == (HOME,)


def test_upstream_instances_on_lost_nodes_are_not_asked() -> None:
    view = view_of(TOPOLOGY, lost=[HOME])
    (holder,) = checkpointing(view=view).holders
    assert holder in view.nodes - {node_of(SUM)}


def test_when_upstream_moves_a_full_backup_goes_to_its_new_place() -> None:
    machine = checkpointing(counted=Copy((HOME,), 5), epoch=5)
    machine.on_view(moved_away(idle=[HOME]))
    assert (machine.holders, machine.base, machine.is_due(6, 0)) == (("elsewhere",), None, True)
    assert machine.counted == Copy((HOME,), 5)  # the old one counts until the new one is recorded


def test_when_the_holder_fails_a_full_backup_is_due_elsewhere() -> None:
    machine = checkpointing(counted=Copy((HOME,), 5), epoch=5)
    machine.on_view(moved_away(idle=[]))
    assert (machine.counted, machine.base, machine.is_due(6, 0)) == (None, None, True)


def test_when_the_holder_fails_while_a_checkpoint_is_under_way_another_one_is_due() -> None:
    machine = checkpointing()
    machine.taken(5)
    machine.on_view(moved_away(idle=[]))
    assert (machine.under_way, machine.is_due(6, 0)) == ([], True)


def test_a_view_that_changes_nothing_about_the_holder_calls_for_no_checkpoint() -> None:
    machine = checkpointing(counted=Copy((HOME,), 5), epoch=5)
    machine.on_view(view_of(TOPOLOGY, 2))
    assert not machine.is_due(6, 0)
