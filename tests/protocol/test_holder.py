"""The holder: what it keeps, what it refuses, and how it cuts a backup for a split."""

from __future__ import annotations

from typing import TypeVar

from primitives.backup import StoreOutcome
from primitives.checkpoint import Checkpoint
from primitives.emission import Emission
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.topology import Topology
from seep.protocol.effects import Effect, Post
from seep.protocol.holder import Holder
from seep.protocol.messages import (
    AdoptParts,
    BackupFound,
    BackupRefused,
    BackupStored,
    DeleteBackup,
    DropParts,
    FindBackup,
    PartitionBackup,
    Partitioned,
    Retrieve,
    Retrieved,
    StoreBackup,
    WarmUp,
)
from seep.protocol.view import MANAGER, Seat
from seep.simulator.cells import Cells
from tests.protocol.staging import ALL, GRAPH, KEYS, SLOT_BITS, SUM, SUM1, letter, life, view_of

Body = TypeVar("Body")

PARTS = {SUM: SlotSet([0, 1]), SUM1: SlotSet([2, 3])}


def checkpoint(
    epoch: int = 5, base: int | None = None, number: int = 0, owner: InstanceId = SUM, serial: int | None = None
) -> Checkpoint:
    """A key in each slot, and the output of the epoch."""
    state = Cells("sum", SLOT_BITS)
    for key in KEYS:
        state.put(key, epoch)
    chunks = tuple(state.snapshot(ALL))
    buffer: tuple[tuple[int, Emission[str]], ...] = ((epoch, Emission({}, 0)),)
    return Checkpoint(owner, number, epoch if serial is None else serial, epoch, base, ALL, chunks, buffer, 0)


def holder_of(*checkpoints: Checkpoint) -> Holder:
    holder = Holder()
    for each in checkpoints:
        letter(holder.on_store("owner's node", StoreBackup(each)), BackupStored)
    return holder


def only(effects: list[Effect], to: str, kind: type[Body]) -> Body:
    """The only letter, which goes to a node."""
    assert [effect.to for effect in effects if isinstance(effect, Post)] == [to]
    return letter(effects, kind)


def slots_in(found: Checkpoint | None) -> list[int]:
    assert found is not None
    return sorted(KEYS.index(key) for chunk in found.state for cells in chunk.cells.values() for key in cells)


# -- storing ----------------------------------------------------------------------------------------------------------


def test_the_manager_is_told_what_was_stored() -> None:
    effects = Holder().on_store("owner's node", StoreBackup(checkpoint(5, number=2, serial=7)))
    assert only(effects, MANAGER, BackupStored) == BackupStored(life(SUM, 2), 5, (2, 7))


def test_the_owner_is_told_that_the_base_is_missing() -> None:
    effects = Holder().on_store("owner's node", StoreBackup(checkpoint(8, base=5)))
    assert only(effects, "owner's node", BackupRefused) == BackupRefused(life(SUM), 8, StoreOutcome.NEEDS_FULL)


def test_an_incarnation_that_the_view_has_replaced_stores_nothing() -> None:
    holder = Holder()
    holder.on_view(view_of(Topology.initial(GRAPH), seats={SUM: Seat("elsewhere", 2)}))
    effects = holder.on_store("zombie", StoreBackup(checkpoint(number=1)))
    assert only(effects, "zombie", BackupRefused).why is StoreOutcome.FENCED
    assert only(holder.on_store("elsewhere", StoreBackup(checkpoint(number=2))), MANAGER, BackupStored)


def test_a_backup_is_deleted_on_demand_unless_it_is_newer() -> None:
    holder = holder_of(checkpoint(5))
    assert holder.on_delete(DeleteBackup(SUM, (0, 4))) == []
    assert list(holder.store.owners) == [SUM]
    assert holder.on_delete(DeleteBackup(SUM, (0, 5))) == []
    assert list(holder.store.owners) == []


# -- retrieving -------------------------------------------------------------------------------------------------------


def test_a_successor_gets_the_whole_backup_and_its_predecessor_stores_nothing_more() -> None:
    holder = holder_of(checkpoint(5), checkpoint(8, base=5))
    answer = only(holder.on_retrieve("new home", Retrieve(life(SUM, 1), SUM)), "new home", Retrieved)
    assert (answer.asker, answer.owner, answer.warm_up) == (life(SUM, 1), SUM, None)
    assert answer.checkpoint is not None
    assert (answer.checkpoint.epoch, answer.checkpoint.base) == (8, None)
    assert (
        letter(holder.on_store("zombie", StoreBackup(checkpoint(9, base=8))), BackupRefused).why is StoreOutcome.FENCED
    )


def test_who_asks_for_a_backup_that_is_not_here_is_told_so() -> None:
    answer = only(Holder().on_retrieve("new home", Retrieve(life(SUM, 1), SUM)), "new home", Retrieved)
    assert answer.checkpoint is None


def test_who_only_wants_slots_ahead_gets_these_without_output_and_does_not_fence_the_owner() -> None:
    holder = holder_of(checkpoint(5))
    warm_up = WarmUp(life(SUM1, 3), SUM, SlotSet([1, 2]), 9, "holder")
    answer = letter(holder.on_retrieve("target", Retrieve(life(SUM1, 3), SUM, warm_up=warm_up)), Retrieved)
    assert (answer.warm_up, slots_in(answer.checkpoint)) == (warm_up, [1, 2])
    assert answer.checkpoint is not None
    assert (answer.checkpoint.slots, answer.checkpoint.buffer) == (SlotSet([1, 2]), ())
    assert letter(holder.on_store("owner's node", StoreBackup(checkpoint(6))), BackupStored)


def test_who_wants_slots_ahead_of_an_owner_without_backup_gets_nothing() -> None:
    warm_up = WarmUp(life(SUM1), SUM, SlotSet([1]), 9, "holder")
    answer = letter(Holder().on_retrieve("target", Retrieve(life(SUM1), SUM, warm_up=warm_up)), Retrieved)
    assert (answer.checkpoint, answer.warm_up) == (None, warm_up)


# -- a backup that was not recorded -----------------------------------------------------------------------------------


def test_a_search_finds_what_was_stored_and_fences_the_owner_that_is_gone() -> None:
    holder = holder_of(checkpoint(5, number=1, serial=7))
    assert only(holder.on_find(FindBackup(life(SUM, 1))), MANAGER, BackupFound) == BackupFound(life(SUM, 1), 5, (1, 7))
    assert letter(holder.on_store("zombie", StoreBackup(checkpoint(6, number=1))), BackupRefused)


def test_a_search_may_find_nothing() -> None:
    assert only(Holder().on_find(FindBackup(life(SUM))), MANAGER, BackupFound).epoch is None


# -- splits -----------------------------------------------------------------------------------------------------------


def split(holder: Holder, plan: int = 1) -> Partitioned:
    return only(holder.on_partition(PartitionBackup(plan, SUM, PARTS)), MANAGER, Partitioned)


def part(holder: Holder, owner: InstanceId, plan: int = 1) -> Checkpoint | None:
    return letter(holder.on_retrieve("new home", Retrieve(life(owner, 1), owner, plan)), Retrieved).checkpoint


def test_a_backup_is_cut_and_each_new_owner_gets_its_part() -> None:
    holder = holder_of(checkpoint(5))
    assert split(holder) == Partitioned(1, 5)
    assert slots_in(part(holder, SUM)) == [0, 1]
    assert slots_in(part(holder, SUM1)) == [2, 3]
    assert part(holder, SUM1, plan=2) is None


def test_without_a_backup_there_is_nothing_to_cut() -> None:
    assert split(Holder()) == Partitioned(1, None)


def test_while_a_split_is_prepared_the_owner_goes_on_backing_up() -> None:
    holder = holder_of(checkpoint(5))
    split(holder)
    part(holder, SUM)
    assert letter(holder.on_store("owner's node", StoreBackup(checkpoint(8, base=5))), BackupStored).epoch == 8
    found = part(holder, SUM)
    assert found is not None
    assert found.epoch == 5


def test_once_a_split_is_effective_its_parts_are_the_backups() -> None:
    holder = holder_of(checkpoint(5))
    split(holder)
    assert holder.on_adopt(AdoptParts(1, (life(SUM, 1), life(SUM1)))) == []
    assert set(holder.store.owners) == {SUM, SUM1}
    answer = letter(holder.on_retrieve("home", Retrieve(life(SUM1, 1), SUM1)), Retrieved)
    assert slots_in(answer.checkpoint) == [2, 3]
    assert holder.parts == {}


def test_once_a_split_is_effective_the_origin_stores_nothing_more() -> None:
    """Not even what was under way: the view that fences the origin may come later than that."""
    holder = holder_of(checkpoint(5))
    split(holder)
    holder.on_adopt(AdoptParts(1, (life(SUM, 1), life(SUM1))))
    late = holder.on_store("origin's node", StoreBackup(checkpoint(8, base=5)))
    assert letter(late, BackupRefused).why is StoreOutcome.FENCED
    assert holder.store.epoch(SUM) == 5


def test_the_parts_of_a_split_that_was_given_up_are_dropped() -> None:
    holder = holder_of(checkpoint(5))
    split(holder)
    assert holder.on_drop_parts(DropParts(1)) == holder.on_drop_parts(DropParts(1)) == []
    assert holder.parts == {}
    assert holder.store.owners == (SUM,)
