"""An instance, message by message: whole epochs, once each, whatever is repeated, replaced, lost or moved."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from primitives.backup import StoreOutcome
from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.outbox import Outbox
from primitives.slots import SlotSet
from primitives.topology import Arrival, Assignment, Topology, Version
from seep.protocol.effects import Commit, Effect, OpenSink, Wake
from seep.protocol.instances.checkpointing import CheckpointSettings
from seep.protocol.instances.instance import Instance, InstancePhase, Surroundings
from seep.protocol.instances.sink import CommitAccepted, CommitRefused, SinkInstance, SinkOpened
from seep.protocol.instances.source import SourceInstance
from seep.protocol.instances.stateful import StatefulInstance
from seep.protocol.instances.stateless import StatelessInstance
from seep.protocol.messages import (
    MAX_WATERMARK,
    Attach,
    BackupCounted,
    BackupRefused,
    Committed,
    FromBackup,
    FromCommits,
    FromLog,
    FromNothing,
    Logged,
    OffsetsRead,
    Restored,
    RestoreFailed,
    Retrieve,
    Retrieved,
    StateMoved,
    StoreBackup,
    TakeCheckpoint,
    Tick,
    Trim,
    WarmUp,
)
from seep.protocol.view import MANAGER, Incarnation, Seat, View
from seep.simulator.operators import Row, Rows
from tests.protocol.staging import (
    ALL,
    BATCHES,
    GRAPH,
    KEYS,
    NUMBERS,
    OUT,
    PASS,
    SUM,
    SUM1,
    SUM2,
    Operators,
    addressees,
    data,
    letter,
    letters,
    life,
    node_of,
    of_kind,
    pull_all,
    pull_rows,
    view_of,
)

NUMBERS1 = InstanceId("numbers", 1)
FIRST_NUMBERS, FIRST_PASS, FIRST_SUM = life(NUMBERS), life(PASS), life(SUM)
SELDOM = CheckpointSettings(every=1000)
HOLDER = node_of(PASS)  # where the backups of sum are kept, as pass is upstream of it

ALONE = Topology.initial(GRAPH)
TWO_SOURCES = Topology.initial(GRAPH, {"numbers": 2})
#: Slot 1 goes from sum[0], which keeps slot 0, to sum[1], which has slots 2 and 3, at epoch 3.
SHIFT = Topology.initial(GRAPH, {"sum": 2}).amended("sum", Version(3, Assignment([0, 1, 1, 1])))


def passing(topology: Topology = ALONE, number: int = 0, trimmed: int = 0) -> StatelessInstance[Rows]:
    view = view_of(topology, seats={PASS: Seat(node_of(PASS), number)})
    given = Surroundings(node_of(PASS), view, BATCHES, Outbox(trimmed=trimmed))
    return StatelessInstance(life(PASS, number), given, Operators().logic("pass"))


def summing(
    view: View | None = None,
    me: Incarnation = FIRST_SUM,
    settings: CheckpointSettings = SELDOM,
) -> StatefulInstance[Rows]:
    given = Surroundings(node_of(me.instance), view or view_of(ALONE), BATCHES, Outbox())
    return StatefulInstance(me, given, Operators().logic("sum"), settings)


def sinking(number: int = 0) -> SinkInstance[Rows]:
    view = view_of(ALONE, seats={OUT: Seat(node_of(OUT), number)})
    return SinkInstance(life(OUT, number), Surroundings(node_of(OUT), view, BATCHES, Outbox()))


def reading(
    topology: Topology = ALONE,
    me: Incarnation = FIRST_NUMBERS,
    rows: int = 9,
) -> SourceInstance[Rows]:
    given = Surroundings(node_of(me.instance), view_of(topology), BATCHES, Outbox())
    return SourceInstance(me, given, Operators(rows).source("numbers"))


def feed(instance: Instance[Rows], epoch: int, *rows: Row, sender: Incarnation = FIRST_PASS) -> list[Effect]:
    """All that `sender` (the only one, unless a test says otherwise) has for an epoch."""
    return instance.handle(data(sender, instance.me, epoch, rows))


def attach(instance: Instance[Rows], receiver: Incarnation, first: int = 1) -> list[Effect]:
    return instance.handle(Attach(instance.me, receiver, first))


def row(slot: int, value: int) -> Row:
    return KEYS[slot], value, 0


def totals(instance: StatefulInstance[Rows]) -> dict[int, int]:
    """The sum of each slot's key."""
    state = instance.state
    return {slot: state.get(key) for slot, key in enumerate(KEYS) if state.get(key) is not None}  # type: ignore[attr-defined]


# -- senders: whole epochs, in order, once ----------------------------------------------------------------------------


def test_a_new_instance_asks_every_sender_for_what_follows_its_epoch() -> None:
    effects = passing(TWO_SOURCES).start(FromNothing(4))
    assert letters(effects, Attach) == [Attach(life(s), life(PASS), 5) for s in (NUMBERS, NUMBERS1)]
    assert addressees(effects, Attach) == [node_of(NUMBERS), node_of(NUMBERS1)]


def test_an_epoch_is_processed_when_every_sender_has_spoken() -> None:
    instance = passing(TWO_SOURCES)
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    feed(instance, 1, row(0, 5), sender=life(NUMBERS))
    assert (instance.processed, pull_all(instance, life(SUM))) == (0, [])
    feed(instance, 1, row(1, 6), sender=life(NUMBERS1))
    assert (instance.processed, pull_rows(instance, life(SUM))) == (1, {1: [row(0, 5), row(1, 6)]})


def test_an_epoch_that_arrives_early_waits_for_those_before_it() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    feed(instance, 2, row(0, 2), sender=life(NUMBERS))
    assert instance.processed == 0
    feed(instance, 1, row(0, 1), sender=life(NUMBERS))
    assert pull_rows(instance, life(SUM)) == {1: [row(0, 1)], 2: [row(0, 2)]}


def test_an_epoch_without_rows_is_an_epoch() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    feed(instance, 1, sender=life(NUMBERS))
    assert pull_all(instance, life(SUM)) == [data(life(PASS), life(SUM), 1)]


def test_the_watermark_is_the_lowest_and_the_time_of_creation_the_oldest_of_all_senders() -> None:
    instance = passing(TWO_SOURCES)
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    for epoch, one, other in ((1, (30, 7.5), (20, 9.5)), (2, (40, 0.0), (50, 8.5))):
        instance.handle(data(life(NUMBERS), instance.me, epoch, [], *one))
        instance.handle(data(life(NUMBERS1), instance.me, epoch, [], *other))
    sent = pull_all(instance, life(SUM))
    assert [(m.watermark, m.created) for m in sent] == [(20, 7.5), (40, 8.5)]


def test_a_repeated_message_counts_once() -> None:
    instance = summing()
    instance.start(FromNothing(0))
    for _ in range(3):
        feed(instance, 1, row(0, 5))
    assert (instance.processed, totals(instance)) == (1, {0: 5})


@pytest.mark.parametrize("stranger", [life(PASS, 1), life(InstanceId("pass", 1))])
def test_data_of_an_incarnation_that_was_not_asked_is_dropped(stranger: Incarnation) -> None:
    instance = summing()
    instance.start(FromNothing(0))
    feed(instance, 1, row(0, 5), sender=stranger)
    assert instance.processed == 0
    feed(instance, 1, row(0, 6))
    assert totals(instance) == {0: 6}


def test_a_replaced_sender_is_asked_again_and_says_all_of_an_unfinished_epoch_anew() -> None:
    instance = passing(TWO_SOURCES)
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    feed(instance, 1, row(0, 1), sender=life(NUMBERS))
    effects = instance.handle(view_of(TWO_SOURCES, 2, {NUMBERS: Seat("new home", 1)}))
    assert letters(effects, Attach) == [Attach(life(NUMBERS, 1), life(PASS), 1)]
    assert addressees(effects, Attach) == ["new home"]
    feed(instance, 1, row(1, 2), sender=life(NUMBERS1))
    assert instance.processed == 0
    feed(instance, 1, row(0, 1), sender=life(NUMBERS))  # a stale incarnation's data is dropped
    assert instance.processed == 0
    feed(instance, 1, row(0, 1), sender=life(NUMBERS, 1))
    assert pull_rows(instance, life(SUM)) == {1: [row(1, 2), row(0, 1)]}


def test_a_new_sender_is_asked_from_the_epoch_at_which_it_begins_to_send() -> None:
    instance = summing()
    instance.start(FromNothing(0))
    scaled = ALONE.amended("pass", Version(6, Assignment([0, 0, 1, 1])))
    effects = instance.handle(view_of(scaled, 2))
    assert letters(effects, Attach) == [Attach(life(InstanceId("pass", 1)), life(SUM), 6)]


def test_when_a_link_is_back_its_far_end_is_asked_for_what_has_not_been_processed() -> None:
    instance = passing(TWO_SOURCES)
    instance.start(FromNothing(0))
    for sender in (NUMBERS, NUMBERS1):
        feed(instance, 1, sender=life(sender))
    effects = instance.reconnect(node_of(NUMBERS1))
    assert letters(effects, Attach) == [Attach(life(NUMBERS1), life(PASS), 2)]
    assert instance.reconnect("some other node") == []


def test_state_that_is_on_its_way_is_not_asked_for_again_when_a_link_is_back() -> None:
    """Unlike rows, it is not lost with a link: it would be sent twice."""
    target = target_at(1)
    assert addressees(target.reconnect(node_of(PASS)), Attach) == [node_of(PASS)]
    assert target.reconnect(node_of(SUM)) == []


def test_who_is_not_running_asks_for_nothing() -> None:
    instance = summing()
    instance.start(FromBackup(HOLDER))
    assert instance.reconnect(node_of(PASS)) == []


# -- receivers: replay, and shares by the topology of the epoch -------------------------------------------------------


def test_a_receiver_is_woken_when_it_asks_and_when_there_is_more() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    wake = Wake(life(PASS), life(SUM), node_of(SUM))
    assert attach(instance, life(SUM)) == [wake]
    assert feed(instance, 1, sender=life(NUMBERS)) == [wake]


def test_every_receiver_gets_its_share_by_the_topology_of_the_epoch() -> None:
    instance = passing(SHIFT)
    instance.start(FromNothing(0))
    for receiver in (SUM, SUM1):
        attach(instance, life(receiver))
    everything = [row(slot, 1) for slot in ALL]
    for epoch in (2, 3):
        feed(instance, 1 if epoch == 2 else 2, sender=life(NUMBERS))
        feed(instance, epoch, *everything, sender=life(NUMBERS))
    assert pull_rows(instance, life(SUM)) == {1: [], 2: [row(0, 1), row(1, 1)], 3: [row(0, 1)]}
    assert pull_rows(instance, life(SUM1)) == {
        1: [],
        2: [row(2, 1), row(3, 1)],
        3: [row(slot, 1) for slot in (1, 2, 3)],
    }


def test_a_new_owner_gets_nothing_of_epochs_at_which_it_owned_nothing() -> None:
    instance = passing(ALONE.amended("sum", Version(2, Assignment([0, 0, 1, 1]))))
    instance.start(FromNothing(0))
    attach(instance, life(SUM1))
    for epoch in (1, 2):
        feed(instance, epoch, row(3, epoch), sender=life(NUMBERS))
    assert pull_rows(instance, life(SUM1)) == {2: [row(3, 2)]}


def test_a_receiver_that_asks_again_gets_everything_from_there_on_again() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    for epoch in (1, 2, 3):
        feed(instance, epoch, row(0, epoch), sender=life(NUMBERS))
    assert [*pull_rows(instance, life(SUM))] == [1, 2, 3]
    attach(instance, life(SUM), first=2)
    assert [*pull_rows(instance, life(SUM))] == [2, 3]


def test_a_request_that_is_older_than_a_trim_is_served_from_behind_it() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    for epoch in (1, 2, 3):
        feed(instance, epoch, sender=life(NUMBERS))
    instance.handle(Trim(life(PASS), 2))
    attach(instance, life(SUM), first=1)
    assert [*pull_rows(instance, life(SUM))] == [3]


def test_a_receiver_that_asks_while_there_is_nothing_to_give_yet_is_served_later() -> None:
    instance = summing(settings=CheckpointSettings(every=1))
    instance.start(FromNothing(0))
    backup = letter(feed(instance, 1, row(0, 5)), StoreBackup).checkpoint
    healed = summing(view_of(ALONE, seats={SUM: Seat("new home", 1)}), life(SUM, 1))
    healed.start(FromBackup(HOLDER))
    assert attach(healed, life(OUT)) == []
    effects = healed.handle(Retrieved(life(SUM, 1), SUM, backup, None))
    assert Wake(life(SUM, 1), life(OUT), node_of(OUT)) in effects
    assert pull_rows(healed, life(OUT)) == {1: [row(0, 5)]}


def test_a_receiver_that_was_replaced_gets_nothing_more() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    instance.handle(view_of(ALONE, 2, {SUM: Seat("new home", 1)}))
    assert feed(instance, 1, sender=life(NUMBERS)) == []
    assert attach(instance, life(SUM)) == []
    assert pull_all(instance, life(SUM)) == []
    attach(instance, life(SUM, 1))
    assert [*pull_rows(instance, life(SUM, 1))] == [1]


def test_output_that_all_receivers_have_is_not_kept_when_it_is_made_again() -> None:
    instance = passing(trimmed=4)
    instance.start(FromNothing(2))
    for epoch in (3, 4, 5):
        feed(instance, epoch, sender=life(NUMBERS))
    attach(instance, life(SUM))
    assert [*pull_rows(instance, life(SUM))] == [5]


def test_a_fenced_instance_halts_and_says_nothing_more() -> None:
    instance = passing()
    instance.start(FromNothing(0))
    attach(instance, life(SUM))
    feed(instance, 1, row(0, 1), sender=life(NUMBERS))
    instance.handle(view_of(ALONE, 2, {PASS: Seat("new home", 1)}))
    assert instance.phase is InstancePhase.HALTED
    assert feed(instance, 2, sender=life(NUMBERS)) == []
    assert pull_all(instance, life(SUM)) == []


# -- stateless --------------------------------------------------------------------------------------------------------


def test_a_stateless_instance_need_not_replay_what_all_its_receivers_have() -> None:
    """Its senders may not have it any more either."""
    instance = passing()
    instance.start(FromNothing(0))
    attach(instance, life(SUM), first=6)
    feed(instance, 6, row(0, 6), sender=life(NUMBERS))
    assert instance.processed == 0
    instance.handle(Trim(life(PASS), 5))
    assert instance.processed == 6
    assert pull_rows(instance, life(SUM)) == {6: [row(0, 6)]}


# -- stateful: state, checkpoints -------------------------------------------------------------------------------------


def test_state_lasts_from_epoch_to_epoch() -> None:
    instance = summing()
    instance.start(FromNothing(0))
    attach(instance, life(OUT))
    feed(instance, 1, row(0, 5), row(1, 1))
    feed(instance, 2, row(0, 6))
    assert pull_rows(instance, life(OUT)) == {1: [*sorted([row(0, 5), row(1, 1)])], 2: [row(0, 11)]}


def test_checkpoints_are_taken_regularly_and_sent_to_the_holder() -> None:
    instance = summing(settings=CheckpointSettings(every=2))
    instance.start(FromNothing(0))
    assert letters(feed(instance, 1, row(0, 5)), StoreBackup) == []
    effects = feed(instance, 2, row(1, 6))
    backup = letter(effects, StoreBackup).checkpoint
    assert addressees(effects, StoreBackup) == [HOLDER]
    assert (backup.owner, backup.incarnation, backup.epoch, backup.base, backup.slots) == (SUM, 0, 2, None, ALL)
    assert [epoch for epoch, _ in backup.buffer] == [1, 2]


def test_once_a_backup_is_recorded_the_next_checkpoint_carries_only_changes() -> None:
    instance = summing(settings=CheckpointSettings(every=1))
    instance.start(FromNothing(0))
    feed(instance, 1, row(0, 5), row(1, 1))
    assert letters(feed(instance, 2, row(1, 1)), StoreBackup) == []  # one is under way
    effects = instance.handle(BackupCounted(life(SUM), 1, (HOLDER,)))
    delta = letter(effects, StoreBackup).checkpoint
    assert (delta.epoch, delta.base, [epoch for epoch, _ in delta.buffer]) == (2, 1, [2])
    assert [dict(cells) for chunk in delta.state for cells in chunk.cells.values() if cells] == [{KEYS[1]: 2}]


def test_a_checkpoint_is_taken_on_demand() -> None:
    instance = summing()
    instance.start(FromNothing(0))
    feed(instance, 1, row(0, 5))
    assert letter(instance.handle(TakeCheckpoint(life(SUM))), StoreBackup).checkpoint.epoch == 1


def test_a_checkpoint_is_taken_when_much_has_changed_since_the_last_one() -> None:
    instance = summing(settings=CheckpointSettings(every=1000, changed=2))
    instance.start(FromNothing(0))
    instance.handle(TakeCheckpoint(life(SUM)))
    instance.handle(BackupCounted(life(SUM), 0, (HOLDER,)))
    assert letters(feed(instance, 1, row(0, 5)), StoreBackup) == []
    assert letter(feed(instance, 2, row(1, 5)), StoreBackup).checkpoint.base == 0


def test_a_holder_that_lacks_the_base_is_sent_the_whole() -> None:
    instance = summing(settings=CheckpointSettings(every=1))
    instance.start(FromNothing(0))
    feed(instance, 1, row(0, 5))
    instance.handle(BackupCounted(life(SUM), 1, (HOLDER,)))
    assert letter(feed(instance, 2, row(1, 6)), StoreBackup).checkpoint.base == 1
    whole = letter(instance.handle(BackupRefused(life(SUM), 2, StoreOutcome.NEEDS_FULL)), StoreBackup).checkpoint
    assert (whole.epoch, whole.base) == (2, None)


def test_when_the_holder_is_lost_the_owner_backs_up_anew_elsewhere() -> None:
    instance = summing(settings=CheckpointSettings(every=1))
    instance.start(FromNothing(0))
    feed(instance, 1, row(0, 5))
    instance.handle(BackupCounted(life(SUM), 1, (HOLDER,)))
    effects = instance.handle(view_of(ALONE, 2, {PASS: Seat("new home", 1)}))
    assert addressees(effects, StoreBackup) == ["new home"]
    assert letter(effects, StoreBackup).checkpoint.base is None


# -- stateful: restore ------------------------------------------------------------------------------------------------


def backup_of(topology: Topology, *epochs: tuple[Row, ...], me: InstanceId = SUM) -> Checkpoint:
    """The checkpoint of the first incarnation of an instance that has processed some epochs from the first on."""
    instance = summing(view_of(topology), life(me))
    instance.start(FromNothing(0))
    for epoch, rows in enumerate(epochs, start=1):
        feed(instance, epoch, *rows)
    return letter(instance.handle(TakeCheckpoint(life(me))), StoreBackup).checkpoint


def healing(topology: Topology = ALONE, trimmed: int = 0) -> StatefulInstance[Rows]:
    """The second incarnation of sum[0], which has asked for its backup."""
    instance = summing(view_of(topology, 2, {SUM: Seat("new home", 1)}), life(SUM, 1))
    instance.start(FromBackup(HOLDER), trimmed)
    return instance


def answer(checkpoint: Checkpoint | None) -> Retrieved:
    return Retrieved(life(SUM, 1), SUM, checkpoint, None)


def test_a_successor_asks_the_holder_for_the_backup_and_its_senders_for_nothing_yet() -> None:
    effects = summing(view_of(ALONE, 2, {SUM: Seat("new home", 1)}), life(SUM, 1)).start(FromBackup(HOLDER))
    assert letters(effects, Retrieve) == [Retrieve(life(SUM, 1), SUM)]
    assert addressees(effects, Retrieve) == [HOLDER]
    assert letters(effects, Attach) == []


def test_a_successor_goes_on_where_the_backup_was_taken() -> None:
    healed = healing()
    effects = healed.handle(answer(backup_of(ALONE, (row(0, 5),), (row(1, 6),))))
    assert letter(effects, Restored) == Restored(life(SUM, 1), 2, HOLDER, None)
    assert letter(effects, Attach) == Attach(life(PASS), life(SUM, 1), 3)
    assert (healed.processed, totals(healed)) == (2, {0: 5, 1: 6})
    attach(healed, life(OUT))
    feed(healed, 3, row(0, 1))
    assert pull_rows(healed, life(OUT)) == {1: [row(0, 5)], 2: [row(1, 6)], 3: [row(0, 6)]}


def test_the_first_checkpoint_of_a_successor_builds_on_the_backup_that_it_came_from() -> None:
    healed = healing()
    healed.handle(answer(backup_of(ALONE, (row(0, 5),))))
    feed(healed, 2, row(1, 1))
    assert letter(healed.handle(TakeCheckpoint(life(SUM, 1))), StoreBackup).checkpoint.base == 1


def test_when_the_backup_is_not_there_the_manager_is_told() -> None:
    healed = healing()
    assert letters(healed.handle(answer(None)), RestoreFailed) == [RestoreFailed(life(SUM, 1))]


def test_when_the_holder_is_lost_before_it_has_answered_the_manager_is_told_and_an_answer_comes_too_late() -> None:
    healed = healing()
    view = view_of(ALONE, 3, {SUM: Seat("new home", 1), PASS: Seat("elsewhere", 1)})
    assert letter(healed.handle(view), RestoreFailed) == RestoreFailed(life(SUM, 1))
    assert healed.handle(answer(backup_of(ALONE, (row(0, 5),)))) == []
    assert healed.phase is InstancePhase.HALTED


def test_a_view_in_which_the_holder_lives_lets_a_restore_go_on() -> None:
    healed = healing()
    assert healed.handle(view_of(ALONE, 3, {SUM: Seat("new home", 1)})) == []
    assert healed.phase is InstancePhase.RESTORING


def test_trims_that_come_before_the_state_are_not_forgotten() -> None:
    healed = healing(trimmed=1)
    healed.handle(Trim(life(SUM, 1), 2))
    healed.handle(answer(backup_of(ALONE, (), (), ())))
    attach(healed, life(OUT))
    assert [*pull_rows(healed, life(OUT))] == [3]


def test_a_second_answer_changes_nothing() -> None:
    healed = healing()
    healed.handle(answer(backup_of(ALONE, (row(0, 5),))))
    assert healed.handle(answer(backup_of(ALONE, (row(0, 7),)))) == []
    assert totals(healed) == {0: 5}


def test_a_part_of_a_split_stands_by_until_the_view_names_it() -> None:
    part = summing(view_of(ALONE), life(SUM1))
    part.view.placement.pop(SUM1, None)  # type: ignore[attr-defined]
    effects = part.start(FromBackup(HOLDER, part=7))
    assert letters(effects, Retrieve) == [Retrieve(life(SUM1), SUM1, 7)]
    whole = backup_of(ALONE, (row(0, 5), row(3, 6)))
    cut = Checkpoint(
        SUM1, 0, -1, 1, None, SlotSet([2, 3]), tuple(c.select(SlotSet([2, 3])) for c in whole.state), (), 1
    )
    effects = part.handle(Retrieved(life(SUM1), SUM1, cut, None))
    assert letter(effects, Restored) == Restored(life(SUM1), 1, HOLDER, 7)
    assert (part.phase, letters(effects, Attach)) == (InstancePhase.STANDBY, [])
    split = ALONE.amended("sum", Version(2, Assignment([0, 0, 1, 1]), Arrival.BACKUP))
    effects = part.handle(view_of(split, 2))
    assert letter(effects, Attach) == Attach(life(PASS), life(SUM1), 2)
    assert (part.phase, totals(part)) == (InstancePhase.RUNNING, {3: 6})


# -- handover: the origin ---------------------------------------------------------------------------------------------


def origin_at(epoch: int) -> StatefulInstance[Rows]:
    """sum[0] in SHIFT, which has processed some epochs with a row of slot 0 and one of slot 1 each."""
    origin = summing(view_of(SHIFT))
    origin.start(FromNothing(0))
    for each in range(1, epoch + 1):
        feed(origin, each, *[row(slot, 1) for slot in SHIFT.slots(SUM, each)])
    return origin


def content(effects: Iterable[Effect]) -> dict[int, int]:
    """The state that the one handover among the effects brings."""
    message = letter(effects, StateMoved)
    return {KEYS.index(k): v for chunk in message.chunks for cells in chunk.cells.values() for k, v in cells.items()}


def test_an_origin_hands_over_at_the_end_of_the_epoch_before() -> None:
    origin = origin_at(1)
    assert letters(attach(origin, life(SUM1), first=3), StateMoved) == []
    effects = feed(origin, 2, row(1, 1))
    message = letter(effects, StateMoved)
    assert addressees(effects, StateMoved) == [node_of(SUM1)]
    assert (message.receiver, message.epoch, message.base, content(effects)) == (life(SUM1), 3, None, {1: 2})


def test_an_origin_goes_on_without_waiting_for_the_new_owner() -> None:
    assert origin_at(5).processed == 5


def test_both_sides_of_a_handover_back_up_as_soon_as_it_is_behind_them() -> None:
    origin = origin_at(2)
    backup = letter(feed(origin, 3, row(0, 1)), StoreBackup).checkpoint
    assert (backup.epoch, backup.slots) == (3, SlotSet([0, 1]))  # slot 1 too, until its new owner is safe


def test_a_new_owner_that_fails_asks_again_and_gets_the_same_state() -> None:
    origin = origin_at(4)
    assert content(attach(origin, life(SUM1), first=3)) == {1: 2}
    origin.handle(view_of(SHIFT, 2, {SUM1: Seat("new home", 1)}))
    assert attach(origin, life(SUM1), first=3) == []  # a stale request
    effects = attach(origin, life(SUM1, 1), first=3)
    assert (addressees(effects, StateMoved), content(effects)) == (["new home"], {1: 2})


def test_an_origin_forgets_what_it_handed_over_when_the_new_owner_is_safe() -> None:
    origin = origin_at(4)
    origin.handle(Trim(life(SUM), 2))
    assert totals(origin) == {0: 4, 1: 2}
    origin.handle(Trim(life(SUM), 3))
    feed(origin, 5, row(0, 1))
    assert totals(origin) == {0: 5}


def test_an_origin_keeps_departed_state_though_its_output_is_not_needed_any_more() -> None:
    origin = origin_at(4)
    origin.handle(Trim(life(SUM), 2, ahead=2))
    assert (origin.outbox.trimmed, totals(origin)) == (4, {0: 4, 1: 2})


def test_an_origin_that_fails_hands_over_again_though_nobody_needs_its_output() -> None:
    origin = origin_at(2)
    origin.handle(Trim(life(SUM), 2, ahead=1))  # who has failed before had sent more
    late = letter(feed(origin, 3, row(0, 1)), StoreBackup).checkpoint
    assert late.trimmed == 3
    healed = healing(SHIFT, trimmed=2)
    healed.handle(answer(late))
    assert content(attach(healed, life(SUM1), first=3)) == {1: 2}


def test_an_origin_that_fails_before_the_handover_replays_up_to_it_and_hands_over() -> None:
    early = letter(origin_at(1).handle(TakeCheckpoint(life(SUM))), StoreBackup).checkpoint
    healed = healing(SHIFT)
    healed.handle(answer(early))
    attach(healed, life(SUM1), first=3)
    assert content(feed(healed, 2, row(0, 1), row(1, 1))) == {1: 2}


def test_an_origin_that_fails_after_the_handover_hands_over_again() -> None:
    late = letter(feed(origin_at(2), 3, row(0, 1)), StoreBackup).checkpoint
    healed = healing(SHIFT, trimmed=2)
    healed.handle(answer(late))
    assert content(attach(healed, life(SUM1), first=3)) == {1: 2}


def test_an_origin_restored_when_the_new_owner_is_safe_has_nothing_left_to_hand_over() -> None:
    late = letter(feed(origin_at(2), 3, row(0, 1)), StoreBackup).checkpoint
    healed = healing(SHIFT, trimmed=3)
    healed.handle(answer(late))
    assert letters(attach(healed, life(SUM1), first=3), StateMoved) == []
    assert totals(healed) == {0: 3}


def test_slots_that_come_back_are_handed_over_and_kept() -> None:
    """Slot 1 leaves at epoch 3 and comes back at epoch 5."""
    there_and_back = SHIFT.amended("sum", Version(5, Assignment([0, 0, 1, 1])))
    origin = summing(view_of(there_and_back))
    origin.start(FromNothing(0))
    for epoch in (1, 2, 3, 4):
        feed(origin, epoch, *[row(slot, 1) for slot in there_and_back.slots(SUM, epoch)])
    feed(origin, 5, row(0, 1), row(1, 1))
    chunks = tuple(chunk.select(SlotSet([1])) for chunk in backup_of(ALONE, (row(1, 40),)).state)
    origin.handle(StateMoved(life(SUM1), life(SUM), 5, None, chunks))
    origin.handle(Trim(life(SUM), 3))
    assert totals(origin) == {0: 5, 1: 41}


# -- handover: the new owner ------------------------------------------------------------------------------------------


def target_at(epoch: int, topology: Topology = SHIFT) -> StatefulInstance[Rows]:
    """sum[1] in SHIFT, which has processed some epochs with a row of slots 2 and 3 each."""
    target = summing(view_of(topology), life(SUM1))
    target.start(FromNothing(0))
    for each in range(1, epoch + 1):
        feed(target, each, row(2, 1), row(3, 1))
    return target


def handover(number: int = 0, total: int = 20) -> StateMoved:
    """The state of slot 1."""
    state = backup_of(ALONE, (row(1, total),)).state
    return StateMoved(life(SUM, number), life(SUM1), 3, None, tuple(chunk.select(SlotSet([1])) for chunk in state))


def test_rows_that_had_to_wait_for_the_state_of_their_slot_are_counted() -> None:
    target = target_at(2)
    feed(target, 3, row(1, 1), row(1, 2), row(2, 1))
    assert target.held_back == 0
    target.handle(handover())
    assert (target.processed, target.held_back) == (3, 2)


def test_rows_whose_state_was_there_before_them_are_not_held_back() -> None:
    target = target_at(2)
    target.handle(handover())
    feed(target, 3, row(1, 1), row(2, 1))
    assert (target.processed, target.held_back) == (3, 0)


def test_a_new_owner_asks_the_old_one_as_soon_as_it_knows_of_the_plan() -> None:
    target = summing(view_of(Topology.initial(GRAPH, {"sum": 2})), life(SUM1))
    target.start(FromNothing(0))
    effects = target.handle(view_of(SHIFT, 2))
    assert letters(effects, Attach) == [Attach(life(SUM), life(SUM1), 3)]
    assert addressees(effects, Attach) == [node_of(SUM)]


def test_a_target_processes_rows_of_resident_slots_before_the_state_of_arriving_slots_is_in() -> None:
    target = target_at(2)
    attach(target, life(OUT), first=3)
    feed(target, 3, row(1, 1), row(2, 1))
    assert (target.processed, totals(target)) == (2, {2: 3, 3: 2})
    assert pull_all(target, life(OUT)) == []
    effects = target.handle(handover())
    assert (target.processed, totals(target)) == (3, {1: 21, 2: 3, 3: 2})
    assert {epoch: sorted(rows) for epoch, rows in pull_rows(target, life(OUT)).items()} == {
        3: sorted([row(1, 21), row(2, 3)])
    }
    assert letter(effects, StoreBackup).checkpoint.slots == SlotSet([1, 2, 3])


def test_state_that_arrives_before_its_epoch_waits_for_the_rows() -> None:
    target = target_at(1)
    target.handle(handover())
    assert totals(target) == {2: 1, 3: 1}
    feed(target, 2)
    feed(target, 3, row(1, 1))
    assert (target.processed, totals(target)) == (3, {1: 21, 2: 1, 3: 1})


def test_state_from_an_origin_that_was_replaced_is_dropped_and_its_successor_is_asked() -> None:
    target = target_at(2)
    effects = target.handle(view_of(SHIFT, 2, {SUM: Seat("new home", 1)}))
    assert letters(effects, Attach) == [Attach(life(SUM, 1), life(SUM1), 3)]
    feed(target, 3, row(1, 1))
    target.handle(handover(total=99))
    assert target.processed == 2
    target.handle(handover(number=1))
    assert (target.processed, totals(target)[1]) == (3, 21)


def test_an_origin_that_hands_over_twice_is_heard_once() -> None:
    target = target_at(2)
    feed(target, 3, row(1, 1))
    target.handle(handover())
    target.handle(handover())
    feed(target, 4, row(1, 1))
    assert totals(target)[1] == 22


def test_a_new_owner_of_slots_from_several_instances_takes_each_as_it_comes() -> None:
    gathered = Topology.initial(GRAPH, {"sum": 2}).amended("sum", Version(2, Assignment([2, 0, 2, 1])))
    target = summing(view_of(gathered), life(SUM2))
    target.start(FromNothing(1))
    feed(target, 2, row(0, 1), row(2, 1))
    for origin, slot in ((SUM1, 2), (SUM, 0)):
        assert target.processed == 1
        chunks = tuple(c.select(SlotSet([slot])) for c in backup_of(ALONE, (row(slot, 10),)).state)
        target.handle(StateMoved(life(origin), life(SUM2), 2, None, chunks))
    assert (target.processed, totals(target)) == (2, {0: 11, 2: 11})


# -- handover: state fetched ahead ------------------------------------------------------------------------------------

WARM_UP = WarmUp(life(SUM1), SUM, SlotSet([1]), 3, HOLDER)


def fetched(total: int) -> Retrieved:
    """What the holder has of slot 1, after epoch 1."""
    backup = backup_of(ALONE, (row(1, total),))
    chunks = tuple(chunk.select(SlotSet([1])) for chunk in backup.state)
    return Retrieved(life(SUM1), SUM, Checkpoint(SUM, 0, 0, 1, None, SlotSet([1]), chunks, (), 0), WARM_UP)


def test_a_target_that_is_warmed_up_asks_only_for_what_changed_since() -> None:
    target = target_at(1)
    effects = target.handle(WARM_UP)
    assert letter(effects, Retrieve) == Retrieve(life(SUM1), SUM, warm_up=WARM_UP)
    assert addressees(effects, Retrieve) == [HOLDER]
    assert letter(target.handle(fetched(20)), Attach) == Attach(life(SUM), life(SUM1), 3, {3: 1})


def test_state_fetched_ahead_and_what_changed_since_make_the_whole() -> None:
    origin = origin_at(1)
    origin.handle(TakeCheckpoint(life(SUM)))
    origin.handle(BackupCounted(life(SUM), 1, (HOLDER,)))
    target = target_at(2)
    origin.handle(letter(target.handle(fetched(1)), Attach))
    effects = feed(origin, 2, row(1, 5))
    message = letter(effects, StateMoved)
    assert (message.base, content(effects)) == (1, {1: 6})
    target.handle(message)
    feed(target, 3, row(1, 1))
    assert totals(target) == {1: 7, 2: 2, 3: 2}


def test_state_that_did_not_change_since_it_was_fetched_is_not_sent_again() -> None:
    origin = origin_at(1)
    origin.handle(TakeCheckpoint(life(SUM)))
    target = target_at(2)
    origin.handle(letter(target.handle(fetched(1)), Attach))
    effects = feed(origin, 2)
    message = letter(effects, StateMoved)
    assert content(effects) == {}
    target.handle(message)
    feed(target, 3)
    assert totals(target)[1] == 1


def test_an_origin_that_cannot_tell_the_changes_sends_everything() -> None:
    target = target_at(2)
    target.handle(fetched(77))
    target.handle(handover(total=20))
    feed(target, 3)
    assert totals(target)[1] == 20


def test_what_comes_too_late_to_warm_up_is_not_used() -> None:
    target = target_at(2, SHIFT.amended("sum", Version(6, Assignment([1, 1, 1, 1]))))  # more will come
    feed(target, 3)
    target.handle(handover())
    assert target.handle(fetched(99)) == []
    assert target.handle(Retrieved(life(SUM1), SUM, None, WARM_UP)) == []
    assert totals(target)[1] == 20


# -- sources ----------------------------------------------------------------------------------------------------------


def test_a_tick_opens_an_epoch_and_nothing_leaves_a_source_before_it_is_logged() -> None:
    source = reading()
    source.start(FromLog(0, {}, {}, 0, False))
    attach(source, life(PASS))
    effects = source.handle(Tick(life(NUMBERS), 1, False))
    assert letters(effects, OffsetsRead) == [OffsetsRead(life(NUMBERS), 1, {0: 1, 1: 1}, False)]
    assert addressees(effects, OffsetsRead) == [MANAGER]
    assert (of_kind(effects, Wake), pull_all(source, life(PASS))) == ([], [])
    assert of_kind(source.handle(Logged(life(NUMBERS), 1)), Wake)
    assert pull_rows(source, life(PASS)) == {1: [(KEYS[0], 0, 0), (KEYS[1], 0, 0)]}


def test_a_source_is_told_how_far_the_query_has_come_before_it_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    source, told = reading(), list[tuple[str, int]]()
    logic = source._logic
    read = logic.read
    monkeypatch.setattr(logic, "committed", lambda epoch: told.append(("committed", epoch)))
    monkeypatch.setattr(logic, "read", lambda epoch, slots: (told.append(("read", epoch)), read(epoch, slots))[1])
    source.start(FromLog(0, {}, {}, 0, False))
    source.handle(Tick(life(NUMBERS), 1, False))
    source.handle(Tick(life(NUMBERS), 2, False, committed=1))
    assert told == [("committed", 0), ("read", 1), ("committed", 1), ("read", 2)]


def test_epochs_leave_in_order_up_to_the_one_that_is_logged() -> None:
    source = reading()
    source.start(FromLog(0, {}, {}, 0, False))
    attach(source, life(PASS))
    for epoch in (1, 2, 3):
        source.handle(Tick(life(NUMBERS), epoch, False))
    source.handle(Logged(life(NUMBERS), 2))
    assert [*pull_rows(source, life(PASS))] == [1, 2]


def test_a_tick_that_a_source_missed_is_made_up_for_by_the_next() -> None:
    source = reading()
    source.start(FromLog(0, {}, {}, 0, False))
    effects = source.handle(Tick(life(NUMBERS), 2, False))
    assert [message.epoch for message in letters(effects, OffsetsRead)] == [1, 2]


def test_a_source_says_when_nothing_is_left() -> None:
    source = reading(rows=2)
    source.start(FromLog(0, {}, {}, 0, False))
    effects = source.handle(Tick(life(NUMBERS), 3, False))
    assert [message.exhausted for message in letters(effects, OffsetsRead)] == [False, True, True]


def test_the_final_tick_ends_event_time() -> None:
    source = reading()
    source.start(FromLog(0, {}, {}, 0, False))
    attach(source, life(PASS))
    source.handle(Tick(life(NUMBERS), 1, False))
    source.handle(Tick(life(NUMBERS), 2, True))
    source.handle(Logged(life(NUMBERS), 2))
    sent = pull_all(source, life(PASS))
    assert [(m.epoch, m.watermark) for m in sent] == [(1, 1), (2, MAX_WATERMARK)]


def test_a_source_that_is_healed_reads_logged_epochs_again_as_they_were_read() -> None:
    source = reading(me=life(NUMBERS, 0))
    effects = source.start(FromLog(2, {0: 1, 1: 2}, {3: {0: 4, 1: 2}}, ticked=4, final=False))
    attach(source, life(PASS), first=3)
    recorded, fresh = [(KEYS[0], number, number) for number in (1, 2, 3)], letter(effects, OffsetsRead)
    assert pull_rows(source, life(PASS)) == {3: recorded}  # it was logged, so it leaves at once
    assert fresh == OffsetsRead(life(NUMBERS), 4, {0: 5, 1: 3}, False)


def test_a_source_need_not_replay_what_all_its_receivers_have() -> None:
    source = reading(TWO_SOURCES)
    records = {1: {0: 1}, 2: {0: 5}, 3: {0: 6}}
    source.start(FromLog(0, {}, records, ticked=0, final=False))
    attach(source, life(PASS))
    source.handle(Trim(life(NUMBERS), 2))
    assert source.processed == 2
    source.handle(Tick(life(NUMBERS), 3, False))
    assert pull_rows(source, life(PASS)) == {3: [(KEYS[0], 5, 5)]}


#: Partition 1 goes from numbers[0] to numbers[1] at epoch 3.
SHARED = ALONE.amended("numbers", Version(3, Assignment([0, 1])))


def test_a_partition_is_handed_over_with_its_position() -> None:
    old, new = reading(SHARED), reading(SHARED, life(NUMBERS1))
    old.start(FromLog(0, {}, {}, 0, False))
    request = letter(new.start(FromLog(2, {}, {}, 2, False)), Attach)
    assert request == Attach(life(NUMBERS), life(NUMBERS1), 3)
    old.handle(request)
    effects = old.handle(Tick(life(NUMBERS), 3, False))
    assert [sorted(m.positions) for m in letters(effects, OffsetsRead)] == [[0, 1], [0, 1], [0]]
    message = letter(old.handle(Logged(life(NUMBERS), 2)), StateMoved)
    assert letters(new.handle(Tick(life(NUMBERS1), 3, False)), OffsetsRead) == []
    assert letter(new.handle(message), OffsetsRead) == OffsetsRead(life(NUMBERS1), 3, {1: 3}, False)


def test_positions_leave_a_source_no_sooner_than_they_are_logged() -> None:
    """Another incarnation might read the epochs before the handover in bites of another size."""
    source = reading(SHARED)
    source.start(FromLog(0, {}, {}, 0, False))
    attach(source, life(NUMBERS1), first=3)
    effects = [*source.handle(Tick(life(NUMBERS), 4, False)), *source.handle(Logged(life(NUMBERS), 1))]
    assert letters(effects, StateMoved) == []
    assert letter(source.handle(Logged(life(NUMBERS), 2)), StateMoved).epoch == 3


# -- sinks ------------------------------------------------------------------------------------------------------------


def opened(number: int = 0, committed: int = 0, least: int = 0) -> SinkInstance[Rows]:
    sink = sinking(number)
    sink.start(FromCommits(least))
    sink.handle(SinkOpened(committed))
    return sink


def test_a_sink_opens_its_store_before_it_asks_for_data() -> None:
    sink = sinking()
    assert sink.start(FromCommits(0)) == [OpenSink(life(OUT))]
    assert letter(sink.handle(SinkOpened(0)), Attach) == Attach(life(SUM), life(OUT), 1)


def test_a_sink_reopened_after_a_commit_goes_on_behind_it() -> None:
    sink = sinking(number=1)
    sink.start(FromCommits(2))
    effects = sink.handle(SinkOpened(4))  # the store knows better than the manager, whom a message did not reach
    assert letter(effects, Attach) == Attach(life(SUM), life(OUT, 1), 5)
    assert letter(effects, Committed) == Committed(life(OUT, 1), 4)


def test_a_new_sink_has_nothing_to_commit_of_epochs_before_its_birth() -> None:
    sink = sinking()
    sink.start(FromCommits(7))
    assert letter(sink.handle(SinkOpened(0)), Attach).first == 8


def test_a_sink_commits_whole_epochs_and_tells_when_they_are_accepted() -> None:
    sink = opened()
    rows = (row(0, 5), row(1, 6))
    effects = sink.handle(data(life(SUM), life(OUT), 1, rows, watermark=9))
    assert effects == [Commit(life(OUT), 1, {0: (rows,)}, 9)]
    effects = sink.handle(CommitAccepted(1))
    assert (letter(effects, Committed), addressees(effects, Committed)) == (Committed(life(OUT), 1), [MANAGER])


def test_a_sink_goes_on_while_commits_are_under_way() -> None:
    sink = opened()
    commits = [c for epoch in (1, 2) for c in of_kind(feed(sink, epoch, sender=life(SUM)), Commit)]
    assert [commit.epoch for commit in commits] == [1, 2]


def test_a_sink_whose_store_was_opened_by_its_successor_halts() -> None:
    sink = opened()
    feed(sink, 1, row(0, 5), sender=life(SUM))
    assert sink.handle(CommitRefused(1)) == []
    assert sink.phase is InstancePhase.HALTED
    assert feed(sink, 2, sender=life(SUM)) == []


def test_a_store_that_is_opened_twice_changes_nothing() -> None:
    sink = opened(committed=3)
    assert sink.handle(SinkOpened(5)) == []
    assert sink.processed == 3


# -- slots that come and go -----------------------------------------------------------------------------------------


def test_a_healed_source_keeps_the_position_of_a_partition_that_left_and_came_back() -> None:
    halves = [0] * (len(TWO_SOURCES.at("numbers", 1).owners) // 2)
    apart, together = Assignment([*halves, *[1] * len(halves)]), Assignment([0] * 2 * len(halves))
    there = Topology(
        GRAPH, {**ALONE.history, "numbers": (Version(1, together), Version(3, apart), Version(5, together))}
    )
    source = reading(there)
    slots = range(2 * len(halves))
    source.start(FromLog(6, dict.fromkeys(slots, 6), {}, 6, False), 6)
    source.handle(Tick(life(NUMBERS), 7, False))
    source.handle(Logged(life(NUMBERS), 7))
    read = letters(source.handle(Tick(life(NUMBERS), 8, False)), OffsetsRead)
    assert min(read[0].positions.values()) > 6


def test_slots_that_leave_a_second_time_are_not_forgotten_with_the_first_handover() -> None:
    """Slot 0 goes to sum[1] at 5, is back at 7, and goes to sum[2] at 9; the origin is restored after that."""
    history = ALONE
    for first, owner in ((5, 1), (7, 0), (9, 2)):
        history = history.amended("sum", Version(first, Assignment([owner, 0, 0, 0])))
    healed = healing(history, trimmed=3)
    healed.handle(answer(backup_of(ALONE, *[(row(0, 1),)] * 10)))
    healed.handle(Trim(life(SUM, 1), 5))
    assert content(attach(healed, life(SUM2), first=9)) == {0: 10}
