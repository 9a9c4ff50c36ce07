"""The manager, letter by letter: ticks, safe epochs, the end, recovery, moves and splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Arrival, Assignment
from seep.protocol.cuts import Cut, CutAbandoned, CutPart
from seep.protocol.effects import Effect, Finished, LogOffsets, Post, StateLost
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Accepted, Refusal, Refused
from seep.protocol.manager.state import ManagerSettings, QueryPhase
from seep.protocol.messages import (
    AdoptParts,
    BackupCounted,
    BackupFound,
    BackupStored,
    Committed,
    DeleteBackup,
    DropParts,
    FindBackup,
    FromBackup,
    FromCommits,
    FromLog,
    FromNothing,
    Logged,
    NodeFenced,
    OffsetsRead,
    PartitionBackup,
    Partitioned,
    Persisted,
    PersistFailed,
    Restored,
    RestoreFailed,
    StartInstance,
    StopInstance,
    TakeCheckpoint,
    Tick,
    Trim,
    ViewAcknowledged,
    ViewChanged,
    WarmUp,
)
from seep.protocol.view import STORAGE, Seat
from tests.protocol.staging import (
    ALL,
    GRAPH,
    NUMBERS,
    OUT,
    PASS,
    SUM,
    SUM1,
    SUM2,
    addressees,
    events,
    letter,
    letters,
    life,
    node_of,
    of_kind,
)

HOME = {instance: node_of(instance) for instance in (NUMBERS, PASS, SUM, OUT)}
KEEPER = HOME[PASS]
SPARE = "spare node"


class Desk:
    """A manager and the letters that reach it, each instance on a node of its own unless said otherwise."""

    def __init__(
        self, homes: Mapping[InstanceId, str] = HOME, spare: Iterable[str] = (), **settings: int | bool | frozenset[str]
    ) -> None:
        self.manager = Manager(GRAPH, settings=ManagerSettings(**settings))  # type: ignore[arg-type]
        for node in [*dict.fromkeys(homes.values()), *spare]:
            self.manager.node_joined(node)
        self.launched = self.manager.launch(homes)
        self.acknowledge()

    def hear(self, node: str, body: object) -> list[Effect]:
        return self.manager.receive(node, body)

    def acknowledge(self, but: Iterable[str] = ()) -> list[Effect]:
        """All nodes have the newest view."""
        nodes = [node for node in self.manager.nodes if node not in but]
        return [e for node in nodes for e in self.hear(node, ViewAcknowledged(self.manager.version))]

    def tick(self, times: int = 1) -> list[Effect]:
        return [effect for _ in range(times) for effect in self.manager.pulse()]

    def current(self, instance: InstanceId) -> Seat:
        return self.manager.placement[instance]

    def back_up(
        self, instance: InstanceId, epoch: int, holder: str = KEEPER, serial: int | None = None
    ) -> list[Effect]:
        """The instance's present incarnation has backed up."""
        number = self.current(instance).incarnation
        order = (number, epoch if serial is None else serial)
        return self.hear(holder, BackupStored(life(instance, number), epoch, order))

    def commit(self, epoch: int, sink: InstanceId = OUT) -> list[Effect]:
        seat = self.current(sink)
        return self.hear(seat.node, Committed(life(sink, seat.incarnation), epoch))

    def read(self, epoch: int, exhausted: bool = False) -> list[Effect]:
        """The source has read an epoch."""
        seat = self.current(NUMBERS)
        identity = life(NUMBERS, seat.incarnation)
        return self.hear(seat.node, OffsetsRead(identity, epoch, {0: epoch, 1: epoch}, exhausted))

    def settle(self, epoch: int) -> list[Effect]:
        """Everything is backed up and committed up to an epoch."""
        for instance in [i for i in self.manager.placement if i.operator == "sum"]:
            self.back_up(instance, epoch)
        self.commit(epoch)
        return [effect for _ in range(4) for effect in self.manager.pulse()]


def starts(effects: Iterable[Effect]) -> dict[str, list[StartInstance]]:
    """What is to be started, by node, by views and by letters of its own."""
    found: dict[str, list[StartInstance]] = {}
    for effect in effects:
        match effect:
            case Post(node, ViewChanged(_, begun)) if begun:
                found.setdefault(node, []).extend(begun)
            case Post(node, StartInstance() as begun):
                found.setdefault(node, []).append(begun)
    return found


def started(effects: Iterable[Effect]) -> StartInstance:
    """The only instance that is to be started."""
    ((begun,),) = starts(effects).values()
    return begun


# -- launch -----------------------------------------------------------------------------------------------------------


def test_a_query_without_nodes_is_not_launched() -> None:
    with pytest.raises(UserError, match="no node has registered"):
        Manager(GRAPH).launch()


def test_every_instance_begins_empty_on_the_node_it_was_given() -> None:
    begun = {start.identity: (node, start.origin) for node, each in starts(Desk().launched).items() for start in each}
    assert begun == {
        life(NUMBERS): (HOME[NUMBERS], FromLog(0, {}, {}, 0, False)),
        life(PASS): (HOME[PASS], FromNothing(0)),
        life(SUM): (HOME[SUM], FromNothing(0)),
        life(OUT): (HOME[OUT], FromCommits(0)),
    }


def test_instances_are_spread_over_the_least_loaded_nodes() -> None:
    manager = Manager(GRAPH, {"sum": 3})
    for node in ("a", "b"):
        manager.node_joined(node)
    manager.launch()
    assert sorted(seat.node for seat in manager.placement.values()) == ["a"] * 3 + ["b"] * 3


def test_all_nodes_hear_of_a_launch_also_idle_ones() -> None:
    assert set(addressees(Desk(spare=[SPARE]).launched, ViewChanged)) == {*HOME.values(), SPARE}


def test_whoever_was_given_up_is_told_so_whatever_it_says() -> None:
    assert Desk().hear("a stranger", Committed(life(OUT), 9)) == [Post("a stranger", NodeFenced())]


# -- ticks and the end ------------------------------------------------------------------------------------------------


def test_a_tick_opens_an_epoch_at_the_sources() -> None:
    effects = Desk().tick()
    assert (letter(effects, Tick), addressees(effects, Tick)) == (Tick(life(NUMBERS), 1, False), [HOME[NUMBERS]])


def test_a_tick_tells_sources_how_far_the_query_has_come() -> None:
    desk = Desk()
    desk.tick(3)
    desk.commit(2)
    assert letter(desk.tick(), Tick) == Tick(life(NUMBERS), 4, False, committed=2)


def test_no_more_epochs_are_open_than_the_window_allows() -> None:
    desk = Desk(window=3)
    assert [tick.epoch for tick in letters(desk.tick(9), Tick)] == [1, 2, 3]
    desk.commit(2)
    assert [tick.epoch for tick in letters(desk.tick(9), Tick)] == [4, 5]


def test_offsets_are_in_the_log_before_the_source_hears_that_its_data_may_leave() -> None:
    desk = Desk()
    desk.tick()
    effects = [effect for effect in desk.read(1) if not isinstance(effect, Post) or isinstance(effect.body, Logged)]
    assert effects == [LogOffsets(NUMBERS, 1, {0: 1, 1: 1}), Post(HOME[NUMBERS], Logged(life(NUMBERS), 1))]


def test_what_a_replaced_source_has_read_is_not_logged() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick()
    desk.manager.node_lost(HOME[NUMBERS])
    assert desk.hear(SPARE, OffsetsRead(life(NUMBERS), 1, {0: 1}, False)) == []


def test_a_query_ends_one_epoch_after_its_input_when_all_sinks_have_committed() -> None:
    desk = Desk()
    desk.tick(2)
    desk.read(1)
    desk.read(2, exhausted=True)
    assert letter(desk.tick(9), Tick) == Tick(life(NUMBERS), 3, True)
    assert of_kind(desk.commit(2), Finished) == []
    assert of_kind(desk.commit(3), Finished) == [Finished(3)]
    assert desk.manager.phase is QueryPhase.FINISHED
    assert desk.commit(3) == desk.tick() == []


def test_input_that_is_ended_early_ends_with_the_next_epoch_and_only_once() -> None:
    desk = Desk()
    desk.tick(2)
    assert desk.manager.finish() == []
    assert letter(desk.tick(), Tick) == Tick(life(NUMBERS), 3, True)
    desk.read(3)
    assert desk.manager.finish() == []
    assert of_kind(desk.tick(5), Post) == []
    assert of_kind(desk.commit(3), Finished) == [Finished(3)]


def last_cut_of(desk: Desk) -> Cut:
    """Announces it, and has all nodes hear of it."""
    cut, effects = desk.manager.persist(last=True)
    assert cut is not None
    assert of_kind(effects, Post)
    desk.acknowledge()
    return cut


def persisted(desk: Desk, cut: Cut) -> list[Effect]:
    seat = desk.current(SUM)
    part = CutPart(desk.manager.topology.slots(SUM, cut.epoch), None, "state")
    return desk.hear(seat.node, Persisted(life(SUM, seat.incarnation), cut.id, part))


@pytest.mark.parametrize("exhausted", [True, False], ids=["by itself", "early"])
def test_a_query_with_a_last_cut_ends_with_that_and_not_before_it_is_complete(exhausted: bool) -> None:
    desk = Desk(last_cut=True)
    desk.tick()
    desk.read(1, exhausted)
    if not exhausted:
        desk.manager.finish()
    assert desk.manager.ending
    assert desk.manager.persist()[0] is None, "only the last one is to come"
    cut = last_cut_of(desk)
    assert of_kind(desk.tick(9), Post)[-1].body == Tick(life(NUMBERS), cut.epoch, True)
    assert of_kind(desk.commit(cut.epoch), Finished) == []
    assert of_kind(persisted(desk, cut), Finished) == [Finished(cut.epoch)]


def test_a_last_cut_that_fails_before_its_epoch_is_open_may_be_tried_again_and_later_not() -> None:
    desk = Desk(last_cut=True)
    desk.manager.finish()
    for is_open in (False, True):
        cut = last_cut_of(desk)
        desk.tick(9 * is_open)
        [abandoned] = of_kind(desk.hear(HOME[SUM], PersistFailed(life(SUM), cut.id, "full")), CutAbandoned)
        assert abandoned.cut == cut
        assert (desk.manager.final is None) == (not is_open)
    assert desk.manager.persist(last=True)[0] is None


def test_a_source_that_is_healed_is_told_of_the_final_epoch_only_when_that_is_certain() -> None:
    desk = Desk(last_cut=True, spare=[SPARE])
    desk.manager.finish()
    cut = last_cut_of(desk)
    begun = started(desk.manager.node_lost(HOME[NUMBERS]))
    assert begun.origin == FromLog(0, {}, {}, 0, final=False), "another epoch is the final one if this cut is abandoned"
    desk.acknowledge()
    desk.tick(9)
    assert desk.manager.ticked == cut.epoch
    desk.manager.node_joined("another")
    assert started(desk.manager.node_lost(SPARE)).origin == FromLog(0, {}, {}, cut.epoch, final=True)


def test_a_cut_may_be_abandoned_from_outside_and_the_next_one_announced() -> None:
    desk = Desk()
    cut, _ = desk.manager.persist()
    assert cut is not None
    assert desk.manager.abandon_cut(cut.id + 1, "another one") == []
    assert desk.manager.abandon_cut(cut.id, "not complete in time") == [CutAbandoned(cut, "not complete in time")]
    assert desk.manager.abandon_cut(cut.id, "again") == []
    desk.acknowledge()
    assert persisted(desk, cut) == [], "a part that comes late is of no cut"
    assert desk.manager.persist()[0] is not None


def test_nothing_moves_while_a_query_waits_for_its_last_cut() -> None:
    desk = Desk(last_cut=True)
    desk.manager.finish()
    refused, _ = desk.manager.move("sum", {1: SlotSet.range(0, 1)})
    assert isinstance(refused, Refused)
    assert refused.why is Refusal.ENDING


def test_trims_wait_for_their_turn() -> None:
    desk = Desk(trim_every=3)
    desk.tick()
    desk.read(1)
    desk.commit(1)
    desk.back_up(SUM, 1)
    assert not [post for post in of_kind(desk.tick(), Post) if isinstance(post.body, Trim)]
    assert [post for post in of_kind(desk.tick(), Post) if isinstance(post.body, Trim)]


def test_nodes_of_the_same_vm_are_told_to_all() -> None:
    manager = Manager(GRAPH)
    for node, vm in (("a", "vm 1"), ("b", "vm 1"), ("c", None)):
        manager.node_joined(node, vm)
    views = [post.body.view for post in of_kind(manager.launch(), Post) if isinstance(post.body, ViewChanged)]
    assert [view.vms for view in views] == [{"a": "vm 1", "b": "vm 1"}] * 3


# -- safe epochs ------------------------------------------------------------------------------------------------------


def test_a_backup_counts_once_it_is_recorded_and_the_owner_is_told() -> None:
    desk = Desk()
    desk.tick(5)
    effects = desk.back_up(SUM, 4)
    assert effects == [Post(HOME[SUM], BackupCounted(life(SUM), 4, (KEEPER,)))]
    assert desk.manager.safe.of(SUM) == 4


def test_an_old_copy_is_deleted_only_when_the_new_one_is_recorded() -> None:
    desk = Desk()
    desk.back_up(SUM, 4, serial=0)
    effects = desk.back_up(SUM, 6, HOME[NUMBERS], serial=1)
    assert effects[0] == Post(KEEPER, DeleteBackup(SUM, (0, 1)))
    assert letter(effects, BackupCounted) == BackupCounted(life(SUM), 6, (HOME[NUMBERS],))


def test_a_newer_backup_at_the_same_holder_deletes_nothing() -> None:
    desk = Desk()
    desk.back_up(SUM, 4)
    assert letters(desk.back_up(SUM, 6), DeleteBackup) == []


def test_a_backup_of_a_replaced_incarnation_does_not_count_and_is_deleted() -> None:
    desk = Desk(spare=[SPARE])
    desk.manager.node_lost(HOME[SUM])
    effects = desk.hear(HOME[OUT], BackupStored(life(SUM), 4, (0, 7)))
    assert effects == [Post(HOME[OUT], DeleteBackup(SUM, (0, 7)))]
    assert desk.manager.safe.of(SUM) == 0


def test_commits_of_a_replaced_sink_do_not_count() -> None:
    desk = Desk(spare=[SPARE])
    desk.manager.node_lost(HOME[OUT])
    desk.hear(SPARE, Committed(life(OUT), 7))
    assert desk.manager.safe.of(OUT) == 0


def test_what_is_safe_downstream_is_trimmed_upstream() -> None:
    desk = Desk()
    desk.tick(8)
    desk.back_up(SUM, 4)
    desk.commit(6)
    effects = desk.tick(3)
    assert set(letters(effects, Trim)) == {Trim(life(SUM), 6), Trim(life(PASS), 4), Trim(life(NUMBERS), 4)}
    assert set(addressees(effects, Trim)) == {HOME[SUM], HOME[PASS], HOME[NUMBERS]}


def test_checkpoints_are_asked_of_stateful_instances_only() -> None:
    desk = Desk()
    effects = desk.manager.checkpoint()
    assert effects == desk.manager.checkpoint("sum") == [Post(HOME[SUM], TakeCheckpoint(life(SUM)))]
    assert desk.manager.checkpoint("pass") == []


# -- recovery ---------------------------------------------------------------------------------------------------------


def test_a_lost_source_reads_again_what_was_logged_and_may_still_be_asked_for() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(6)
    for epoch in (1, 2, 3, 4, 5):
        desk.read(epoch)
    desk.settle(3)
    effects = desk.manager.node_lost(HOME[NUMBERS])
    records = {4: {0: 4, 1: 4}, 5: {0: 5, 1: 5}}
    origin = FromLog(3, {0: 3, 1: 3}, records, desk.manager.ticked, False)
    assert starts(effects) == {SPARE: [StartInstance(life(NUMBERS, 1), origin, 3)]}


def test_a_lost_stateless_instance_begins_empty_behind_what_all_its_receivers_have() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(6)
    desk.back_up(SUM, 4)
    desk.tick(2)
    assert started(desk.manager.node_lost(HOME[PASS])) == StartInstance(life(PASS, 1), FromNothing(4), 4)


def test_a_lost_sink_begins_behind_its_last_commit() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(6)
    desk.commit(4)
    assert started(desk.manager.node_lost(HOME[OUT])).origin == FromCommits(4)


def test_a_lost_stateful_instance_is_restored_from_its_backup() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(6)
    desk.back_up(SUM, 4)
    effects = desk.manager.node_lost(HOME[SUM])
    assert starts(effects) == {SPARE: [StartInstance(life(SUM, 1), FromBackup(KEEPER), 0)]}
    assert events(effects) == ["node lost", "rebound"]
    assert HOME[SUM] not in addressees(effects, ViewChanged)


def test_a_stateful_instance_that_was_never_backed_up_begins_empty_again() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(3)
    assert started(desk.manager.node_lost(HOME[SUM])).origin == FromNothing(0)


def test_a_node_can_be_lost_once() -> None:
    desk = Desk(spare=[SPARE])
    desk.manager.node_lost(HOME[SUM])
    assert desk.manager.node_lost(HOME[SUM]) == []


def test_an_instance_without_a_node_waits_for_one() -> None:
    desk = Desk(homes=dict.fromkeys(HOME, "only node"))
    assert starts(desk.manager.node_lost("only node")) == {}
    begun = starts(desk.manager.node_joined("fresh node"))
    assert sorted(start.identity for start in begun["fresh node"]) == sorted(life(i, 1) for i in HOME)


def test_what_a_successor_was_restored_from_is_its_backup() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(8)
    desk.back_up(SUM, 4)
    desk.manager.node_lost(HOME[SUM])
    desk.hear(SPARE, Restored(life(SUM, 1), 6, KEEPER, None))  # the holder had one that was not recorded
    assert desk.manager.safe.of(SUM) == 6


def test_a_cut_that_a_successor_will_not_write_is_abandoned_also_if_its_holder_has_been_lost_meanwhile() -> None:
    desk = Desk(spare=[SPARE])
    cut, _ = desk.manager.persist()
    assert cut is not None
    desk.acknowledge()
    desk.tick(8)
    desk.back_up(SUM, cut.epoch)
    desk.manager.node_lost(HOME[SUM])
    desk.manager.node_lost(KEEPER)
    effects = desk.hear(SPARE, Restored(life(SUM, 1), cut.epoch, KEEPER, None))
    assert [abandoned.cut for abandoned in of_kind(effects, CutAbandoned)] == [cut]
    assert "restored" in events(effects)
    assert SUM not in desk.manager.backups


def test_a_successor_that_is_lost_while_it_restores_is_followed_by_another() -> None:
    desk = Desk(spare=[SPARE, "another"])
    desk.back_up(SUM, 4)
    desk.manager.node_lost(HOME[SUM])
    effects = desk.manager.node_lost(desk.current(SUM).node)
    assert started(effects).identity == life(SUM, 2)
    assert started(effects).origin == FromBackup(KEEPER)


# -- every recorded copy is gone --------------------------------------------------------------------------------------


def lost_with_its_holder() -> tuple[Desk, list[Effect]]:
    """sum[0] and the only recorded copy of its state are lost at once."""
    desk = Desk(spare=[SPARE])
    desk.tick(6)
    desk.back_up(SUM, 4)
    desk.manager.node_lost(KEEPER)
    return desk, desk.manager.node_lost(HOME[SUM])


def test_when_owner_and_holder_are_lost_all_nodes_are_asked_for_an_unrecorded_copy() -> None:
    desk, effects = lost_with_its_holder()
    assert set(letters(effects, FindBackup)) == {FindBackup(life(SUM))}
    assert set(addressees(effects, FindBackup)) == set(desk.manager.nodes)
    assert of_kind(effects, StateLost) == []


def test_the_storage_is_asked_too_if_any_group_ever_had_it() -> None:
    """A copy from then may be there although nobody has recorded it, and the group is another one by now."""
    desk = Desk(spare=[SPARE, "another"])
    desk.manager.replicate({SUM: (STORAGE,)})
    desk.manager.replicate({SUM: (KEEPER,)})
    desk.back_up(SUM, 4)
    desk.manager.node_lost(KEEPER)
    effects = desk.manager.node_lost(HOME[SUM])
    assert set(addressees(effects, FindBackup)) == {STORAGE, *desk.manager.nodes}
    for node in desk.manager.nodes:
        assert of_kind(desk.hear(node, BackupFound(life(SUM), None, (-1, -1))), StateLost) == []
    found = desk.manager.receive(STORAGE, BackupFound(life(SUM), 4, (0, 9)))
    assert started(found) == StartInstance(life(SUM, 1), FromBackup(STORAGE), 0)


def test_an_unrecorded_copy_on_a_live_node_saves_the_state() -> None:
    desk, _ = lost_with_its_holder()
    effects = desk.hear(SPARE, BackupFound(life(SUM), 5, (0, 9)))
    assert started(effects) == StartInstance(life(SUM, 1), FromBackup(SPARE), 0)
    for node in [n for n in desk.manager.nodes if n != SPARE]:
        assert of_kind(desk.hear(node, BackupFound(life(SUM), None, (-1, -1))), StateLost) == []


def test_a_lost_owner_and_holder_end_the_query_naming_operator_and_epoch() -> None:
    desk, _ = lost_with_its_holder()
    effects = [e for node in desk.manager.nodes for e in desk.hear(node, BackupFound(life(SUM), None, (-1, -1)))]
    (loss,) = of_kind(effects, StateLost)
    assert loss == StateLost(SUM, 4)
    assert "operator 'sum': the state of sum[0] after epoch 4 is lost" in str(loss)
    assert desk.manager.phase is QueryPhase.FAILED
    assert desk.tick() == []


def test_a_lost_instance_that_nobody_backs_up_ends_the_query_once_upstream_has_forgotten_anything() -> None:
    desk = Desk(spare=[SPARE, "another"], unkept=frozenset({"sum"}))
    assert letters(desk.manager.checkpoint(), TakeCheckpoint) == []
    assert started(desk.manager.node_lost(HOME[SUM])) == StartInstance(life(SUM, 1), FromNothing(0), 0)
    desk.acknowledge()
    desk.tick(8)
    desk.settle(4)
    effects = desk.manager.node_lost(desk.current(SUM).node)
    assert letters(effects, FindBackup) == []
    assert of_kind(effects, StateLost) == [StateLost(SUM, 4)]


def test_a_new_instance_of_an_operator_that_nobody_backs_up_begins_empty_and_again_until_its_state_has_come() -> None:
    desk = Desk(spare=[SPARE, "another", "third"], unkept=frozenset({"sum"}), lead=0)
    desk.tick(8)
    desk.commit(6)
    desk.tick(4)
    effects = announced(desk)
    assert started(effects) == StartInstance(life(SUM1), FromNothing(12), 12)
    desk.acknowledge()
    assert started(desk.manager.node_lost(desk.current(SUM1).node)) == StartInstance(life(SUM1, 1), FromNothing(12), 12)
    desk.acknowledge()
    desk.tick(4)
    desk.commit(14)
    desk.tick(4)
    assert of_kind(desk.manager.node_lost(desk.current(SUM1).node), StateLost) == [StateLost(SUM1, 14)]


def test_a_copy_older_than_what_upstream_has_forgotten_is_none() -> None:
    desk, _ = lost_with_its_holder()
    nodes = list(desk.manager.nodes)
    effects = [e for node in nodes for e in desk.hear(node, BackupFound(life(SUM), 3, (0, 2)))]
    assert of_kind(effects, StateLost) == [StateLost(SUM, 4)]


def test_a_node_that_is_lost_before_it_has_answered_has_nothing() -> None:
    desk, _ = lost_with_its_holder()
    last, *others = desk.manager.nodes
    for node in others:
        desk.hear(node, BackupFound(life(SUM), None, (-1, -1)))
    assert of_kind(desk.manager.node_lost(last), StateLost) == [StateLost(SUM, 4)]


def test_when_a_restore_fails_other_nodes_are_asked() -> None:
    desk = Desk(spare=[SPARE])
    desk.tick(6)
    desk.back_up(SUM, 4)
    desk.manager.node_lost(HOME[SUM])
    effects = desk.hear(SPARE, RestoreFailed(life(SUM, 1)))
    assert set(letters(effects, FindBackup)) == {FindBackup(life(SUM, 1))}
    assert started(desk.hear(HOME[OUT], BackupFound(life(SUM, 1), 4, (0, 1)))).identity == life(SUM, 2)


def test_the_failure_of_a_replaced_incarnation_to_restore_is_of_no_interest() -> None:
    desk = Desk(spare=[SPARE])
    assert desk.hear(SPARE, RestoreFailed(life(SUM, 7))) == []


# -- moves ------------------------------------------------------------------------------------------------------------


def announced(desk: Desk, operator: str = "sum", parts: Mapping[int, SlotSet] | None = None) -> list[Effect]:
    """A move that is accepted; by default half of sum[0] goes to a new instance."""
    answer, effects = desk.manager.move(operator, parts or {1: SlotSet([2, 3])})
    assert isinstance(answer, Accepted)
    return effects


def test_a_move_takes_effect_a_little_ahead_and_bears_its_new_instance() -> None:
    desk = Desk(spare=[SPARE], lead=2)
    desk.tick(4)
    effects = announced(desk)
    topology = desk.manager.topology
    assert topology.boundaries("sum") == (7,)
    assert topology.version_at("sum", 7).arrival is Arrival.HANDOVER
    assert topology.at("sum", 7) == Assignment([0, 0, 1, 1])
    assert starts(effects) == {SPARE: [StartInstance(life(SUM1), FromNothing(6), 6)]}
    assert events(effects) == ["move announced"]


def test_a_tick_waits_until_a_move_is_sealed() -> None:
    desk = Desk(spare=[SPARE], lead=1)
    announced(desk)
    assert [tick.epoch for tick in letters(desk.tick(5), Tick)] == [1]
    desk.acknowledge(but=[HOME[OUT]])
    assert letters(desk.tick(5), Tick) == []
    desk.acknowledge()
    assert letters(desk.tick(5), Tick)[0].epoch == 2


def test_a_node_that_is_given_up_is_not_waited_for_but_its_loss_must_be_known() -> None:
    desk = Desk(spare=[SPARE, "another"], lead=0)
    desk.tick()
    announced(desk)
    desk.acknowledge(but=[HOME[OUT]])
    desk.manager.node_lost(HOME[OUT])
    assert letters(desk.tick(), Tick) == []
    desk.acknowledge()
    assert letter(desk.tick(), Tick).epoch == 2


def test_a_new_owner_is_warmed_up_from_the_backup() -> None:
    desk = Desk(spare=[SPARE], lead=2)
    desk.tick(4)
    desk.back_up(SUM, 3)
    effects = announced(desk)
    assert letter(effects, WarmUp) == WarmUp(life(SUM1), SUM, SlotSet([2, 3]), 7, KEEPER)
    assert addressees(effects, WarmUp) == [SPARE]


@pytest.mark.parametrize(("warm_up", "backed_up"), [(False, True), (True, False)])
def test_nobody_is_warmed_up_without_a_backup_or_against_the_settings(warm_up: bool, backed_up: bool) -> None:
    desk = Desk(spare=[SPARE], warm_up=warm_up)
    if backed_up:
        desk.back_up(SUM, 0)
    assert letters(announced(desk), WarmUp) == []


def test_a_move_is_complete_when_all_that_it_concerns_are_safe_beyond_it() -> None:
    desk = Desk(spare=[SPARE], lead=0)
    desk.tick()
    announced(desk)
    desk.acknowledge()
    desk.tick(2)
    desk.back_up(SUM, 3)
    desk.back_up(SUM1, 1)
    assert events(desk.tick()) == []
    desk.back_up(SUM1, 2)
    assert events(desk.tick()) == ["move complete"]
    assert desk.manager.moves == {}


def test_an_instance_that_lost_all_its_slots_is_retired_when_nobody_needs_it_any_more() -> None:
    desk = Desk(spare=[SPARE], lead=0)
    announced(desk, parts={1: ALL})
    desk.acknowledge()
    desk.tick(3)
    desk.back_up(SUM, 0)
    desk.commit(3)
    assert letters(desk.tick(4), StopInstance) == []
    desk.back_up(SUM1, 2)
    effects = desk.tick(4)
    assert letters(effects, StopInstance) == [StopInstance(life(SUM))]
    assert letters(effects, DeleteBackup) == [DeleteBackup(SUM, (0, 0))]
    assert "retired" in events(effects)
    assert SUM not in desk.manager.placement


def test_the_backup_of_an_instance_that_is_not_needed_any_more_need_not_be_found() -> None:
    desk = Desk(spare=[SPARE, "another"], lead=0)
    announced(desk, parts={1: ALL})
    desk.acknowledge()
    desk.tick(3)
    desk.back_up(SUM, 2)
    desk.commit(3)
    desk.manager.node_lost(KEEPER)
    effects = desk.manager.node_lost(HOME[SUM])
    searched = addressees(effects, FindBackup)
    assert SUM in desk.manager.pending
    desk.back_up(SUM1, 2, holder="another")
    assert "retired" in events(desk.tick(4))
    assert SUM not in desk.manager.pending
    effects = [e for node in searched for e in desk.hear(node, BackupFound(life(SUM), None, (-1, -1)))]
    assert of_kind(effects, StateLost) == []


def test_slots_of_other_operators_and_other_slots_can_move_at_the_same_time() -> None:
    desk = Desk(spare=[SPARE], lead=2)
    announced(desk)
    announced(desk, "pass", {1: SlotSet([3])})
    announced(desk, parts={2: SlotSet([0])})
    assert desk.manager.topology.boundaries("sum") == (3, 4)
    assert len(desk.manager.moves) == 3


def test_a_new_instance_that_is_lost_before_its_first_backup_begins_empty_again() -> None:
    desk = Desk(spare=[SPARE, "another"], lead=0)
    desk.tick(4)
    announced(desk)
    effects = desk.manager.node_lost(desk.current(SUM1).node)
    assert started(effects) == StartInstance(life(SUM1, 1), FromNothing(4), 4)


# -- splits -----------------------------------------------------------------------------------------------------------

PARTS = {1: SlotSet([2, 3])}


def split_begun() -> tuple[Desk, list[Effect]]:
    """Six epochs are open, sum[0] is backed up after the fourth, and a split into two was asked for."""
    desk = Desk(spare=[SPARE, "another"])
    desk.tick(6)
    desk.back_up(SUM, 4)
    answer, effects = desk.manager.split(SUM, PARTS)
    assert answer == Accepted(1)
    return desk, effects


def split_prepared() -> Desk:
    """The backup, which had gone on to epoch 5, was cut, and both parts are being restored."""
    desk, _ = split_begun()
    desk.hear(KEEPER, Partitioned(1, 5))
    return desk


def test_a_split_begins_with_the_holder_cutting_the_backup() -> None:
    _, effects = split_begun()
    parts = {SUM: SlotSet([0, 1]), SUM1: SlotSet([2, 3])}
    assert letter(effects, PartitionBackup) == PartitionBackup(1, SUM, parts)
    assert addressees(effects, PartitionBackup) == [KEEPER]


def test_the_parts_are_restored_beside_the_origin_which_works_on() -> None:
    desk, _ = split_begun()
    effects = desk.hear(KEEPER, Partitioned(1, 5))
    begun = {start.identity: (start.origin, start.trimmed) for each in starts(effects).values() for start in each}
    assert begun == {life(SUM, 1): (FromBackup(KEEPER, 1), 0), life(SUM1): (FromBackup(KEEPER, 1), 5)}
    assert set(starts(effects)) == {SPARE, "another"}
    assert letters(effects, StopInstance) == []
    assert desk.current(SUM) == Seat(HOME[SUM], 0)


def test_what_the_parts_will_replay_is_kept_though_the_origin_backs_up_on() -> None:
    desk = split_prepared()
    desk.back_up(SUM, 6)
    desk.commit(6)
    assert max(trim.epoch for trim in letters(desk.tick(4), Trim) if trim.instance == life(PASS)) == 4


def test_a_split_is_effective_from_the_backup_on_once_all_parts_are_restored() -> None:
    desk = split_prepared()
    assert desk.hear(SPARE, Restored(life(SUM1), 5, KEEPER, 1)) == []
    effects = desk.hear("another", Restored(life(SUM, 1), 5, KEEPER, 1))
    topology = desk.manager.topology
    assert topology.at("sum", 5) == Assignment([0] * 4)
    assert topology.at("sum", 6) == Assignment([0, 0, 1, 1])
    assert topology.arrivals(SUM1, 6) == {}
    assert letter(effects, StopInstance) == StopInstance(life(SUM))
    assert (letter(effects, AdoptParts), addressees(effects, AdoptParts)) == (
        AdoptParts(1, (life(SUM, 1), life(SUM1))),
        [KEEPER],
    )
    assert {desk.current(SUM).incarnation, desk.manager.safe.of(SUM), desk.manager.safe.of(SUM1)} == {1, 5}
    assert events(effects) == ["split effective"]


def test_after_a_split_nothing_counts_that_the_origin_backed_up_after_the_cut() -> None:
    desk = split_prepared()
    desk.back_up(SUM, 6, HOME[OUT])
    desk.hear(SPARE, Restored(life(SUM1), 5, KEEPER, 1))
    effects = desk.hear("another", Restored(life(SUM, 1), 5, KEEPER, 1))
    assert letters(effects, DeleteBackup) == [DeleteBackup(SUM, (1, -1))]  # all that is older than the parts
    assert addressees(effects, DeleteBackup) == [HOME[OUT]]
    assert desk.manager.safe.of(SUM) == 5


def test_each_part_can_be_restored_from_the_holder_afterwards() -> None:
    desk = split_prepared()
    for identity in (life(SUM1), life(SUM, 1)):
        desk.hear(SPARE, Restored(identity, 5, KEEPER, 1))
    node = desk.current(SUM1).node
    lost = [i for i in (SUM, SUM1) if desk.current(i).node == node]
    begun = [start for each in starts(desk.manager.node_lost(node)).values() for start in each]
    assert [start.origin for start in begun] == [FromBackup(KEEPER)] * len(lost)


def assert_aborted(desk: Desk, effects: list[Effect]) -> None:
    """Nothing has changed but what stood by."""
    assert "split aborted" in events(effects)
    assert desk.manager.splits == {}
    assert desk.manager.topology.boundaries("sum") == ()
    assert desk.manager.split(SUM, {2: SlotSet([3])})[0] != Refused(Refusal.BUSY)


def test_a_split_whose_holder_has_no_backup_is_given_up() -> None:
    desk, _ = split_begun()
    assert_aborted(desk, desk.hear(KEEPER, Partitioned(1, None)))


def test_a_split_whose_holder_is_lost_is_given_up_and_its_parts_are_stopped() -> None:
    desk = split_prepared()
    effects = desk.manager.node_lost(KEEPER)
    assert set(letters(effects, StopInstance)) == {StopInstance(life(SUM, 1)), StopInstance(life(SUM1))}
    assert_aborted(desk, effects)


def test_a_split_is_given_up_when_a_part_is_lost_before_it_is_effective() -> None:
    desk = split_prepared()
    effects = desk.manager.node_lost(SPARE)
    assert (letter(effects, DropParts), addressees(effects, DropParts)) == (DropParts(1), [KEEPER])
    assert_aborted(desk, effects)


def test_a_split_is_given_up_when_a_part_cannot_be_restored() -> None:
    desk = split_prepared()
    assert_aborted(desk, desk.hear(SPARE, RestoreFailed(life(SUM1))))


def test_answers_that_come_after_a_split_was_given_up_are_of_no_interest() -> None:
    desk = split_prepared()
    desk.hear(SPARE, RestoreFailed(life(SUM1)))
    assert desk.hear(KEEPER, Partitioned(1, 5)) == []
    assert desk.hear(SPARE, Restored(life(SUM1), 5, KEEPER, 1)) == []


def test_an_origin_that_is_lost_while_it_is_split_recovers_by_the_split() -> None:
    desk = split_prepared()
    assert starts(desk.manager.node_lost(HOME[SUM])) == {}
    desk.hear(SPARE, Restored(life(SUM1), 5, KEEPER, 1))
    effects = desk.hear("another", Restored(life(SUM, 1), 5, KEEPER, 1))
    assert events(effects) == ["split effective"]
    assert letters(effects, StopInstance) == []


def test_an_origin_that_is_lost_while_it_is_split_in_vain_is_rebound() -> None:
    desk = split_prepared()
    desk.manager.node_lost(HOME[SUM])
    effects = desk.hear(SPARE, RestoreFailed(life(SUM1)))
    begun = started(effects)
    assert (begun.identity, begun.origin) == (life(SUM, 2), FromBackup(KEEPER))


def test_a_lost_instance_is_recovered_in_parallel_where_that_is_asked_for() -> None:
    desk = Desk(spare=[SPARE, "another"], recovery_parallelism=2)
    desk.tick(6)
    desk.back_up(SUM, 4)
    effects = desk.manager.node_lost(HOME[SUM])
    parts = {SUM: SlotSet([0, 1]), SUM1: SlotSet([2, 3])}
    assert letter(effects, PartitionBackup).parts == parts
    assert starts(effects) == {}


def test_where_parallel_recovery_is_not_possible_the_lost_instance_is_rebound() -> None:
    desk = Desk(spare=[SPARE, "another"], recovery_parallelism=2)
    desk.tick(6)
    assert started(desk.manager.node_lost(HOME[SUM])).origin == FromNothing(0)  # there was no backup to split
    assert started(desk.manager.node_lost(HOME[OUT])).origin == FromCommits(0)


# -- refusals ---------------------------------------------------------------------------------------------------------


def move(operator: str, parts: Mapping[int, SlotSet]) -> Callable[[Manager], object]:
    return lambda manager: manager.move(operator, parts)[0]


def split(origin: InstanceId, parts: Mapping[int, SlotSet]) -> Callable[[Manager], object]:
    return lambda manager: manager.split(origin, parts)[0]


HALF = SlotSet([2, 3])
ANY_PLAN = pytest.mark.parametrize("ask", [move("sum", {1: HALF}), split(SUM, {1: HALF})])


def backed_up() -> Desk:
    desk = Desk(spare=[SPARE, "another"], lead=0)
    desk.tick(6)
    desk.back_up(SUM, 4)
    return desk


@ANY_PLAN
def test_a_plan_is_accepted_when_nothing_speaks_against_it(ask: Callable[[Manager], object]) -> None:
    assert ask(backed_up().manager) == Accepted(1)


@ANY_PLAN
def test_before_the_launch_there_are_no_plans(ask: Callable[[Manager], object]) -> None:
    assert ask(Manager(GRAPH)) == Refused(Refusal.NOT_RUNNING)


@ANY_PLAN
def test_after_the_end_there_are_no_plans(ask: Callable[[Manager], object]) -> None:
    desk = backed_up()
    desk.read(6, exhausted=True)
    desk.tick()
    desk.commit(7)
    assert ask(desk.manager) == Refused(Refusal.NOT_RUNNING)


@ANY_PLAN
def test_a_refused_plan_changes_nothing(ask: Callable[[Manager], object]) -> None:
    desk = backed_up()
    announced(desk)
    before = (desk.manager.topology, desk.manager.placement.copy(), desk.manager.version)
    assert isinstance(ask(desk.manager), Refused)
    assert (desk.manager.topology, desk.manager.placement, desk.manager.version) == before


@pytest.mark.parametrize(
    "ask",
    [
        move("summ", {1: HALF}),
        move("sum", {1: SlotSet([4])}),
        split(SUM2, {3: HALF}),
        split(SUM, {1: SlotSet([4])}),
    ],
)
def test_a_plan_that_names_what_does_not_exist_is_refused(ask: Callable[[Manager], object]) -> None:
    assert ask(backed_up().manager) == Refused(Refusal.UNKNOWN)


@pytest.mark.parametrize("ask", [move("sum", {0: HALF}), move("sum", {}), move("sum", {1: SlotSet()})])
def test_a_move_that_moves_nothing_is_refused(ask: Callable[[Manager], object]) -> None:
    assert ask(backed_up().manager) == Refused(Refusal.NOTHING)


@pytest.mark.parametrize("ask", [split(SUM, {}), split(SUM, {1: SlotSet()})])
def test_a_split_that_gives_nothing_away_is_refused(ask: Callable[[Manager], object]) -> None:
    assert ask(backed_up().manager) == Refused(Refusal.NOTHING)


def test_a_split_that_gives_everything_away_is_refused() -> None:
    assert split(SUM, {1: ALL})(backed_up().manager) == Refused(Refusal.EVERYTHING)


def test_a_move_without_any_node_is_refused() -> None:
    desk = Desk(homes=dict.fromkeys(HOME, "only node"))
    desk.manager.node_lost("only node")
    assert move("sum", {1: HALF})(desk.manager) == Refused(Refusal.NO_NODE)


def test_a_move_is_refused_when_the_query_is_about_to_end() -> None:
    desk = backed_up()
    desk.read(6, exhausted=True)
    assert move("sum", {1: HALF})(desk.manager) == Refused(Refusal.ENDING)


def test_slots_that_are_on_their_way_cannot_be_moved_again_before_they_have_arrived_for_good() -> None:
    desk = backed_up()
    announced(desk)
    assert move("sum", {2: SlotSet([3])})(desk.manager) == Refused(Refusal.BUSY)
    assert move("sum", {2: SlotSet([1])})(desk.manager) == Accepted(2)


def test_nothing_of_an_operator_moves_while_one_of_its_instances_is_split() -> None:
    desk = backed_up()
    desk.manager.split(SUM, PARTS)
    assert move("sum", {1: SlotSet([0])})(desk.manager) == Refused(Refusal.BUSY)
    assert move("pass", {1: SlotSet([0])})(desk.manager) == Accepted(2)


def test_an_operator_is_not_split_while_another_plan_of_it_is_under_way() -> None:
    moving, splitting = backed_up(), backed_up()
    announced(moving)
    splitting.manager.split(SUM, PARTS)
    assert split(SUM, {7: SlotSet([0])})(moving.manager) == Refused(Refusal.BUSY)
    assert split(SUM, {7: SlotSet([0])})(splitting.manager) == Refused(Refusal.BUSY)


def test_an_instance_without_backup_cannot_be_split() -> None:
    desk = backed_up()
    desk.manager.node_lost(KEEPER)
    assert split(SUM, PARTS)(desk.manager) == Refused(Refusal.NO_BACKUP)


@pytest.mark.parametrize("unkept", [frozenset({"sum"}), frozenset[str]()])
def test_what_no_node_keeps_cannot_be_split_and_never_will(unkept: frozenset[str]) -> None:
    desk = Desk(spare=[SPARE], unkept=unkept)
    if not unkept:
        desk.manager.replicate({SUM: (STORAGE,)})
    assert not desk.manager.has_backups_on_nodes("sum")
    assert split(SUM, PARTS)(desk.manager) == Refused(Refusal.NOT_ON_A_NODE)


def test_a_backup_from_before_the_last_change_of_its_operator_cannot_be_split() -> None:
    desk = Desk(spare=[SPARE, "another"], lead=0)
    for parts, concerned in (({1: HALF}, (SUM, SUM1)), ({2: SlotSet([3])}, (SUM1, SUM2))):
        announced(desk, parts=parts)
        desk.acknowledge()
        desk.tick(2)
        for instance in concerned:
            desk.back_up(instance, desk.manager.ticked)
        desk.tick()
    assert desk.manager.moves == {}
    assert split(SUM, {3: SlotSet([1])})(desk.manager) == Refused(Refusal.OLD_BACKUP)
    desk.back_up(SUM, desk.manager.ticked)
    assert split(SUM, {3: SlotSet([1])})(desk.manager) == Accepted(3)


def test_an_instance_that_lost_all_its_slots_gets_no_new_ones() -> None:
    desk = backed_up()
    announced(desk, parts={1: ALL})
    assert move("sum", {0: HALF})(desk.manager) == Refused(Refusal.BUSY)
    desk.acknowledge()
    desk.tick(2)
    desk.settle(8)
    assert move("sum", {0: HALF})(desk.manager) == Refused(Refusal.EMPTIED)
    assert split(SUM1, {0: HALF})(desk.manager) == Refused(Refusal.NOT_NEW)


def test_a_split_goes_to_instances_that_never_were() -> None:
    assert split(SUM, {0: HALF})(backed_up().manager) == Refused(Refusal.NOT_NEW)


def test_an_operator_without_state_is_not_split() -> None:
    assert split(PASS, {1: HALF})(backed_up().manager) == Refused(Refusal.NO_STATE)


def test_a_split_into_parts_that_overlap_is_refused() -> None:
    parts = {1: SlotSet([1, 2]), 2: SlotSet([2, 3])}
    assert split(SUM, parts)(backed_up().manager) == Refused(Refusal.OVERLAP)


def test_a_move_of_one_slot_to_two_instances_is_refused() -> None:
    assert move("sum", {1: SlotSet([1, 2]), 2: SlotSet([2])})(backed_up().manager) == Refused(Refusal.OVERLAP)


def test_a_move_to_a_negative_index_is_refused() -> None:
    assert move("sum", {-1: SlotSet([1])})(backed_up().manager) == Refused(Refusal.UNKNOWN)


def test_a_checkpoint_of_an_operator_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="no operator 'typo'"):
        backed_up().manager.checkpoint("typo")


def test_a_launch_onto_a_node_that_has_not_registered_is_refused_by_name() -> None:
    manager = Manager(GRAPH)
    manager.node_joined("here")
    with pytest.raises(UserError, match="not registered: elsewhere"):
        manager.launch({SUM: "elsewhere"})


def test_a_letter_that_the_manager_has_no_use_for_is_named() -> None:
    with pytest.raises(InternalError, match=r"the manager has no use for a letter of .*: Tick"):
        backed_up().hear(KEEPER, Tick(life(NUMBERS), 1, False))
