"""Backups on chains of holders: when they count, who is left out, who catches up, and where instances come back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.backup import StoreOutcome, retrieve_backup
from primitives.slots import SlotSet
from primitives.topology import Topology
from seep.protocol.effects import Post
from seep.protocol.holder import Holder
from seep.protocol.instances.checkpointing import Checkpointing, CheckpointSettings, Copy
from seep.protocol.manager.replication import Replication
from seep.protocol.messages import (
    BackupCounted,
    BackupRefused,
    BackupStored,
    DeleteBackup,
    FromBackup,
    NeedsBackup,
    Restored,
    StoreBackup,
    ViewChanged,
    WarmUp,
)
from seep.protocol.view import MANAGER, STORAGE, View
from tests.protocol.staging import GRAPH, OUT, PASS, SUM, SUM1, letter, letters, life, node_of, view_of
from tests.protocol.test_holder import checkpoint
from tests.protocol.test_manager import HOME, Desk, started

CHAIN = ("r1", "r2", "r3")
TOPOLOGY = Topology.initial(GRAPH)


# -- the owner --------------------------------------------------------------------------------------------------------


def view_with(group: Iterable[str], nodes: Iterable[str] = CHAIN, version: int = 2) -> View:
    made = view_of(TOPOLOGY, version, idle=nodes)
    made.groups[SUM] = tuple(group)  # type: ignore[index]
    return made


def checkpointing(
    group: Iterable[str] = CHAIN, credits: int = 1, counted: Copy | None = None, apart: int = 0
) -> Checkpointing:
    epoch = counted.epoch if counted else 0
    made = Checkpointing(SUM, node_of(SUM), CheckpointSettings(10, credits=credits, apart=apart), counted, epoch)
    made.on_view(view_with(group))
    return made


def test_a_checkpoint_goes_to_the_group_that_the_manager_has_put_together() -> None:
    assert checkpointing().holders == CHAIN


def test_its_own_node_and_nodes_that_are_gone_are_left_out_of_a_group() -> None:
    assert checkpointing(["r1", node_of(SUM), "gone", "r2"]).holders == ("r1", "r2")


def test_a_group_of_which_nobody_is_left_is_no_group() -> None:
    assert checkpointing(["gone", node_of(SUM)]).holders == (node_of(PASS),)


def test_storage_is_always_there() -> None:
    assert checkpointing([STORAGE]).holders == (STORAGE,)


def test_as_many_checkpoints_are_under_way_as_there_are_credits() -> None:
    machine = checkpointing(credits=2)
    for epoch in (3, 5):
        machine.wanted = True
        assert machine.is_due(epoch, 0)
        machine.taken(epoch)
    machine.wanted = True
    assert not machine.is_due(7, 0)
    assert machine.on_counted(Copy(CHAIN, 3))
    assert machine.is_due(7, 0)


def test_each_checkpoint_under_way_builds_on_the_one_before() -> None:
    machine = checkpointing(credits=3)
    bases = []
    for epoch in (3, 5, 7):
        bases.append(machine.base)
        machine.taken(epoch)
    assert bases == [None, 3, 5]


def test_the_record_of_a_later_checkpoint_stands_for_all_before_it() -> None:
    machine = checkpointing(credits=3)
    for epoch in (3, 5, 7):
        machine.taken(epoch)
    assert machine.on_counted(Copy(CHAIN, 5))
    assert machine.under_way == [Copy(CHAIN, 7)]


def test_when_a_replica_is_lost_the_next_checkpoint_builds_on_what_the_head_was_sent() -> None:
    machine = checkpointing(counted=Copy(CHAIN, 4))
    machine.taken(8)
    machine.on_view(view_with(["r1", "r3", "r4"], ["r1", "r3", "r4"], 3))
    assert (machine.holders, machine.base, machine.is_due(8, 0)) == (("r1", "r3", "r4"), 8, True)


def test_when_the_head_is_lost_the_next_checkpoint_builds_on_what_was_recorded() -> None:
    machine = checkpointing(counted=Copy(CHAIN, 4))
    machine.taken(8)
    machine.on_view(view_with(["r2", "r3"], ["r2", "r3"], 3))
    assert (machine.holders, machine.base, machine.is_due(9, 0)) == (("r2", "r3"), 4, True)


def test_a_head_that_has_another_epoch_is_sent_what_changed_since_that_one() -> None:
    machine = checkpointing(counted=Copy(CHAIN, 4))
    machine.taken(8)
    machine.on_refused(8, StoreOutcome.NEEDS_FULL, has=6)
    assert (machine.base, machine.is_due(8, 0)) == (6, True)


def test_a_new_member_calls_for_a_checkpoint_even_of_the_same_epoch() -> None:
    machine = checkpointing(["r1", "r2"], counted=Copy(("r1", "r2"), 4))
    assert not machine.is_due(4, 0)
    machine.on_view(view_with(["r1", "r3"], version=3))
    assert (machine.base, machine.is_due(4, 0)) == (4, True)


def test_another_order_of_the_same_members_calls_for_nothing() -> None:
    machine = checkpointing(["r1", "r2"], counted=Copy(("r1", "r2"), 4))
    machine.on_view(view_with(["r2", "r1"], version=3))
    assert not machine.is_due(5, 0)


def test_an_owner_that_began_from_its_own_nodes_backup_has_that_passed_on_instead_of_sending_all_again() -> None:
    home = node_of(SUM)
    machine = checkpointing(["r1", "r2"], counted=Copy((home,), 4), apart=3)
    assert (machine.holders, machine.base) == ((home, "r1", "r2"), 4)
    assert not machine.is_due(5, 0), "what was lost by the way is made good first"
    machine.wanted = True
    machine.taken(6)
    assert machine.on_counted(Copy((home, "r1", "r2"), 6))
    assert (machine.holders, machine.base) == (("r1", "r2"), 6)


# -- the holders ------------------------------------------------------------------------------------------------------


class Chain:
    """Holders that pass letters on, and what they told the manager."""

    def __init__(self, *names: str) -> None:
        self.holders = {name: Holder(name) for name in names}
        self.told: list[tuple[str, BackupStored]] = []
        self.refused: list[BackupRefused] = []
        for holder in self.holders.values():
            holder.on_view(view_of(TOPOLOGY, idle=names))

    def store(self, *letters: StoreBackup) -> None:
        for each in letters:
            self._deliver("owner's node", each.chain[0], each)

    def _deliver(self, sender: str, to: str, body: object) -> None:
        holder = self.holders[to]
        match body:
            case StoreBackup():
                effects = holder.on_store(sender, body)
            case NeedsBackup():
                effects = holder.on_needs(sender, body)
        for effect in effects:
            assert isinstance(effect, Post)
            if effect.to == MANAGER:
                self.told.append((to, effect.body))
            elif isinstance(effect.body, BackupRefused):
                self.refused.append(effect.body)
            else:
                self._deliver(to, effect.to, effect.body)

    def epochs(self) -> dict[str, int | None]:
        return {name: holder.store.epoch(SUM) for name, holder in self.holders.items()}


def test_a_checkpoint_is_passed_on_through_the_whole_chain() -> None:
    chain = Chain(*CHAIN)
    chain.store(StoreBackup(checkpoint(5), CHAIN))
    assert chain.epochs() == dict.fromkeys(CHAIN, 5)
    assert [(name, said.chain) for name, said in chain.told] == [(name, CHAIN) for name in CHAIN]


def test_a_holder_that_is_gone_is_passed_over() -> None:
    chain = Chain("r1", "r3")
    chain.store(StoreBackup(checkpoint(5), CHAIN))
    assert chain.epochs() == {"r1": 5, "r3": 5}


def test_a_new_member_catches_up_with_the_one_before_it_and_the_owner_hears_nothing_of_it() -> None:
    chain = Chain(*CHAIN)
    chain.store(StoreBackup(checkpoint(5), CHAIN[:2]), StoreBackup(checkpoint(8, base=5), CHAIN))
    assert chain.epochs() == dict.fromkeys(CHAIN, 8)
    assert not chain.refused
    first, last = (retrieve_backup(chain.holders[name].store, SUM) for name in ("r1", "r3"))
    assert first is not None
    assert last is not None
    assert (first.slots, first.epoch, len(first.state)) == (last.slots, last.epoch, len(last.state))


def test_a_copy_that_a_newer_checkpoint_has_overtaken_does_not_undo_it() -> None:
    chain = Chain("r1", "r2")
    chain.store(StoreBackup(checkpoint(5), ("r1", "r2")))
    whole = retrieve_backup(chain.holders["r1"].store, SUM)  # r2 has asked for it twice, and waits for the second one
    assert whole is not None
    chain.store(StoreBackup(checkpoint(8, base=5), ("r2",)))  # meanwhile r1 has left the chain
    chain._deliver("r1", "r2", StoreBackup(whole, ("r1", "r2")))
    assert chain.epochs()["r2"] == 8


def test_the_head_asks_the_owner_and_says_what_it_has() -> None:
    chain = Chain(*CHAIN)
    chain.store(StoreBackup(checkpoint(5), CHAIN), StoreBackup(checkpoint(8, base=7), CHAIN))
    assert chain.refused == [BackupRefused(life(SUM), 8, StoreOutcome.NEEDS_FULL, 5)]


def test_a_member_whose_predecessor_has_nothing_either_waits_for_the_next_checkpoint() -> None:
    assert Holder("r1").on_needs("r2", NeedsBackup(SUM, CHAIN)) == []


# -- what counts ------------------------------------------------------------------------------------------------------

NODES = ("r1", "r2")


def desk(*nodes: str) -> Desk:
    """With the first two nodes as the group of the one instance that has state."""
    made = Desk(spare=nodes or NODES)
    made.manager.replicate({SUM: NODES})
    made.acknowledge()
    return made


def stored(at: Desk, node: str, epoch: int, chain: tuple[str, ...] = NODES) -> list[object]:
    number = at.current(SUM).incarnation
    return letters(at.hear(node, BackupStored(life(SUM, number), epoch, (number, epoch), chain)), BackupCounted)


def test_all_nodes_learn_of_a_group() -> None:
    made = Desk(spare=NODES)
    views = letters(made.manager.replicate({SUM: NODES}), ViewChanged)
    assert {view.view.groups[SUM] for view in views} == {NODES}
    assert made.manager.replicate({SUM: NODES}) == []


def test_groups_name_live_nodes_and_instances_with_state_only() -> None:
    made = Desk(spare=["r1"])
    made.manager.replicate({SUM: ("r1", "gone", "r1"), PASS: ("r1",), SUM1: ("r1",)})
    assert made.manager.replication.groups == {SUM: ("r1",)}


def test_a_backup_counts_when_the_whole_chain_has_it() -> None:
    made = desk()
    assert stored(made, "r1", 4) == []
    assert made.manager.safe.of(SUM) == 0
    assert stored(made, "r2", 4) == [BackupCounted(life(SUM), 4, NODES)]
    assert made.manager.safe.of(SUM) == 4


def test_a_holder_may_be_ahead_of_the_others_all_the_time() -> None:
    made = desk()
    counted = [stored(made, node, epoch) for node, epoch in [("r1", 4), ("r1", 6), ("r2", 4), ("r1", 8), ("r2", 6)]]
    assert [bool(each) for each in counted] == [False, False, True, False, True]
    assert made.manager.safe.of(SUM) == 6


def test_what_waited_for_a_holder_that_is_lost_counts_without_it() -> None:
    made = desk()
    stored(made, "r1", 4)
    effects = made.manager.node_lost("r2")
    assert letter(effects, BackupCounted) == BackupCounted(life(SUM), 4, ("r1",))
    assert made.manager.backups[SUM].holders == ("r1",)


def test_holders_that_are_no_longer_in_the_chain_delete_what_they_have_once_the_new_ones_have_it() -> None:
    made = desk("r1", "r2", "r3")
    for node in NODES:
        stored(made, node, 4)
    new = ("r1", "r3")
    assert stored(made, "r1", 6, new) == []
    effects = made.hear("r3", BackupStored(life(SUM), 6, (0, 6), new))
    assert [(e.to, e.body) for e in effects if isinstance(e, Post) and isinstance(e.body, DeleteBackup)] == [
        ("r2", DeleteBackup(SUM, (0, 6)))
    ]


def test_a_lost_instance_comes_back_on_a_replica_though_another_node_is_idle() -> None:
    made = desk("r1", "r2", "idle")
    for node in NODES:
        stored(made, node, 4)
    begun = started(made.manager.node_lost(HOME[SUM]))
    home = made.current(SUM).node
    other = next(node for node in NODES if node != home)
    assert begun.origin == FromBackup(home, None, (other,), 4)


def test_after_a_restore_from_one_replica_no_more_is_safe_than_all_have() -> None:
    made = desk()
    for node in NODES:
        stored(made, node, 4)
    stored(made, "r1", 6)  # it alone has this
    made.manager.node_lost(HOME[SUM])
    made.hear("r1", Restored(life(SUM, 1), 6, "r1", None))
    assert made.manager.safe.of(SUM) == 4
    assert made.manager.backups[SUM].holders == NODES


def test_new_instances_fetch_their_slots_from_different_replicas() -> None:
    made = desk("r1", "r2", "a", "b")
    for node in NODES:
        stored(made, node, 4)
    _, effects = made.manager.move("sum", {1: SlotSet([2]), 2: SlotSet([3])})
    assert {order.holder for order in letters(effects, WarmUp)} == set(NODES)


def test_a_vertical_move_goes_to_a_replica_in_use_and_any_other_to_an_idle_node() -> None:
    for vertical in (True, False):
        made = Desk(spare=["idle"])
        made.manager.replicate({SUM: (HOME[OUT],)})
        made.acknowledge()
        stored(made, HOME[OUT], 4, (HOME[OUT],))
        made.manager.move("sum", {1: SlotSet([2])}, vertical=vertical)
        assert made.current(SUM1).node == (HOME[OUT] if vertical else "idle")


def test_a_backup_in_storage_counts_whoever_tells_of_it() -> None:
    made = Desk()
    made.manager.replicate({SUM: (STORAGE,)})
    effects = made.hear(HOME[SUM], BackupStored(life(SUM), 4, (0, 4), (STORAGE,)))
    assert letter(effects, BackupCounted) == BackupCounted(life(SUM), 4, (STORAGE,))
    assert started(made.manager.node_lost(HOME[SUM])).origin == FromBackup(STORAGE)


# -- holders that stay behind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pulses", "group"), [(5, NODES), (8, ("r1",))], ids=["in time", "too late"])
def test_a_holder_that_stays_behind_for_too_long_is_left_out(pulses: int, group: tuple[str, ...]) -> None:
    made = Desk(spare=NODES, patience={"sum": 6}, window=100)  # type: ignore[arg-type]
    made.manager.replicate({SUM: NODES})
    made.acknowledge()
    stored(made, "r1", 4)
    made.tick(pulses)
    assert made.manager.replication.groups[SUM] == group


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30))
def test_a_holder_that_is_always_some_behind_but_goes_on_is_never_late(steps: list[int]) -> None:
    replication, epoch = Replication(), {"r1": 3, "r2": 0}
    for pulse, step in enumerate(steps):
        for node in NODES:
            epoch[node] += step
            told = BackupStored(life(SUM), epoch[node], (0, epoch[node]), NODES)
            replication.stored(node, told, NODES, pulse)
        assert not replication.late(pulse, {"sum": 4}, NODES)


def test_what_one_holder_had_of_an_earlier_incarnation_does_not_count_for_the_next() -> None:
    """The next one began from an older backup: rows that it has yet to read would be trimmed."""
    replication, live = Replication(), ("r1", "r2")
    replication.stored("r1", BackupStored(life(SUM), 9, (0, 5), live), live, 0)
    assert replication.counts(SUM, live) is None, "the other one has not got it"
    replication.begin(SUM)
    replication.stored("r2", BackupStored(life(SUM, 1), 5, (1, 0), live), live, 1)
    assert replication.counts(SUM, live) is None
    replication.stored("r1", BackupStored(life(SUM, 1), 5, (1, 0), live), live, 2)
    counted = replication.counts(SUM, live)
    assert counted is not None
    assert (counted[0], counted[1].order) == (5, (1, 0))
