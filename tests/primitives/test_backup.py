"""Backups: where they are kept, in chains that stay short, and never older than what was there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.backup import (
    NodeBackups,
    StoreOutcome,
    choose_backup_holder,
    delete_backup,
    retrieve_backup,
    store_backup,
)
from primitives.checkpoint import Checkpoint, checkpoint_state
from primitives.emission import Emission
from primitives.graph import InstanceId
from primitives.outbox import Outbox
from primitives.slots import SlotSet
from tests.strategies import AnyState, ArrowState, PlainState, Writes, write, writes

BITS = 2
ALL = SlotSet.full(BITS)
SUM, SUM1 = InstanceId("sum", 0), InstanceId("sum", 1)

nodes = st.sets(st.sampled_from([f"node {i}" for i in range(6)]))


def checkpoint(epoch: int, base: int | None = None, incarnation: int = 0, owner: InstanceId = SUM) -> Checkpoint:
    """An empty one; its serial follows its epoch."""
    return Checkpoint(owner, incarnation, epoch, epoch, base, ALL, (), (), 0)


def filled(*checkpoints: Checkpoint) -> NodeBackups:
    store = NodeBackups()
    assert [store_backup(store, each) for each in checkpoints] == [StoreOutcome.KEPT] * len(checkpoints)
    return store


# -- the choice of the holder -----------------------------------------------------------------------------------------


@given(upstream=nodes, others=nodes, index=st.integers(0, 20))
def test_a_backup_is_kept_by_another_node_and_by_one_that_is_upstream_if_there_is_any(
    upstream: set[str], others: set[str], index: int
) -> None:
    holder = choose_backup_holder(InstanceId("sum", index), "node 0", list(upstream), list(others))
    candidates = (upstream - {"node 0"}) or (others - {"node 0"})
    assert holder in candidates if candidates else holder is None


@given(upstream=nodes, others=nodes, index=st.integers(0, 20), data=st.data())
def test_a_backup_is_kept_on_another_vm_wherever_there_is_one(
    upstream: set[str], others: set[str], index: int, data: st.DataObject
) -> None:
    vms = {node: data.draw(st.sampled_from("ab")) for node in sorted({*upstream, *others, "node 0"})}
    holder = choose_backup_holder(InstanceId("sum", index), "node 0", list(upstream), list(others), vms)
    elsewhere = {node for node in upstream | others if vms[node] != vms["node 0"]}
    assert holder in (elsewhere & upstream or elsewhere) if elsewhere else holder != "node 0"


@given(upstream=st.lists(st.sampled_from("abcdef"), min_size=1), index=st.integers(0, 20), data=st.data())
def test_the_choice_depends_on_which_nodes_there_are_and_not_on_how_they_are_listed(
    upstream: list[str], index: int, data: st.DataObject
) -> None:
    again = data.draw(st.permutations([*upstream, upstream[0]]))
    owner = InstanceId("sum", index)
    assert choose_backup_holder(owner, "own", upstream, []) == choose_backup_holder(owner, "own", again, [])


def test_the_backups_of_an_operator_are_spread_over_all_upstream_nodes() -> None:
    upstream = ["a", "b", "c"]
    assert {choose_backup_holder(InstanceId("sum", i), "own", upstream, []) for i in range(30)} == set(upstream)


# -- chains -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [PlainState, ArrowState])
@given(rounds=st.lists(st.tuples(writes, st.booleans()), min_size=1, max_size=8))
def test_what_is_retrieved_is_the_state_of_the_newest_checkpoint(
    make: type[AnyState], rounds: list[tuple[Writes, bool]]
) -> None:
    state, store = make(BITS), NodeBackups(max_deltas=2)
    for epoch, (content, full) in enumerate(rounds, start=1):
        write(state, content, ALL, BITS)
        base = None if full or epoch == 1 else epoch - 1
        taken = checkpoint_state(
            state, Outbox(), owner=SUM, incarnation=0, serial=epoch, epoch=epoch, slots=ALL, base=base
        )
        assert store_backup(store, taken) is StoreOutcome.KEPT
    backup = retrieve_backup(store, SUM)
    assert backup is not None
    restored = make(BITS)
    restored.restore(backup.state)
    assert (backup.epoch, backup.base, restored.content()) == (len(rounds), None, state.content())


def test_a_delta_that_says_all_leaves_nothing_of_those_before_but_output_that_is_not_in_it() -> None:
    state, store = ArrowState(BITS), NodeBackups()
    entries = [(epoch, Emission({}, 0)) for epoch in (1, 2, 3)]
    state.put(7, 1)
    chunks = state.snapshot(ALL, None)
    first = replace(checkpoint(1), state=tuple(chunks), buffer=(entries[0],))
    second = replace(checkpoint(2, base=1), state=(), buffer=(entries[1],), trimmed=1)
    third = replace(checkpoint(3, base=2), state=tuple(chunks), buffer=(entries[2],), trimmed=1)
    assert [store_backup(store, each) for each in (first, second, third)] == [StoreOutcome.KEPT] * 3
    backup = retrieve_backup(store, SUM)
    assert backup == replace(third, base=None, buffer=tuple(entries[1:]))


@pytest.mark.parametrize("max_deltas", [0, 1, 4])
def test_however_many_deltas_come_a_restore_reads_one_base_and_few_of_them(max_deltas: int) -> None:
    state, store = PlainState(BITS), NodeBackups(max_deltas)
    sizes = []
    for epoch in range(1, 20):
        state.put(7, epoch)  # the same cell each time, so the size of the store is the length of the chain
        base = epoch - 1 or None
        taken = checkpoint_state(
            state, Outbox(), owner=SUM, incarnation=0, serial=epoch, epoch=epoch, slots=ALL, base=base
        )
        store_backup(store, taken)
        sizes.append(store.nbytes)
    assert max(sizes) == max_deltas + 1


def test_a_full_checkpoint_begins_a_new_chain() -> None:
    store = filled(checkpoint(1), checkpoint(2, base=1), checkpoint(5))
    assert store.epoch(SUM) == 5
    assert store_backup(store, checkpoint(6, base=2)) is StoreOutcome.NEEDS_FULL


@pytest.mark.parametrize("there", [[], [checkpoint(1)], [checkpoint(3, owner=SUM1)]])
def test_a_delta_whose_base_is_not_here_is_not_kept(there: list[Checkpoint]) -> None:
    store = filled(*there)
    assert store_backup(store, checkpoint(4, base=3)) is StoreOutcome.NEEDS_FULL
    assert store.epoch(SUM) == (1 if there == [checkpoint(1)] else None)


def test_a_new_incarnation_goes_on_with_the_chain_that_it_was_restored_from() -> None:
    store = filled(checkpoint(3), checkpoint(4, base=3, incarnation=1))
    assert (store.epoch(SUM), store.order(SUM)) == (4, (1, 4))


def test_nothing_is_retrieved_of_an_owner_without_backup() -> None:
    store = filled(checkpoint(3))
    assert retrieve_backup(store, SUM1) is None
    assert (store.epoch(SUM1), store.owners) == (None, (SUM,))


# -- fences -----------------------------------------------------------------------------------------------------------


@given(fences=st.lists(st.integers(0, 5), min_size=1), incarnation=st.integers(0, 5))
def test_an_incarnation_below_the_highest_fence_stores_nothing(fences: list[int], incarnation: int) -> None:
    store = NodeBackups()
    for fence in fences:
        store.fence(SUM, fence)
    fenced = incarnation < max(fences)
    assert store_backup(store, checkpoint(1, incarnation=incarnation)) is (
        StoreOutcome.FENCED if fenced else StoreOutcome.KEPT
    )
    assert store.epoch(SUM) == (None if fenced else 1)


def test_a_fence_is_for_one_owner_and_leaves_what_is_stored() -> None:
    store = filled(checkpoint(1))
    store.fence(SUM, 1)
    assert store.epoch(SUM) == 1
    assert store_backup(store, checkpoint(1, owner=SUM1)) is StoreOutcome.KEPT


# -- deleting and adopting --------------------------------------------------------------------------------------------

orders = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(there=orders, up_to=orders)
def test_deleting_never_deletes_a_copy_that_is_newer_than_the_one_that_is_meant(
    there: tuple[int, int], up_to: tuple[int, int]
) -> None:
    incarnation, serial = there
    store = filled(replace(checkpoint(1, incarnation=incarnation), serial=serial))
    assert delete_backup(store, SUM, up_to) == (there <= up_to)
    assert store.epoch(SUM) == (None if there <= up_to else 1)


def test_deleting_what_is_not_there_does_nothing() -> None:
    store = filled(checkpoint(1))
    assert not delete_backup(store, SUM1, (9, 9))
    assert store.owners == (SUM,)


def test_an_owner_without_backup_comes_before_any_that_has_one() -> None:
    assert NodeBackups().order(SUM) < filled(replace(checkpoint(0), serial=-1)).order(SUM)


def test_an_adopted_part_is_its_owners_backup_whatever_was_there_before() -> None:
    store = filled(checkpoint(5), checkpoint(6, base=5))
    store.replace(replace(checkpoint(5), serial=-1))
    assert (store.epoch(SUM), store.order(SUM)) == (5, (0, -1))
    assert store_backup(store, checkpoint(7, base=5, incarnation=1)) is StoreOutcome.KEPT
