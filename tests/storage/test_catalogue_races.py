"""Runs, readers and cleaners at one store at once, in many orders of their calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from seep.storage.attempt import Fenced
from seep.storage.catalogue import Catalogue
from seep.storage.memory import MemoryStore
from seep.storage.reading import NotStanding
from seep.storage.records import Lease, Records
from seep.storage.store import BlobStore
from tests.storage.manifests import QUERY, Info, catalogue, fill, ids, take, text
from tests.storage.turns import Turns, TurnStore


@dataclass
class World:
    """A store that several processes work at, and what they know to be so."""

    turns: Turns
    store: MemoryStore = field(default_factory=MemoryStore)
    committed: set[int] = field(default_factory=set)
    pinned: set[int] = field(default_factory=set)  #: and never released
    disposed: set[int] = field(default_factory=set)
    savepoints: set[int] = field(default_factory=set)

    def catalogue(self) -> Catalogue[Info]:
        """Another process's."""
        return catalogue(TurnStore(self.store, self.turns))

    def __post_init__(self) -> None:
        run = catalogue(self.store).enter("sunday")
        take(run, savepoint=True)
        take(run, take(run))
        self.savepoints.add(1)


Process = Callable[[World], None]


def runs(world: World) -> None:
    """Each of its checkpoints builds on the newest there is."""
    orders = world.catalogue()
    with suppress(Fenced):
        run = orders.enter("a run")
        for _ in range(2):
            with suppress(NotStanding):
                base = orders.latest()
                world.committed.add(take(run, *([base] if base else [])).id)


def cleans(world: World) -> None:
    world.disposed.update(world.catalogue().clean(keep=1).disposed)


def disposes_of_the_newest(world: World) -> None:
    orders = world.catalogue()
    newest = orders.latest()
    with suppress(UserError):  # it is in use, or somebody else was faster
        if newest:
            world.disposed.update(orders.dispose([newest.id]).disposed)


def reads(world: World) -> None:
    orders = world.catalogue()
    newest = orders.latest()
    assert newest, "there is always one"
    with suppress(NotStanding):
        orders.pin(newest.id, "a reader")
        world.pinned.add(newest.id)
        assert all(world.store.get(blob) for blob in newest.blobs)


def reads_an_older_one(world: World) -> None:
    orders = world.catalogue()
    with suppress(NotStanding):
        orders.pin(orders.complete()[-1].id, "a reader").release()
        orders.pin(2, "a reader")
        world.pinned.add(2)


PROCESSES: list[Process] = [runs, cleans, disposes_of_the_newest, reads, reads_an_older_one]


def check(world: World) -> None:
    """What must hold when all have come to their end."""
    complete = catalogue(world.store).complete()
    there = set(world.store.list())
    assert complete, "the last one is never removed"
    assert {blob for info in complete for blob in info.blobs} <= there, "whatever is complete has its blobs"
    assert world.pinned <= set(ids(complete)), "what is pinned stays"
    assert world.savepoints.difference(world.disposed) <= set(ids(complete)), "savepoints stay"
    assert world.committed <= set(ids(complete)) | world.disposed, "what was committed goes only by removal"


@settings(max_examples=200)
@example([runs, cleans, runs, disposes_of_the_newest], 1682)  # a listing has the claim of what is removed, and no seal
@given(st.lists(st.sampled_from(PROCESSES), min_size=2, max_size=4), st.integers(0, 2**32))
def test_processes_in_any_order_of_their_calls_lose_nothing(processes: list[Process], seed: int) -> None:
    world = World(Turns(random.Random(seed).randrange))
    world.turns.run([lambda each=each: each(world) for each in processes])
    check(world)


class Interrupted:
    """Lets something happen once, right before its `nth` call of this kind with a key that ends so."""

    def __init__(self, inner: BlobStore, call: str, ending: str, nth: int, happens: Callable[[], object]) -> None:
        self._inner = inner
        self._awaited, self._ending, self._left, self._happens = call, ending, nth, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        self._before("get", key)
        return self._inner.get(key, start, length)

    def list(self, prefix: str = "") -> Iterator[str]:
        self._before("list", prefix)
        return self._inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._before("delete", key)
            self._inner.delete([key])

    def _before(self, call: str, key: str) -> None:
        if call == self._awaited and key.endswith(self._ending):
            self._left -= 1
            if self._left == 0:
                self._happens()


def test_a_cleaner_that_gives_way_to_a_reader_does_not_give_way_for_another_one() -> None:
    store = World(Turns(lambda _: 0)).store
    records = Records(store, QUERY)

    def meanwhile() -> None:
        """A reader has written its pin down, and not yet looked, when a second cleaner looks for pins."""
        late = Interrupted(store, "list", "orders/", 5, lambda: records.pin(2, "aa", Lease("a reader", 1.0)))
        assert catalogue(late).clean(keep=1).held == {2: "a reader reads it"}
        with pytest.raises(NotStanding):
            catalogue(store).pin(2, "another reader")

    first = Interrupted(store, "delete", "000000000002.manifest", 1, meanwhile)
    assert catalogue(first).clean(keep=1).disposed == (2,)
    assert ids(catalogue(store).complete()) == [3, 1]


def test_a_cleaner_whose_listing_is_out_of_date_makes_another_one() -> None:
    store = MemoryStore("checkpoints")
    run = catalogue(store).enter("monday")
    begun = []

    def meanwhile() -> None:
        """A checkpoint comes, and one that builds on it is under way, when the cleaner lists; then it is done."""
        base = take(run)
        begun.append((attempt := run.begin([base.id]), fill(attempt).union(base.blobs)))

    def later() -> None:
        """The first of the two goes, as nobody builds on it any more, before the cleaner has read its manifest."""
        [(attempt, blobs)] = begun
        attempt.commit(text(attempt.id, blobs))
        assert catalogue(store).clean(keep=1).disposed == (1,)

    listing = Interrupted(store, "list", "orders/", 3, meanwhile)
    catalogue(Interrupted(listing, "get", "000000000001.manifest", 1, later)).clean(keep=1)
    newest = catalogue(store).latest()
    assert newest
    assert ids([newest]) == [2]
    assert all(store.get(blob) for blob in newest.blobs)


@pytest.mark.parametrize("seed", range(40))
def test_of_two_runs_that_begin_at_once_only_one_goes_on(seed: int) -> None:
    world = World(Turns(random.Random(seed).randrange))
    done: dict[str, list[int]] = {"monday": [], "tuesday": []}

    def works(name: str) -> None:
        run = world.catalogue().enter(name)
        with suppress(Fenced):
            for _ in range(20):
                done[name].append(take(run).id)

    world.turns.run([lambda: works("monday"), lambda: works("tuesday")])
    first, second = sorted(done.values(), key=len)
    assert len(second) == 20
    assert max(first, default=0) < min(second)
    assert ids(catalogue(world.store).complete())[:20] == second[::-1]
