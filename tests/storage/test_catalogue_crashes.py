"""Whoever dies, at whatever call of the store: nothing that is needed is lost, and nothing is left for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from seep.storage.catalogue import Catalogue
from seep.storage.memory import MemoryStore
from seep.storage.store import BlobStore
from tests.storage.dying import Dead, DyingStore
from tests.storage.manifests import Info, catalogue, fill, ids, take, text


@dataclass
class Diary:
    """What a process knows to be so; it holds whatever becomes of the process."""

    must_be_there: set[int] = field(default_factory=set)


def committing(orders: Catalogue[Info], diary: Diary) -> None:
    run = orders.enter("tuesday")
    base = orders.latest()
    diary.must_be_there.add(take(run).id)
    diary.must_be_there.add(take(run, *([base] if base else []), savepoint=True).id)
    with suppress(ZeroDivisionError), run.begin() as attempt:
        fill(attempt)
        raise ZeroDivisionError
    diary.must_be_there.add(take(run).id)


def cleaning(orders: Catalogue[Info], diary: Diary) -> None:
    diary.must_be_there = {1, 6}  # the savepoint, and the newest
    orders.clean(keep=1)


def reading_and_cleaning(orders: Catalogue[Info], diary: Diary) -> None:
    diary.must_be_there = {1, 6}
    with orders.pin(3, "somebody"):
        diary.must_be_there.add(3)
        orders.clean(keep=1)
        diary.must_be_there.remove(3)
    orders.clean(keep=1)


def disposing(orders: Catalogue[Info], diary: Diary) -> None:
    diary.must_be_there = {2, 6}
    orders.dispose([1, 3])


def disposing_of_all(orders: Catalogue[Info], diary: Diary) -> None:
    orders.dispose_all()
    assert diary.must_be_there == set()


Story = Callable[[Catalogue[Info], Diary], None]
STORIES = [committing, cleaning, reading_and_cleaning, disposing, disposing_of_all]


def furnished() -> MemoryStore:
    """A savepoint, checkpoints that build on one another, one that was given up, and one of a run that is dead."""
    store = MemoryStore("checkpoints")
    run = catalogue(store).enter("monday")
    take(run, savepoint=True)
    second = take(run)
    take(run, second)
    run.begin().abandon()
    fill(run.begin())
    take(run)
    return store


def crashes(story: Story) -> Iterator[tuple[MemoryStore, Diary]]:
    """A store after a story that ended at each of its calls, before the call and after it."""
    for done in (False, True):
        calls = 0
        while True:
            calls += 1
            store, diary = furnished(), Diary()
            dying = DyingStore(store, calls, done=done)
            with suppress(Dead):
                story(catalogue(dying), diary)
            yield store, diary
            if dying.left > 0:
                break
        assert calls > 10, "the story is too short to be one"


def blobs_there(store: BlobStore) -> set[str]:
    return {key for key in store.list() if "/counter/" in key}


@pytest.mark.parametrize("story", STORIES)
def test_whatever_is_complete_after_a_crash_has_all_its_blobs(story: Story) -> None:
    for store, _ in crashes(story):
        referred = {blob for info in catalogue(store).complete() for blob in info.blobs}
        assert referred <= blobs_there(store)


@pytest.mark.parametrize("story", STORIES)
def test_what_was_committed_or_was_to_stay_is_there_after_a_crash(story: Story) -> None:
    for store, diary in crashes(story):
        assert diary.must_be_there <= set(ids(catalogue(store).complete()))


@pytest.mark.parametrize("story", STORIES)
def test_the_next_run_and_a_cleaning_leave_nothing_of_a_crash(story: Story) -> None:
    for store, _ in crashes(story):
        before = ids(catalogue(store).complete())
        run = catalogue(store, lambda: 1e9).enter("wednesday")
        newest = take(run)
        assert newest.id > max(before, default=0)
        catalogue(store, lambda: 1e9).clean(keep=1)
        left = catalogue(store).complete()
        assert newest in left
        assert all(info.savepoint for info in left if info != newest)
        assert blobs_there(store) == {blob for info in left for blob in info.blobs}
        needed = {blob.split("/")[1] for blob in blobs_there(store)}
        own = [key.removeprefix("orders/").partition(".")[0] for key in store.list() if "." in key]
        assert set(own) == needed
        assert list(store.list("orders/runs/")) == [f"orders/runs/{run.generation:06d}"]


@pytest.mark.parametrize("story", [cleaning, reading_and_cleaning, disposing])
def test_a_run_goes_on_when_somebody_who_cleans_dies(story: Story) -> None:
    """Also if the run and the cleaning are of one process, and only the store was away for a while."""
    for store, _ in crashes(story):
        newest = catalogue(store).latest()
        assert newest
        run = catalogue(store).enter("wednesday")
        delta = take(run, newest)
        assert catalogue(store).latest() == delta


def test_a_run_goes_on_when_the_store_was_away_for_a_while() -> None:
    for calls in range(1, 40):
        for done in (False, True):
            store = furnished()
            flaky = DyingStore(store, 10**6, done=done)
            run = catalogue(flaky).enter("tuesday")
            flaky.left = calls
            with suppress(Dead):
                take(run)
            flaky.left = 10**6
            newest = take(run)
            catalogue(store).clean(keep=1)
            assert ids(catalogue(store).complete()) == [newest.id, 1]
            assert {key[:19] for key in blobs_there(store)} == {"orders/000000000001", f"orders/{newest.id:012d}"}


def test_a_commit_whose_answer_was_lost_may_be_repeated() -> None:
    for done in (False, True):
        store = MemoryStore("checkpoints")
        flaky = DyingStore(store, 10**6, done=done)
        attempt = catalogue(flaky).enter("monday").begin()
        blobs = fill(attempt)
        flaky.left = 2
        with pytest.raises(Dead):
            attempt.commit(text(1, blobs))
        flaky.left = 10**6
        assert attempt.commit(text(1, blobs)) == catalogue(store).latest()
