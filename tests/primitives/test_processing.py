"""Containers: several containers, or a structure of the operator's own, behave as one state that can be cut by slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint, ProcessingState, checkpoint_state, merge_checkpoints
from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId
from primitives.hashing import hash_key
from primitives.merge import merge_state
from primitives.outbox import Outbox
from primitives.partition import partition_processing_state
from primitives.restore import restore_state
from primitives.slots import SlotSet, slot_of, split_evenly
from primitives.state.chunk import read_chunk, write_chunk
from primitives.state.container import State
from primitives.state.frame import Frame
from primitives.state.own import OwnState
from primitives.state.processing import Containers
from primitives.state.timers import Timers
from primitives.state.values import Values

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)
KEYS = {"key": pa.int64()}
ME = InstanceId("op", 0)


class Lists:
    """A structure of an operator's own: a list of numbers per key, grouped by slot."""

    def __init__(self) -> None:
        self.lists: dict[int, dict[int, list[int]]] = {}

    def append(self, key: int, number: int) -> None:
        self.lists.setdefault(slot_of(hash_key(key), SLOT_BITS), {}).setdefault(key, []).append(number)

    def get_processing_state(self, slots: SlotSet) -> dict[int, dict[int, list[int]]]:
        return {slot: lists for slot, lists in self.lists.items() if slot in slots}

    def set_processing_state(self, state: Mapping[int, dict[int, list[int]]]) -> None:
        assert self.lists.keys().isdisjoint(state)
        self.lists |= state

    def drop_processing_state(self, slots: SlotSet) -> None:
        self.lists = {slot: lists for slot, lists in self.lists.items() if slot not in slots}


class Operator:
    """An operator with one container of each kind."""

    def __init__(self) -> None:
        self.sums = Frame("sums", KEYS, {"n": pa.int64()}, slot_bits=SLOT_BITS)
        self.seen = Values("seen", KEYS, slot_bits=SLOT_BITS)
        self.waiting = Timers("waiting", KEYS, value=pa.int64(), slot_bits=SLOT_BITS)
        self.own = Lists()
        self.state = Containers(
            self.sums, self.seen, self.waiting, OwnState("own", self.own, slot_bits=SLOT_BITS, version=1)
        )

    def take(self, key: int, number: int) -> None:
        """One of several things happens to a key in each container; some of them delete."""
        if number % 4 == 3:
            self.sums.delete([key])
            self.seen.pop(key, None)
            self.waiting.cancel(number - 1, key)
        else:
            self.sums.add([key], n=number)
            self.seen.setdefault(key, []).append(number)
            self.waiting.schedule(number, key, number)
        self.own.append(key, number)

    @property
    def content(self) -> dict[str, Any]:
        return {
            "sums": {row["key"]: row["n"] for row in self.sums.to_arrow().to_pylist()},
            "seen": dict(self.seen.scan()),
            "waiting": self.records(),
            "own": {slot: lists for slot, lists in sorted(self.own.lists.items()) if lists},
        }

    def records(self) -> list[tuple[int, int, int]]:
        """Time, key and value of all records, in the order in which they would come back."""
        rows = self.waiting.snapshot(FULL).rows.to_pylist()
        return [(row["time"], row["key"], row["value"]) for row in sorted(rows, key=lambda row: [*row.values()][:3])]


def worked(steps: list[tuple[int, int]]) -> Operator:
    operator = Operator()
    for step in steps:
        operator.take(*step)
    return operator


def restored(checkpoint: Checkpoint) -> Operator:
    operator = Operator()
    restore_state(checkpoint, operator.state, Outbox())
    return operator


def checkpoint_of(operator: Operator, epoch: int, base: int | None = None) -> Checkpoint:
    return checkpoint_state(
        operator.state, Outbox(), owner=ME, incarnation=0, serial=epoch, epoch=epoch, slots=FULL, base=base
    )


steps = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 20)))
slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)


# --- laws -------------------------------------------------------------------------------------------------------------


def test_containers_are_a_processing_state_and_own_state_is_a_container() -> None:
    state: ProcessingState = Containers()
    container: State = OwnState("own", Lists())
    assert state.snapshot(FULL) == ()
    assert len(container) == 0


@given(steps)
def test_restoring_a_snapshot_gives_the_state_again(some: list[tuple[int, int]]) -> None:
    operator = worked(some)
    assert restored(checkpoint_of(operator, 1)).content == operator.content


@given(steps)
def test_chunks_of_all_kinds_survive_as_bytes(some: list[tuple[int, int]]) -> None:
    operator, copy = worked(some), Operator()
    copy.state.restore(read_chunk(write_chunk(chunk)) for chunk in operator.state.snapshot(FULL))
    assert copy.content == operator.content


@given(st.lists(steps, min_size=1, max_size=4), st.data())
def test_a_base_and_its_deltas_give_the_full_state(epochs: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    operator = Operator()
    chain = [checkpoint_of(operator, 0)]
    for epoch, some in enumerate(epochs, 1):
        operator.state.drop(data.draw(slot_sets))
        for step in some:
            operator.take(*step)
        chain.append(checkpoint_of(operator, epoch, epoch - 1))
    assert restored(merge_checkpoints(chain[0], chain[1:])).content == operator.content


@given(steps, st.integers(1, 4))
def test_merging_the_parts_of_a_partition_gives_the_state_again(some: list[tuple[int, int]], count: int) -> None:
    operator = worked(some)
    parts = {InstanceId("op", i): slots for i, slots in enumerate(split_evenly(FULL, count))}
    cut = partition_processing_state(checkpoint_of(operator, 1), parts)
    assert restored(merge_state(ME, list(cut.values()))).content == operator.content


@given(steps)
def test_the_parts_of_a_partition_are_disjoint_and_cover_the_state(some: list[tuple[int, int]]) -> None:
    operator = worked(some)
    halves = dict(zip((ME, InstanceId("op", 1)), split_evenly(FULL, 2), strict=True))
    cut = partition_processing_state(checkpoint_of(operator, 1), halves)
    mine, other = (restored(replace(part, owner=ME)).content for part in cut.values())
    whole = operator.content
    for name in ("sums", "seen", "own"):
        assert mine[name].keys().isdisjoint(other[name])
        assert mine[name] | other[name] == whole[name]
    assert sorted(mine["waiting"] + other["waiting"]) == whole["waiting"]


@given(steps, steps, slot_sets)
def test_dropped_slots_can_be_taken_in_again(
    before: list[tuple[int, int]], after: list[tuple[int, int]], slots: SlotSet
) -> None:
    operator = worked(before)
    content, moved = operator.content, operator.state.snapshot(slots)
    operator.state.drop(slots)
    assert all(len(chunk.rows) == 0 for chunk in operator.state.snapshot(slots))
    operator.state.restore(moved)
    assert operator.content == content
    for step in after:
        operator.take(*step)
    assert operator.content == worked(before + after).content


# --- Containers -------------------------------------------------------------------------------------------------------


def test_marks_sizes_and_changes_are_those_of_all_containers() -> None:
    operator = worked([(1, 1), (2, 2)])
    operator.state.mark(5)
    operator.state.mark(7)
    assert list(operator.state.marks) == [5, 7]
    operator.sums.add([1], n=1)
    operator.seen[1] = 1
    own_slots = len(operator.own.lists)
    assert operator.state.changed(7) == 2 + own_slots
    assert operator.state.size() == sum(operator.state.size(part) for part in split_evenly(FULL, 2))
    operator.state.release(7)
    assert list(operator.state.marks) == [7]


def test_a_delta_since_an_unmarked_epoch_is_refused() -> None:
    operator = worked([(1, 1)])
    with pytest.raises(InternalError, match="no mark at epoch 3"):
        operator.state.snapshot(FULL, since=3)


def test_a_chunk_without_a_container_is_refused_before_anything_is_restored() -> None:
    seen, sums = Values("seen", KEYS), Values("sums", KEYS)
    seen[1] = sums[1] = "a"
    stored = Containers(seen, sums).snapshot(SlotSet.full(8))
    other = Values("seen", KEYS)
    with pytest.raises(UserError, match="has state 'sums', which the operator does not declare"):
        Containers(other).restore(stored)
    assert not other


def test_a_container_without_a_chunk_is_refused_before_anything_is_restored() -> None:
    seen = Values("seen", KEYS)
    seen[1] = "a"
    stored = Containers(seen).snapshot(SlotSet.full(8))
    other = Values("seen", KEYS)
    with pytest.raises(UserError, match="declares state 'sums', which the stored state lacks"):
        Containers(other, Values("sums", KEYS)).restore(stored)
    assert not other


def test_two_containers_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="used twice: seen"):
        Containers(Values("seen", KEYS), Timers("seen", KEYS))


def test_containers_with_different_slots_are_refused() -> None:
    with pytest.raises(UserError, match=r"same slot_bits; these have \{'seen': 8, 'due': 4\}"):
        Containers(Values("seen", KEYS), Timers("due", KEYS, slot_bits=4))


# --- OwnState ---------------------------------------------------------------------------------------------------------


class Fixed:
    """Returns the same state whatever it is asked for."""

    def __init__(self, state: dict[Any, Any]) -> None:
        self.state = state

    def get_processing_state(self, slots: SlotSet) -> dict[Any, Any]:  # noqa: ARG002
        return self.state

    def set_processing_state(self, state: Mapping[int, Any]) -> None:
        self.state |= state

    def drop_processing_state(self, slots: SlotSet) -> None:
        for slot in slots:
            self.state.pop(slot, None)


@pytest.mark.parametrize("slot_bits", [0, 1, 8, 12])
def test_every_slot_of_own_state_comes_back_as_that_slot(slot_bits: int) -> None:
    state = {slot: slot * 2 for slot in range(1 << slot_bits)}
    chunk = OwnState("own", Fixed(state), slot_bits=slot_bits).snapshot(SlotSet.full(slot_bits))
    assert chunk.slots_of_rows().tolist() == list(state)
    other = Fixed({})
    OwnState("own", other, slot_bits=slot_bits).restore([chunk])
    assert other.state == state


def test_a_delta_of_own_state_replaces_its_slots_and_those_dropped_meanwhile() -> None:
    operator = Fixed({0: "a", 1: "b", 2: "c"})
    state = OwnState("own", operator, slot_bits=SLOT_BITS)
    state.mark(4)
    state.drop(SlotSet([2]))
    delta = state.snapshot(SlotSet([0, 1]), since=4)
    assert delta.replaced == SlotSet([0, 1, 2])
    assert len(delta.rows) == 2


def test_own_state_can_be_arrow_data_of_a_declared_type() -> None:
    kind = pa.list_(pa.struct([("at", pa.int64()), ("what", pa.string())]))
    content = {1: [{"at": 3, "what": "a"}], 3: []}
    chunk = OwnState("log", Fixed(content), slot_bits=SLOT_BITS, value=kind).snapshot(FULL)
    assert chunk.rows.schema.field("value").type == kind
    other = Fixed({})
    OwnState("log", other, slot_bits=SLOT_BITS, value=kind).restore([chunk])
    assert other.state == content


def test_own_state_that_is_not_plain_data_is_refused_with_its_slot() -> None:
    state = OwnState("own", Fixed({0: 1, 2: object()}), slot_bits=SLOT_BITS)
    with pytest.raises(UserError, match="state 'own' cannot store the object of key 'slot 2'"):
        state.snapshot(FULL)


def test_own_state_of_slots_that_nobody_asked_for_is_refused() -> None:
    state = OwnState("own", Fixed({0: 1, 2: 1}), slot_bits=SLOT_BITS)
    with pytest.raises(UserError, match=r"was asked for SlotSet\(0-1\), and returned SlotSet\(2\) as well"):
        state.snapshot(SlotSet([0, 1]))


def test_own_state_of_another_version_is_refused() -> None:
    chunk = OwnState("own", Fixed({0: 1}), slot_bits=SLOT_BITS).snapshot(FULL)
    with pytest.raises(UserError, match="has version 2, and the stored state has version 0"):
        OwnState("own", Fixed({}), slot_bits=SLOT_BITS, version=2).restore([chunk])
