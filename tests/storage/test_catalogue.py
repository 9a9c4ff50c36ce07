"""Checkpoints are complete or not there, belong to one run, and go only when nobody needs them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.manifest import Manifest, read_manifest
from primitives.errors import Damaged, EnvironmentFault, InternalError, UserError
from seep.storage.attempt import Fenced
from seep.storage.catalogue import Catalogue
from seep.storage.disposal import InUse
from seep.storage.layout import BackupKey, PieceKey, PushedBatchKey
from seep.storage.memory import MemoryStore
from seep.storage.reading import NotStanding
from seep.storage.store import NotThere
from tests.storage.manifests import catalogue, fill, ids, take, text


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("checkpoints")


def keys_of(store: MemoryStore, id: int) -> list[str]:
    return list(store.list(f"orders/{id:012d}"))


# --- complete or not there --------------------------------------------------------------------------------------------


def test_a_query_without_checkpoints_has_no_latest(store: MemoryStore) -> None:
    assert catalogue(store).latest() is None
    assert catalogue(store).complete() == []


def test_a_checkpoint_is_there_from_its_commit_on_and_not_before(store: MemoryStore) -> None:
    attempt = catalogue(store).enter("monday").begin()
    blobs = fill(attempt)
    assert catalogue(store).complete() == []
    info = attempt.commit(text(attempt.id, blobs))
    assert catalogue(store).complete() == [info]
    assert catalogue(store).latest() == info
    assert catalogue(store).read_manifest(info.id) == text(info.id, blobs)


def test_checkpoints_are_listed_from_the_newest_on(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    taken = [take(run) for _ in range(12)]
    assert catalogue(store).complete() == taken[::-1]
    assert catalogue(store).latest() == taken[-1]


def test_two_queries_with_similar_names_know_nothing_of_each_other(store: MemoryStore) -> None:
    other = Catalogue(store, "orders-2", read_manifest)
    other.enter("tuesday").begin()
    run = catalogue(store).enter("monday")
    assert run.generation == 1
    assert take(run).id == 1
    assert other.complete() == []
    catalogue(store).dispose_all()
    assert list(store.list("orders-2/")) == ["orders-2/000000000001.claim", "orders-2/runs/000001"]


def test_an_attempt_that_fails_is_given_up(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    attempt = run.begin()
    with suppress(ZeroDivisionError), attempt:
        fill(attempt)
        raise ZeroDivisionError
    with pytest.raises(Fenced, match="checkpoint 1 of orders cannot become complete: it was given up"):
        attempt.commit(text(attempt.id))
    assert take(run).id == 2


def test_an_attempt_that_is_left_without_a_commit_is_given_up(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    with run.begin() as attempt:
        fill(attempt)
    catalogue(store).clean(keep=1)
    assert all("/000000000001/" not in key for key in store.list())


def test_a_commit_may_be_repeated(store: MemoryStore) -> None:
    attempt = catalogue(store).enter("monday").begin()
    assert attempt.commit(text(1)) == attempt.commit(text(1))
    with pytest.raises(Fenced, match="it has another manifest"):
        attempt.commit(text(1, savepoint=True))


def test_a_manifest_that_refers_to_a_blob_that_is_not_there_is_refused(store: MemoryStore) -> None:
    attempt = catalogue(store).enter("monday").begin()
    with pytest.raises(EnvironmentFault, match=r"memory://checkpoints has no orders/000000000001/counter/7-totals"):
        attempt.commit(text(1, [attempt.key("counter", "7-totals")]))


def test_a_manifest_may_refer_only_to_blobs_of_checkpoints_that_it_builds_on(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    first = take(run)
    attempt = run.begin()
    with pytest.raises(EnvironmentFault, match="of a checkpoint that this one does not build on"):
        attempt.commit(text(attempt.id, first.blobs))
    assert take(run, first).blobs > first.blobs


def test_a_manifest_of_another_checkpoint_is_refused(store: MemoryStore) -> None:
    with pytest.raises(InternalError, match="the manifest for checkpoint 1 is that of checkpoint 7"):
        catalogue(store).enter("monday").begin().commit(text(7))


def test_one_can_build_only_on_a_complete_checkpoint(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    run.begin()
    for base, reason in ((1, "it is not complete"), (7, "there is none, or not any more")):
        with pytest.raises(NotStanding, match=f"checkpoint {base} of orders in memory://checkpoints .*{reason}"):
            run.begin([base])


def test_manifests_of_the_project_are_what_the_catalogue_takes(store: MemoryStore) -> None:
    orders = Catalogue(store, "orders", read_manifest)
    attempt = orders.enter("monday").begin()
    manifest = Manifest(query="orders", id=attempt.id, epoch=7, created=0.0, savepoint=True)
    assert attempt.commit(manifest.to_json()) == manifest
    assert Catalogue(store, "orders", read_manifest).latest() == manifest


# --- one run at a time ------------------------------------------------------------------------------------------------


def test_a_run_that_was_taken_over_cannot_begin_a_checkpoint(store: MemoryStore) -> None:
    monday = catalogue(store).enter("monday")
    catalogue(store).enter("tuesday")
    with pytest.raises(Fenced, match=r"run 'monday' \(generation 1\) .* run 'tuesday' \(generation 2\) has taken over"):
        monday.begin()


def test_a_run_that_was_taken_over_cannot_complete_a_checkpoint(store: MemoryStore) -> None:
    attempt = catalogue(store).enter("monday").begin()
    blobs = fill(attempt)
    catalogue(store).enter("tuesday")
    with pytest.raises(Fenced, match=r"cannot become complete: run 'tuesday' \(generation 2\) has taken over"):
        attempt.commit(text(attempt.id, blobs))
    assert catalogue(store).complete() == []


def test_a_run_that_was_taken_over_long_ago_cannot_complete_a_checkpoint_whose_traces_are_gone(
    store: MemoryStore,
) -> None:
    attempt = catalogue(store).enter("monday").begin()
    newer = take(catalogue(store).enter("tuesday"))
    catalogue(store).clean(keep=1)
    assert keys_of(store, attempt.id) == []
    with pytest.raises(Fenced, match="it was given up and cleaned away"):
        attempt.commit(text(attempt.id))
    assert catalogue(store).complete() == [newer]


def test_what_a_run_completed_stays_when_another_one_takes_over(store: MemoryStore) -> None:
    done = take(catalogue(store).enter("monday"))
    catalogue(store).enter("tuesday")
    assert catalogue(store).complete() == [done]


def test_an_id_is_never_given_twice(store: MemoryStore) -> None:
    seen = set()
    for name in ("monday", "tuesday", "wednesday"):
        run = catalogue(store).enter(name)
        seen |= {take(run).id, run.begin().id, take(run).id}
        catalogue(store).dispose_all()
    assert seen == set(range(1, 10))


def test_attempts_of_one_run_may_overlap(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    first, second = run.begin(), run.begin()
    second.commit(text(second.id, fill(second)))
    first.commit(text(first.id, fill(first)))
    assert ids(catalogue(store).complete()) == [2, 1]


# --- cleaning ---------------------------------------------------------------------------------------------------------


def test_cleaning_keeps_the_newest_and_takes_all_of_the_others(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    taken = [take(run) for _ in range(4)]
    cleaned = catalogue(store).clean(keep=2)
    assert (cleaned.disposed, cleaned.blobs, cleaned.held) == ((1, 2), 4, {})
    assert catalogue(store).complete() == taken[:1:-1]
    assert keys_of(store, 1) == keys_of(store, 2) == []


def test_cleaning_keeps_at_least_one(store: MemoryStore) -> None:
    take(catalogue(store).enter("monday"))
    assert catalogue(store).clean(keep=1).disposed == ()
    with pytest.raises(UserError, match="at least one checkpoint is kept"):
        catalogue(store).clean(keep=0)


def test_cleaning_keeps_savepoints_which_do_not_count(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    for savepoint in (True, False, True, False, False):
        take(run, savepoint=savepoint)
    catalogue(store).clean(keep=2)
    assert ids(catalogue(store).complete()) == [5, 4, 3, 1]


def test_cleaning_keeps_blobs_of_older_checkpoints_that_a_kept_one_refers_to(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    base = take(run)
    delta = take(run, base)
    catalogue(store).clean(keep=1)
    assert catalogue(store).complete() == [delta]
    assert {bytes(store.get(blob)) for blob in delta.blobs} == {b"state of 1", b"state of 2"}
    full = take(run)
    assert catalogue(store).clean(keep=1).blobs == 4
    assert {key for key in store.list() if "/counter/" in key} == set(full.blobs)


def test_cleaning_leaves_attempts_that_are_under_way_and_what_they_build_on(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    base = take(run)
    attempt = run.begin([base.id])
    blobs = fill(attempt)
    take(run)
    assert catalogue(store).clean(keep=1).held == {1: "checkpoint 2, which is under way, builds on it"}
    delta = attempt.commit(text(attempt.id, blobs.union(base.blobs)))
    assert ids(catalogue(store).complete()) == [3, 2, 1]
    assert all(store.get(blob) for blob in delta.blobs)


def test_cleaning_removes_what_a_dead_run_has_begun_once_another_one_runs(store: MemoryStore) -> None:
    fill(catalogue(store).enter("monday").begin())
    catalogue(store).clean(keep=1)
    assert len(keys_of(store, 1)) == 3
    run = catalogue(store).enter("tuesday")
    take(run)
    assert catalogue(store).clean(keep=1).blobs == 2
    assert keys_of(store, 1) == []


def test_cleaning_removes_blobs_of_a_complete_checkpoint_that_its_manifest_does_not_name(store: MemoryStore) -> None:
    attempt = catalogue(store).enter("monday").begin()
    attempt.put_blob("counter", "0-of-an-instance-that-was-lost", [b"x"])
    info = attempt.commit(text(1, fill(attempt)))
    assert catalogue(store).clean(keep=1).blobs == 1
    assert catalogue(store).complete() == [info]


def test_cleaning_again_finds_nothing_to_do(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    for _ in range(3):
        take(run)
    catalogue(store).clean(keep=1)
    before = list(store.list())
    cleaned = catalogue(store).clean(keep=1)
    assert (cleaned.disposed, cleaned.blobs) == ((), 0)
    assert list(store.list()) == before


# --- reading in peace -------------------------------------------------------------------------------------------------


def test_a_pinned_checkpoint_stays_until_it_is_released(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    for _ in range(3):
        take(run)
    with catalogue(store).pin(1, "seep run --restore 1"):
        assert catalogue(store).clean(keep=1).held == {1: "seep run --restore 1 reads it"}
        assert ids(catalogue(store).complete()) == [3, 1]
    assert catalogue(store).clean(keep=1).disposed == (1,)
    assert keys_of(store, 1) == []


def test_a_pin_ends_with_its_lease_unless_it_is_renewed(store: MemoryStore) -> None:
    now = [0.0]
    orders = catalogue(store, lambda: now[0])
    run = orders.enter("monday")
    take(run)
    take(run)
    pin = orders.pin(1, "a reader that dies", lease=60)
    now[0] = 59.0
    pin.renew()
    now[0] = 118.0
    assert orders.clean(keep=1).held == {1: "a reader that dies reads it"}
    now[0] = 119.0
    assert orders.clean(keep=1).disposed == (1,)
    with pytest.raises(NotStanding, match=r"checkpoint 1 of orders .* there is none, or not any more"):
        pin.renew()
    assert [key for key in store.list() if ".pin-" in key] == []


@pytest.mark.parametrize("id", [1, 2, 7])
def test_what_is_not_complete_cannot_be_pinned_or_read(store: MemoryStore, id: int) -> None:
    run = catalogue(store).enter("monday")
    run.begin().abandon()
    run.begin()
    with pytest.raises(NotStanding):
        catalogue(store).pin(id, "somebody")
    with pytest.raises(NotStanding):
        catalogue(store).read_manifest(id)
    assert [key for key in store.list() if ".pin-" in key] == []


# --- disposing by hand ------------------------------------------------------------------------------------------------


def test_disposing_takes_what_it_is_told_savepoints_too(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    for savepoint in (True, False, False):
        take(run, savepoint=savepoint)
    catalogue(store).dispose([1, 3])
    assert ids(catalogue(store).complete()) == [2]


def test_disposing_refuses_what_is_not_there_and_says_what_is(store: MemoryStore) -> None:
    take(catalogue(store).enter("monday"))
    with pytest.raises(UserError, match="there is no checkpoint 7 of orders; there are: 1"):
        catalogue(store).dispose([7])


def test_disposing_takes_all_or_nothing(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    for _ in range(3):
        take(run)
    with catalogue(store).pin(2, "somebody"), pytest.raises(InUse, match=r"2 of orders .*: somebody reads it"):
        catalogue(store).dispose([1, 2])
    with pytest.raises(InUse, match="no other complete checkpoint would be left"):
        catalogue(store).dispose([1, 2, 3])
    assert ids(catalogue(store).complete()) == [3, 2, 1]


def test_disposing_of_older_ones_keeps_the_last_and_all_savepoints(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    for savepoint in (False, True, False, False):
        take(run, savepoint=savepoint)
    assert catalogue(store).dispose_older_than(3).disposed == (1,)
    assert catalogue(store).dispose_older_than(100).disposed == (3,)
    assert ids(catalogue(store).complete()) == [4, 2]


def test_disposing_of_all_leaves_one_small_file_by_which_nothing_late_can_come(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    take(run, savepoint=True)
    take(run)
    attempt = run.begin()
    fill(attempt)
    catalogue(store).dispose_all()
    assert catalogue(store).complete() == []
    assert list(store.list()) == ["orders/runs/000002"]
    with pytest.raises(Fenced, match="it was given up and cleaned away"):
        attempt.commit(text(attempt.id))
    with pytest.raises(Fenced):
        run.begin()
    assert take(catalogue(store).enter("tuesday")).id == 5, "no number is given twice"


def test_disposing_of_all_again_leaves_no_more_and_forgets_no_number(store: MemoryStore) -> None:
    take(catalogue(store).enter("monday"))
    for generation in (2, 3):
        catalogue(store).dispose_all()
        assert list(store.list()) == [f"orders/runs/{generation:06d}"]
    assert take(catalogue(store).enter("tuesday")).id == 2


def test_not_all_are_disposed_of_while_one_is_read(store: MemoryStore) -> None:
    take(catalogue(store).enter("monday"))
    with catalogue(store).pin(1, "somebody"), pytest.raises(InUse, match="somebody reads it"):
        catalogue(store).dispose_all()
    assert ids(catalogue(store).complete()) == [1]


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(store: MemoryStore, key: str, at: int) -> None:
    value = bytearray(store.get(key))
    value[at // 8 % len(value)] ^= 1 << at % 8
    store.put(key, [bytes(value)])


@given(at=st.integers(0, 3000))
def test_a_flipped_bit_of_a_manifest_is_found_and_the_checkpoint_before_it_is_offered(at: int) -> None:
    store = MemoryStore("checkpoints")
    run = catalogue(store).enter("monday")
    first, second = take(run), take(run)
    damage(store, "orders/000000000002.manifest", at)
    assert second not in catalogue(store).complete()
    assert catalogue(store).latest(fall_back=True) == first
    with pytest.raises(Damaged, match=r"orders/000000000002.manifest is damaged: .*; the newest one .* is 1"):
        catalogue(store).latest()
    with pytest.raises(Damaged, match=r"orders/000000000002.manifest is damaged"):
        catalogue(store).read_manifest(2)
    assert catalogue(store).damaged().keys() == {2}


@given(end=st.integers(0, 150))
def test_a_manifest_that_was_cut_is_found(end: int) -> None:
    store = MemoryStore("checkpoints")
    take(catalogue(store).enter("monday"))
    store.put("orders/000000000001.manifest", [store.get("orders/000000000001.manifest", 0, end)])
    assert catalogue(store).damaged().keys() == {1}
    with pytest.raises(Damaged, match="there is no other"):
        catalogue(store).latest()


def test_a_run_leaves_a_note_for_later_ones(store: MemoryStore) -> None:
    assert catalogue(store).last_note() is None
    catalogue(store).enter("monday", {"wrote": "here"})
    catalogue(store).enter("tuesday", {"wrote": "there"})
    catalogue(store).enter("wednesday")
    assert catalogue(store).last_note() == {"wrote": "there"}
    damage(store, "orders/runs/000002", 0)
    assert catalogue(store).last_note() == {"wrote": "here"}


def test_an_older_damaged_checkpoint_does_not_keep_the_newest_from_being_used(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    take(run)
    second = take(run)
    damage(store, "orders/000000000001.manifest", 0)
    assert catalogue(store).latest() == second


def test_a_manifest_in_the_place_of_another_one_is_found(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    take(run)
    take(run)
    store.put("orders/000000000002.manifest", [store.get("orders/000000000001.manifest")])
    assert "its manifest is that of checkpoint 1" in catalogue(store).damaged()[2]


def test_another_file_in_the_place_of_a_manifest_is_found(store: MemoryStore) -> None:
    take(catalogue(store).enter("monday"))
    store.put("orders/000000000001.manifest", [store.get("orders/000000000001.claim")])
    assert "it is a claim, and no manifest" in catalogue(store).damaged()[1]


def test_cleaning_touches_neither_a_damaged_checkpoint_nor_blobs_that_it_may_refer_to(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    first = take(run)
    second = take(run, first)
    damage(store, "orders/000000000002.manifest", 100)
    for _ in range(3):
        take(run)
    cleaned = catalogue(store).clean(keep=1)
    assert cleaned.damaged.keys() == {2}
    assert all(store.get(blob) for blob in second.blobs)
    assert ids(catalogue(store).complete()) == [5]
    catalogue(store).dispose([2])
    with pytest.raises(NotThere):
        store.get(second.blobs[0])


def test_a_pin_that_cannot_be_read_holds_its_checkpoint(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    take(run)
    take(run)
    with catalogue(store).pin(1, "somebody"):
        damage(store, next(key for key in store.list() if ".pin-" in key), 0)
        assert "is damaged" in catalogue(store).clean(keep=1).held[1]


def test_a_claim_that_cannot_be_read_is_no_obstacle_to_the_next_run(store: MemoryStore) -> None:
    attempt = catalogue(store).enter("monday").begin()
    damage(store, "orders/000000000001.claim", 0)
    run = catalogue(store).enter("tuesday")
    with pytest.raises(Fenced):
        attempt.commit(text(1))
    assert take(run).id == 2


def test_what_a_run_reads_stays_until_another_run_begins(store: MemoryStore) -> None:
    """One that died does not say that it reads no more; its lease need not be waited for."""
    first = take(catalogue(store).enter("monday"))
    tuesday = catalogue(store).enter("tuesday")
    catalogue(store).pin_for_run(first.id, "tuesday", 600.0)
    take(tuesday)
    assert "tuesday reads it" in catalogue(store).clean(keep=1).held[1]
    catalogue(store).enter("wednesday")
    assert catalogue(store).clean(keep=1).disposed == (1,)
    assert not [key for key in store.list() if ".pin-" in key]


def test_disposing_of_all_does_not_wait_for_a_run(store: MemoryStore) -> None:
    first = take(catalogue(store).enter("monday"))
    catalogue(store).pin_for_run(first.id, "a run that is about to begin", 600.0)
    assert catalogue(store).dispose_all().disposed == (1,)
    assert list(store.list()) == ["orders/runs/000002"]


# --- what runs that died have left ------------------------------------------------------------------------------------


def left_by(store: MemoryStore, run: str) -> str:
    """A backup that a run keeps in storage."""
    key = str(BackupKey("orders", run, "counter", 0, 1, 0, 5, None))
    store.put(key, [b"state"])
    return key


def test_backups_of_a_run_that_died_go_when_another_cleans_up_and_those_of_the_newest_stay(store: MemoryStore) -> None:
    catalogue(store).enter("monday")
    old = left_by(store, "monday")
    run = catalogue(store).enter("tuesday")
    mine = left_by(store, "tuesday")
    catalogue(store).clean(keep=1)
    assert mine in store.list("orders/")
    assert old not in store.list("orders/")
    take(run)


def test_disposing_of_a_checkpoint_takes_the_backups_of_dead_runs_along(store: MemoryStore) -> None:
    first = take(catalogue(store).enter("monday"))
    left_by(store, "monday")
    take(catalogue(store).enter("tuesday"))
    catalogue(store).dispose([first.id])
    assert not list(store.list("orders/backups/"))


def test_disposing_of_all_leaves_no_backup_and_nothing_that_was_pushed(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    take(run)
    left_by(store, "monday")
    store.put(str(PushedBatchKey("orders", "clicks", 7)), [b"batch"])
    store.put(str(PieceKey("orders", "clicks", "3fa9", 2, 0, "81c0")), [b"piece"])
    catalogue(store).dispose_all()
    assert not [*store.list("orders/backups/"), *store.list("orders/pushed/")]


def test_what_was_pushed_to_a_source_goes_with_the_last_checkpoint_that_has_the_source(store: MemoryStore) -> None:
    run = catalogue(store).enter("monday")
    with run.begin() as attempt:
        attempt.commit(text(attempt.id, pushed=["clicks"]))
    for source in ("clicks", "views"):
        store.put(str(PushedBatchKey("orders", source, 7)), [b"batch"])
        store.put(str(PieceKey("orders", source, "3fa9", 2, 0, "81c0")), [b"piece"])
    catalogue(store).clean(keep=1)
    assert list(store.list("orders/pushed/views/")) == []
    assert len([*store.list("orders/pushed/clicks/")]) == 2
    take(run)
    catalogue(store).clean(keep=1)
    assert not list(store.list("orders/pushed/"))


def test_nothing_that_was_pushed_goes_while_a_manifest_cannot_be_read(store: MemoryStore) -> None:
    take(catalogue(store).enter("monday"))
    damage(store, "orders/000000000001.manifest", 100)
    store.put(str(PushedBatchKey("orders", "clicks", 7)), [b"batch"])
    take(catalogue(store).enter("tuesday"))
    catalogue(store).clean(keep=1)
    assert list(store.list("orders/pushed/"))
