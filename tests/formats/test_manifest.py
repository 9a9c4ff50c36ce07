"""Manifests: whatever instances wrote, any others read each slot once and the whole state; nothing else passes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.blob import read_blob, write_blob
from formats.blob_index import BlobBlock, BlobIndex
from formats.manifest import (
    BlobRef,
    Component,
    ContainerState,
    Manifest,
    ManifestPart,
    chain_of,
    component_of,
    live_blobs,
    manifests_of,
    read_manifest,
    readings,
)
from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.slots import SlotSet, split_evenly
from primitives.state.values import Values
from tests.strategies import few

SLOT_BITS = 3
FULL = SlotSet.full(SLOT_BITS)
KEYS = {"key": pa.int64()}


class Query:
    """Instances with state that write checkpoints; slots move between them as in a running query."""

    def __init__(self, owners: Sequence[int]) -> None:
        self.store: dict[str, bytes] = {}
        self.content: dict[int, int] = {}
        self.epoch = 0
        self.component: Component | None = None
        self.instances: dict[int, Values] = {}
        self.owners = list(owners)
        for instance in set(owners):
            self._instance(instance)

    def _instance(self, instance: int) -> Values:
        if instance not in self.instances:
            self.instances[instance] = Values("seen", KEYS, slot_bits=SLOT_BITS, value=pa.int64())
        return self.instances[instance]

    def owned(self, instance: int) -> SlotSet:
        return SlotSet(slot for slot, owner in enumerate(self.owners) if owner == instance)

    def write(self, key: int, value: int | None) -> None:
        probe = Values("seen", KEYS, slot_bits=SLOT_BITS, value=pa.int64())
        probe[key] = 0
        slot = int(probe.snapshot(FULL).slots_of_rows()[0])
        state = self.instances[self.owners[slot]]
        if value is None:
            state.pop(key, None)
            self.content.pop(key, None)
        else:
            state[key] = self.content[key] = value

    def move(self, slot: int, target: int) -> None:
        origin = self.owners[slot]
        if origin != target:
            moved = SlotSet([slot])
            self._instance(target).restore([self.instances[origin].snapshot(moved)])
            self.instances[origin].drop(moved)
            self.owners[slot] = target

    def checkpoint(self, full: bool, group_bytes: int = 1) -> Component:
        """All instances write what changed since the last checkpoint, if they can tell, or all."""
        since, self.epoch = self.epoch, self.epoch + 1
        parts = [self._part(instance, None if full else since, group_bytes) for instance in sorted(self.instances)]
        self.component = component_of(parts, self.component)
        return self.component

    def _part(self, instance: int, since: int | None, group_bytes: int) -> ManifestPart:
        state, slots = self.instances[instance], self.owned(instance)
        base = since if since in state.marks else None
        chunk = state.snapshot(slots, base)
        state.mark(self.epoch)
        state.release(self.epoch)
        blob = write_blob(chunk, group_bytes=group_bytes)
        key = f"{self.epoch}/{instance}"
        self.store[key] = b"".join(blob.parts)
        ref = BlobRef(key=key, epoch=self.epoch, slots=slots, replaced=chunk.replaced & slots, index=blob.index)
        container = ContainerState(avro_schema=blob.schema, blobs=(ref,))
        return ManifestPart(
            operator="counter",
            instance=instance,
            epoch=self.epoch,
            base=base,
            slots=slots,
            slot_bits=SLOT_BITS,
            containers={"seen": container},
        )

    def restored(self, component: Component, slots: SlotSet) -> dict[Any, Any]:
        """What an instance with these slots reads, and nothing else than the ranges it is told."""
        state = Values("seen", KEYS, slot_bits=SLOT_BITS, value=pa.int64())
        for reading in component.needed(slots)["seen"]:
            data = self.store[reading.blob.key]
            pieces = [data[start : start + length] for start, length in reading.ranges]
            state.restore([read_blob(reading.blob.index, reading.slots, pieces, reading.blob.key)])
        return dict(state.scan())


writes = st.tuples(st.just("write"), st.integers(0, 15), st.none() | st.integers(0, 9))
moves = st.tuples(st.just("move"), st.integers(0, len(FULL) - 1), st.integers(0, 3))
checkpoints = st.tuples(st.just("checkpoint"), st.booleans(), st.sampled_from([1, 1000]))
histories = st.lists(writes | moves | checkpoints, max_size=40)
owners = st.lists(st.integers(0, 3), min_size=len(FULL), max_size=len(FULL))


def play(start: Sequence[int], history: Sequence[Any]) -> tuple[Query, Component]:
    """A query after a history that ends with a checkpoint."""
    query = Query(start)
    for what, *arguments in history:
        getattr(query, what)(*arguments)
    return query, query.checkpoint(full=False)


# --- partition equations ----------------------------------------------------------------------------------------------


@few
@given(owners, histories, owners)
def test_any_new_instances_together_read_the_whole_state(start: Any, history: Any, now: list[int]) -> None:
    query, component = play(start, history)
    parts = [SlotSet(slot for slot in FULL if now[slot] == instance) for instance in set(now)]
    read = [query.restored(component, slots) for slots in parts]
    assert sum(map(len, read)) == len(query.content)
    assert {key: value for part in read for key, value in part.items()} == query.content


@few
@given(owners, histories, st.integers(1, 8))
def test_any_number_of_new_instances_share_the_state(start: Any, history: Any, parallelism: int) -> None:
    query, component = play(start, history)
    read = [query.restored(component, slots) for slots in split_evenly(FULL, parallelism)]
    assert sum(map(len, read)) == len(query.content)
    assert {key: value for part in read for key, value in part.items()} == query.content


@few
@given(owners, histories)
def test_a_slot_is_read_once_from_where_it_was_last_whole(start: Any, history: Any) -> None:
    _, component = play(start, history)
    for slot in FULL:
        first, *later = component.needed(SlotSet([slot]))["seen"]
        assert slot in first.blob.replaced
        assert all(slot not in reading.blob.replaced for reading in later)


@few
@given(owners, histories)
def test_blobs_of_which_nothing_counts_any_more_are_let_go(start: Any, history: Any) -> None:
    _, component = play(start, history)
    blobs = component.containers["seen"].blobs
    assert [reading.blob for reading in readings(blobs, FULL)] == list(blobs)
    assert live_blobs(blobs) == blobs


def test_a_full_checkpoint_refers_to_its_own_blobs_only() -> None:
    query, _ = play([0] * 4 + [1] * 4, [("write", 1, 1), ("checkpoint", True, 1), ("write", 1, 2)])
    assert query.checkpoint(full=True).blobs == {"3/0", "3/1"}


def test_a_delta_without_any_change_is_not_referred_to() -> None:
    query, _ = play([0] * 8, [("write", 1, 1)])
    assert query.checkpoint(full=False).blobs == {"1/0"}


# --- chains -----------------------------------------------------------------------------------------------------------


def ref(key: str, slots: SlotSet, replaced: SlotSet, length: int) -> BlobRef:
    blocks = tuple(BlobBlock(slot, slot, length, 0, 1) for slot in slots)
    return BlobRef(
        key=key, epoch=1, slots=slots, replaced=replaced, index=BlobIndex(header=0, header_crc=0, blocks=blocks)
    )


NONE, LOW = SlotSet.empty(), SlotSet.range(0, 3)


def test_a_chain_counts_the_deltas_of_the_slot_that_has_most() -> None:
    blobs = [ref("base", FULL, FULL, 100), ref("one", LOW, NONE, 10), ref("two", SlotSet([0]), NONE, 10)]
    assert chain_of(blobs, FULL) == (2, 800, 50)
    assert chain_of(blobs, SlotSet([5])) == (0, 100, 0)
    assert chain_of(blobs, NONE) == (0, 0, 0)


def test_a_chain_is_long_when_there_are_many_deltas_or_more_of_them_than_of_the_rest() -> None:
    few_bytes = [ref("base", FULL, FULL, 100), *(ref(str(n), FULL, NONE, 1) for n in range(3))]
    assert not chain_of(few_bytes, FULL).is_long(max_deltas=4)
    assert chain_of(few_bytes, FULL).is_long(max_deltas=3)
    assert chain_of([few_bytes[0], ref("large", FULL, NONE, 101)], FULL).is_long(max_deltas=4)


def test_an_operator_needs_a_full_checkpoint_where_one_of_its_containers_has_a_long_chain() -> None:
    def container(*blobs: BlobRef) -> ContainerState:
        return ContainerState(avro_schema={}, blobs=blobs)

    base = ref("base", FULL, FULL, 100)
    component = Component(
        epoch=1,
        parallelism=2,
        slot_bits=SLOT_BITS,
        containers={"a": container(base), "b": container(base, ref("delta", LOW, NONE, 10))},
    )
    assert component.needs_full(LOW, max_deltas=1)
    assert not component.needs_full(FULL - LOW, max_deltas=1)


# --- parts ------------------------------------------------------------------------------------------------------------


def part(instance: int, slots: SlotSet, **others: Any) -> ManifestPart:
    container = ContainerState(avro_schema={"of": "counts"}, blobs=(ref(f"blob {instance}", slots, slots, 1),))
    given: dict[str, Any] = {"operator": "counter", "epoch": 7, "base": None, "slot_bits": SLOT_BITS}
    return ManifestPart(
        **{**given, "instance": instance, "slots": slots, "containers": {"counts": container}, **others}
    )


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (part(1, FULL), r"counter\[1\] and another instance both have SlotSet\(0-3\)"),
        (part(1, SlotSet.range(4, 6)), r"nobody has SlotSet\(7\) of counter"),
        (part(1, FULL - LOW, epoch=8), r"counter\[1\] at epoch 8 is no part of counter at epoch 7"),
        (part(1, FULL - LOW, containers={}), r"counter\[1\] has state \[\], and another one has \['counts'\]"),
        (part(1, FULL - LOW, base=5), r"changed since epoch 5, and the checkpoint before is not there"),
        (
            part(
                1,
                FULL - LOW,
                containers={
                    "counts": ContainerState(avro_schema={}, blobs=(ref("x", FULL - LOW, FULL - LOW, 1),)),
                },
            ),
            "container 'counts' has blobs of two schemas",
        ),
    ],
)
def test_parts_that_do_not_make_a_whole_are_refused(other: ManifestPart, problem: str) -> None:
    with pytest.raises(InternalError, match=problem):
        component_of([part(0, LOW), other])


def test_a_delta_of_another_checkpoint_than_the_last_is_refused() -> None:
    previous = component_of([part(0, FULL)])
    with pytest.raises(InternalError, match="changed since epoch 5, and the checkpoint before is of epoch 7"):
        component_of([part(0, FULL, epoch=9, base=5)], previous)


def test_a_full_checkpoint_may_have_another_schema_than_the_last() -> None:
    renamed = {"counts": ContainerState(avro_schema={"of": "more"}, blobs=(ref("new", FULL, FULL, 1),))}
    component = component_of([part(0, FULL, epoch=9, containers=renamed)], component_of([part(0, FULL)]))
    assert component.blobs == {"new"}


def test_a_blob_replaces_nothing_that_it_does_not_speak_for() -> None:
    with pytest.raises(ValueError, match=r"replaces SlotSet\(4-7\), for which it does not speak"):
        ref("x", LOW, FULL, 1)


# --- manifests --------------------------------------------------------------------------------------------------------


def manifest(component: Component, **others: Any) -> Manifest:
    given: dict[str, Any] = {"query": "orders", "id": 12, "epoch": component.epoch, "created": 1.5}
    return Manifest(**{**given, "components": {"counter": component}, **others})


@few
@given(owners, histories)
def test_a_manifest_comes_back_from_json(start: Any, history: Any) -> None:
    _, component = play(start, history)
    written = manifest(component, sources={"in": {"0": {"offset": 5}}}, savepoint=True)
    assert read_manifest(written.to_json(), "here") == written
    assert written.blobs == component.blobs


def test_a_manifest_of_before_extra_data_was_a_container_is_read_without_it() -> None:
    """No output needs what stateless operators had stored."""
    written = manifest(component_of([part(0, FULL)]))
    earlier = json.loads(written.to_json())
    earlier["components"]["counter"]["extras"] = [{"slot": 0, "key": "orders/12/counter/0-extra", "size": 1, "crc": 0}]
    again = read_manifest(json.dumps(earlier).encode(), "here")
    assert again.to_json() == written.to_json()
    assert again.files == written.files


CHANGES: list[tuple[list[Any], Any, str]] = [
    (["format"], 2, "format: Input should be 1"),
    (["epoch"], 99, r"operator 'counter' is of epoch 7, and the checkpoint of 99"),
    (["surprise"], 1, "surprise: Extra inputs are not permitted"),
    (["id"], "12", "id: Input should be a valid integer"),
    (["components", "counter", "slot_bits"], 21, "slot_bits: Input should be less than or equal to 20"),
    (
        ["components", "counter", "slot_bits"],
        4,
        r"no blob among \['blob 0'\] holds all that there is of SlotSet\(8-15\)",
    ),
    (["components", "counter", "containers", "counts", "blobs", 0, "slots"], [[4, 2]], "is not a run of slots"),
    (["components", "counter", "containers", "counts", "blobs", 0, "slots"], "all", "is not a run of slots"),
    (["components", "counter", "containers", "counts", "blobs", 0, "slots"], 7, "slots: "),
    (
        ["components", "counter", "containers", "counts", "blobs", 0, "index", "header"],
        -1,
        "greater than or equal to 0",
    ),
    (["components", "counter", "containers", "counts", "blobs", 0, "index", "blocks"], [[1 << 20, 1, 1, 1, 1]], "less"),
]


@pytest.mark.parametrize(("path", "value", "problem"), CHANGES, ids=[str(path[-1]) for path, _, _ in CHANGES])
def test_a_manifest_that_says_something_else_is_refused(path: list[Any], value: Any, problem: str) -> None:
    told = json.loads(manifest(component_of([part(0, FULL)])).to_json())
    place = told
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(EnvironmentFault, match=f"orders/12 is not a manifest that this version can read: .*{problem}"):
        read_manifest(json.dumps(told).encode(), "orders/12")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(EnvironmentFault, match="here is not a manifest"):
        read_manifest(data, "here")


def test_a_manifest_of_another_query_is_refused() -> None:
    written = manifest(component_of([part(0, FULL)]))
    assert manifests_of("orders")(written.to_json(), "here") == written
    with pytest.raises(EnvironmentFault, match="here is damaged: its manifest is one of query 'orders'"):
        manifests_of("users")(written.to_json(), "here")


@few
@given(owners, histories)
def test_a_manifest_knows_how_long_each_file_is(start: Any, history: Any) -> None:
    query, component = play(start, history)
    assert manifest(component).files == {key: len(query.store[key]) for key in component.blobs}


def test_operators_that_have_nothing_stored_begin_empty() -> None:
    assert manifest(component_of([part(0, FULL)])).check_operators(["counter", "added"]) == {"added"}


def test_state_of_an_operator_that_is_gone_is_dropped_only_if_that_is_allowed() -> None:
    stored = manifest(component_of([part(0, FULL)]))
    with pytest.raises(UserError, match="checkpoint 12 of orders has state of counter, which the query does not have"):
        stored.check_operators(["renamed"])
    assert stored.check_operators(["renamed"], allow_dropped=True) == {"renamed"}
