"""What all keepers of backups promise: a node, a chain of nodes, and the storage. Asked by letters, as they are."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.backup import NodeBackups, StoreOutcome, retrieve_backup
from primitives.checkpoint import Checkpoint, checkpoint_state
from primitives.graph import InstanceId
from primitives.mapped import MappedFiles
from primitives.outbox import Outbox
from primitives.slots import SlotSet
from primitives.topology import Topology
from seep.durable.backups import StorageHolder, StoredBackups
from seep.protocol.effects import Effect, Post
from seep.protocol.holder import Holder, HolderLetter
from seep.protocol.messages import (
    BackupFound,
    BackupRefused,
    BackupStored,
    DeleteBackup,
    FindBackup,
    Retrieve,
    Retrieved,
    StoreBackup,
    WarmUp,
)
from seep.protocol.view import MANAGER, STORAGE
from seep.storage.layout import BackupKey, key_of
from seep.storage.local import LocalStore
from seep.storage.memory import MemoryStore
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore
from tests.protocol.staging import GRAPH, SUM, SUM1, life, view_of
from tests.storage.turns import Turns, TurnStore
from tests.strategies import ArrowState, Writes, write, writes

BITS = 2
ALL = SlotSet.full(BITS)
#: The first incarnations of a run that begins from nothing, and of one that goes on.
NUMBERS = (0, 2 << 20)


class Keepers:
    """One or several holders that keep the same backups."""

    def __init__(self, *holders: Holder) -> None:
        self.holders = {holder.name: holder for holder in holders}
        self.chain = tuple(self.holders)
        self.told: list[Post] = []

    def offer(self, checkpoint: Checkpoint) -> StoreOutcome:
        """What the owner is told; nothing, if all of them keep it."""
        self._ask("owner's node", self.chain[:1], StoreBackup(checkpoint, self.chain))
        refused = [each.body for each in self.told if isinstance(each.body, BackupRefused)]
        kept = [each.body for each in self.told if isinstance(each.body, BackupStored)]
        assert bool(refused) != (len(kept) == len(self.chain)), "all of them keep it, or the owner hears of it"
        return refused[0].why if refused else StoreOutcome.KEPT

    def retrieve(self, number: int, owner: InstanceId = SUM) -> Checkpoint | None:
        """What the successor of that number begins with; from the last of them, which has it from the others."""
        return self._retrieved(Retrieve(life(owner, number), owner)).checkpoint

    def some_slots(self, slots: SlotSet) -> Checkpoint | None:
        target = life(SUM1, 9)
        asked = Retrieve(target, SUM, warm_up=WarmUp(target, SUM, slots, 9, self.chain[-1]))
        return self._retrieved(asked).checkpoint

    def find(self, number: int) -> BackupFound:
        """What there is of an incarnation that is gone."""
        self._ask(MANAGER, self.chain, FindBackup(life(SUM, number)))
        found = {each.body for each in self.told if isinstance(each.body, BackupFound)}
        assert len(found) == 1
        return found.pop()

    def delete(self, up_to: tuple[int, int]) -> None:
        self._ask(MANAGER, self.chain, DeleteBackup(SUM, up_to))

    def _retrieved(self, asked: Retrieve) -> Retrieved:
        self._ask("new home", self.chain[-1:], asked)
        [answer] = self.told
        assert isinstance(answer.body, Retrieved)
        return answer.body

    def _ask(self, sender: str, to: Iterable[str], letter: HolderLetter) -> None:
        self.told = []
        for name in to:
            self._deliver(name, self.holders[name].receive(sender, letter))

    def _deliver(self, source: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Post)
            if effect.to in self.holders:
                self._deliver(effect.to, self.holders[effect.to].receive(source, effect.body))
            else:
                self.told.append(effect)


def one_node(place: Path) -> Keepers:
    return Keepers(Holder("n1", store=NodeBackups(max_deltas=2, shelf=MappedFiles(place / "shelf", above=100))))


def three_nodes(place: Path) -> Keepers:  # noqa: ARG001
    names = ("n1", "n2", "n3")
    keepers = Keepers(*(Holder(name, store=NodeBackups(max_deltas=2)) for name in names))
    for holder in keepers.holders.values():
        holder.on_view(view_of(Topology.initial(GRAPH), idle=names))
    return keepers


def in_storage(store: BlobStore) -> Keepers:
    return Keepers(Holder(STORAGE, store=StoredBackups(store, "orders", "5b1c", max_deltas=2)))


def in_files(place: Path) -> Keepers:
    return in_storage(LocalStore(place / "storage"))


def in_memory(place: Path) -> Keepers:  # noqa: ARG001
    return in_storage(MemoryStore("backups"))


KINDS: Sequence[Callable[[Path], Keepers]] = (one_node, three_nodes, in_files, in_memory)


@pytest.fixture(params=KINDS)
def keepers(request: pytest.FixtureRequest, tmp_path: Path) -> Keepers:
    made: Keepers = request.param(tmp_path)
    return made


def checkpoint(
    serial: int, epoch: int, base: int | None = None, number: int = 0, owner: InstanceId = SUM
) -> Checkpoint:
    """Of a state that has the number of its epoch in all slots."""
    state = ArrowState(BITS)
    for key in range(16):
        state.put(key, epoch)
    chunks = tuple(state.snapshot(ALL, None))
    return Checkpoint(owner, number, serial, epoch, base, ALL, chunks, (), trimmed=epoch)


def content(found: Checkpoint | None) -> dict[int, int]:
    assert found is not None
    restored = ArrowState(BITS)
    restored.restore(found.state)
    return restored.content()


# --- keeping and giving back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(rounds=st.lists(st.tuples(writes, st.booleans()), min_size=1, max_size=6), number=st.sampled_from(NUMBERS))
def test_what_is_retrieved_is_the_state_of_the_newest_checkpoint(
    kind: Callable[[Path], Keepers], rounds: list[tuple[Writes, bool]], number: int
) -> None:
    """The owner sends a checkpoint in full where it is asked for one."""
    with TemporaryDirectory() as place:
        keepers, state = kind(Path(place)), ArrowState(BITS)
        for epoch, (content, full) in enumerate(rounds, start=1):
            write(state, content, ALL, BITS)
            for base in (None if full or epoch == 1 else epoch - 1, None):
                taken = checkpoint_state(
                    state, Outbox(), owner=SUM, incarnation=number, serial=epoch, epoch=epoch, slots=ALL, base=base
                )
                if keepers.offer(taken) is StoreOutcome.KEPT:
                    break
        backup = keepers.retrieve(number + 1)
        assert backup is not None
        restored = ArrowState(BITS)
        restored.restore(backup.state)
        assert (backup.epoch, backup.base, restored.content()) == (len(rounds), None, state.content())


def test_of_an_owner_that_has_stored_nothing_there_is_nothing(keepers: Keepers) -> None:
    keepers.offer(checkpoint(1, 5, owner=SUM1))
    assert keepers.retrieve(1) is None
    assert (keepers.find(0).epoch, keepers.find(0).order) == (None, (-1, -1))
    assert keepers.some_slots(SlotSet([1])) is None
    assert keepers.retrieve(1, SUM1) is not None


@pytest.mark.parametrize("base", [4, 6, 50])
def test_a_delta_is_refused_whose_base_is_not_the_newest_checkpoint_here(keepers: Keepers, base: int) -> None:
    keepers.offer(checkpoint(1, 5))
    before = content(keepers.some_slots(ALL))
    assert keepers.offer(checkpoint(2, 60, base)) is StoreOutcome.NEEDS_FULL
    assert content(keepers.some_slots(ALL)) == before
    assert keepers.offer(checkpoint(3, 60)) is StoreOutcome.KEPT


def test_a_delta_is_refused_where_nothing_is_kept(keepers: Keepers) -> None:
    assert keepers.offer(checkpoint(1, 5, base=4)) is StoreOutcome.NEEDS_FULL
    assert keepers.retrieve(1) is None


def test_what_comes_late_or_twice_does_not_undo_what_is_newer(keepers: Keepers) -> None:
    first, second = checkpoint(1, 5), checkpoint(2, 7, base=5)
    for each in (first, second, second, first):
        assert keepers.offer(each) is StoreOutcome.KEPT
    assert keepers.find(0).order == (0, 2)
    assert set(content(keepers.retrieve(1)).values()) == {7}


def test_however_many_deltas_come_few_are_kept(keepers: Keepers) -> None:
    for serial in range(1, 30):
        if keepers.offer(checkpoint(serial, serial, base=serial - 1 or None)) is StoreOutcome.NEEDS_FULL:
            assert keepers.offer(checkpoint(serial, serial)) is StoreOutcome.KEPT
        for holder in keepers.holders.values():
            assert len(holder.store.links(SUM)) <= holder.store.max_deltas + 1
            assert [link.order for link in holder.store.links(SUM)] == [each.order for each in holder.store.chain(SUM)]
            assert list(holder.broken_rules()) == []
    assert content(keepers.retrieve(1)) == dict.fromkeys(range(16), 29)


def test_some_slots_are_given_ahead_without_the_others_and_without_output(keepers: Keepers) -> None:
    keepers.offer(checkpoint(1, 5))
    found = keepers.some_slots(SlotSet([1, 2]))
    assert found is not None
    assert (found.slots, found.buffer) == (SlotSet([1, 2]), ())
    assert 0 < len(content(found)) < 16
    assert keepers.offer(checkpoint(2, 6, base=5)) is StoreOutcome.KEPT, "the owner goes on"


def test_owners_do_not_mix(keepers: Keepers) -> None:
    ten = InstanceId(SUM.operator, 10)
    for epoch, owner in enumerate((SUM, SUM1, ten), start=1):
        keepers.offer(checkpoint(1, epoch, owner=owner))
    keepers.delete((9, 9))
    assert keepers.find(0).epoch is None
    assert [content(keepers.retrieve(1, owner))[0] for owner in (SUM1, ten)] == [2, 3]
    assert {each for holder in keepers.holders.values() for each in holder.store.owners} == {SUM1, ten}


# --- successors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", NUMBERS)
def test_a_successor_goes_on_from_the_backup_and_its_predecessor_stores_nothing_more(
    keepers: Keepers, number: int
) -> None:
    keepers.offer(checkpoint(1, 5, number=number))
    assert keepers.retrieve(number + 1) is not None
    for name in keepers.chain[:-1]:  # the others hear of the successor by the view
        keepers.holders[name].store.fence(SUM, number + 1)
    assert keepers.offer(checkpoint(2, 9, base=5, number=number)) is StoreOutcome.FENCED
    assert keepers.offer(checkpoint(3, 9, number=number)) is StoreOutcome.FENCED
    assert keepers.offer(checkpoint(0, 6, base=5, number=number + 1)) is StoreOutcome.KEPT
    assert keepers.find(number + 1).order == (number + 1, 0)
    assert set(content(keepers.retrieve(number + 2)).values()) == {6}


def test_who_looks_for_the_backup_of_one_that_is_gone_fences_it(keepers: Keepers) -> None:
    keepers.offer(checkpoint(7, 5, number=1))
    assert keepers.find(1) == BackupFound(life(SUM, 1), 5, (1, 7))
    assert keepers.offer(checkpoint(8, 6, number=1)) is StoreOutcome.FENCED
    assert keepers.find(1) == BackupFound(life(SUM, 1), 5, (1, 7))


def test_one_that_is_gone_is_fenced_also_if_it_has_stored_nothing(keepers: Keepers) -> None:
    assert keepers.find(0).epoch is None
    assert keepers.offer(checkpoint(1, 5)) is StoreOutcome.FENCED
    assert keepers.retrieve(1) is None
    assert keepers.offer(checkpoint(1, 5, number=1)) is StoreOutcome.KEPT


@pytest.mark.parametrize(("up_to", "stays"), [((0, 1), True), ((0, 2), False), ((1, 0), False)])
def test_a_backup_is_deleted_unless_it_is_newer(keepers: Keepers, up_to: tuple[int, int], stays: bool) -> None:
    keepers.offer(checkpoint(1, 5))
    keepers.offer(checkpoint(2, 7, base=5))
    keepers.delete(up_to)
    assert (keepers.find(0).epoch == 7) == stays
    assert any(holder.store.owners for holder in keepers.holders.values()) == stays


# --- in storage, several processes work for themselves ----------------------------------------------------------------


def taken_over(turns: Turns) -> tuple[StoredBackups, list[dict[int, int]]]:
    """One incarnation stores on, in full and deltas, and two others begin after it, at the same time."""
    inner = MemoryStore(str(uuid.uuid4()))
    stores = [StoredBackups(TurnStore(inner, turns), "orders", "5b1c", max_deltas=2) for _ in range(3)]
    zombie, first, second = (Keepers(Holder(STORAGE, store=store)) for store in stores)
    found: list[dict[int, int]] = []

    def stores_on() -> None:
        for serial, base in ((2, 5), (3, None), (4, 7), (5, None)):
            zombie.offer(checkpoint(serial, serial + 4, base))

    def begins(keepers: Keepers, number: int) -> None:
        found.append(content(keepers.retrieve(number)))

    StoredBackups(inner, "orders", "5b1c").replace(checkpoint(1, 5))
    turns.run([stores_on, lambda: begins(first, 1), lambda: begins(second, 2)])
    return StoredBackups(inner, "orders", "5b1c"), found


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_whatever_a_predecessor_is_storing_when_its_successor_begins_nothing_is_lost(seed: int) -> None:
    """Each successor begins from a checkpoint, and whoever comes after it finds the same, or an earlier one's."""
    store, found = taken_over(Turns(random.Random(seed).randrange))
    assert len(found) == 2
    later = content(retrieve_backup(store, SUM))
    assert later in found
    assert len(set(later.values())) == 1


def test_a_checkpoint_in_full_leaves_nothing_of_what_was_before() -> None:
    store = MemoryStore("before")
    keepers = in_storage(store)
    for serial, base in ((1, None), (2, 5)):
        keepers.offer(checkpoint(serial, 5 + 2 * serial - 2, base))
    keepers.retrieve(1)
    assert keepers.offer(checkpoint(0, 8, number=1)) is StoreOutcome.KEPT
    assert [key for key in map(key_of, store.list()) if isinstance(key, BackupKey)] == [
        BackupKey("orders", "5b1c", SUM.operator, SUM.index, 1, 0, 8, None)
    ]


class Process:
    """A process with backups in storage, and what it hears of them."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []
        self.failures: list[BaseException] = []

    def on_answer(self, to: str, body: object) -> None:
        self.heard.append((to, body))

    def on_storage_failed(self, reason: BaseException) -> None:
        self.failures.append(reason)


def test_processes_of_a_run_work_on_the_storage_by_themselves_and_its_end_leaves_nothing(tmp_path: Path) -> None:
    settings, told = StorageSettings(location=str(tmp_path)), [Process(), Process()]
    node, other = (StorageHolder(settings, "orders", "5b1c", process) for process in told)
    node.ask("n1", StoreBackup(checkpoint(1, 5), (STORAGE,)))
    node.close()
    other.ask("n2", Retrieve(life(SUM, 1), SUM))
    other.close()
    assert told[0].heard == [(MANAGER, BackupStored(life(SUM), 5, (0, 1), (STORAGE,)))]
    [(to, answer)] = told[1].heard
    assert to == "n2"
    assert isinstance(answer, Retrieved)
    assert set(content(answer.checkpoint).values()) == {5}
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    other.clear()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [failure for process in told for failure in process.failures]


def test_storage_that_cannot_be_used_is_a_failure_of_the_process_that_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    told = Process()
    holder = StorageHolder(StorageSettings(location=str(tmp_path / "file")), "orders", "5b1c", told)
    holder.ask("n1", StoreBackup(checkpoint(1, 5), (STORAGE,)))
    holder.close()
    [failure] = told.failures
    assert "cannot be" in str(failure)
    assert told.heard == []
