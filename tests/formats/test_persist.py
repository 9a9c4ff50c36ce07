"""persist_state: what is written is read back, by the same instances or others, or the blob that is not is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.avro_file import Compression, Piece
from formats.manifest import Component, ManifestPart, component_of
from formats.persist import compact_state, persist_state, retrieve_state
from primitives.checkpoint import Checkpoint, chain_checkpoints, checkpoint_state
from primitives.errors import EnvironmentFault
from primitives.graph import InstanceId
from primitives.outbox import Outbox
from primitives.slots import SlotSet, split_evenly
from primitives.state.processing import Containers
from primitives.state.values import Values
from tests.strategies import few

SLOT_BITS = 3
ALL = SlotSet.full(SLOT_BITS)
LOW, HIGH = split_evenly(ALL, 2)


class Storage:
    """Keeps bytes under keys, and what was read of them."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.read = 0

    def put(self, name: str, parts: Sequence[Piece]) -> str:
        key = f"orders/12/counter/{name}"
        assert key not in self.blobs
        self.blobs[key] = b"".join(parts)
        return key

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key not in self.blobs:
            raise EnvironmentFault(f"there is no {key}")
        data = self.blobs[key][start:] if length is None else self.blobs[key][start : start + length]
        self.read += len(data)
        return data


@pytest.fixture
def storage() -> Storage:
    return Storage()


class Counter:
    """State in two containers."""

    def __init__(self) -> None:
        self.counts = Values("counts", keys={"word": pa.string()}, slot_bits=SLOT_BITS, value=pa.int64())
        self.pages = Values("last page", keys={"word": pa.string()}, slot_bits=SLOT_BITS)
        self.state = Containers(self.counts, self.pages)

    def see(self, *words: str) -> Counter:
        for word in words:
            self.counts[word] = self.counts.get(word, 0) + 1
            self.pages[word] = {"page": len(word)}
        return self

    def content(self) -> dict[str, tuple[int, object]]:
        return {word: (count, self.pages[word]) for word, count in self.counts.items()}

    def checkpoint(self, epoch: int, slots: SlotSet = ALL, index: int = 0, base: int | None = None) -> Checkpoint:
        owner = InstanceId("counter", index)
        return checkpoint_state(
            self.state, Outbox(), owner=owner, incarnation=1, serial=epoch, epoch=epoch, slots=slots, base=base
        )


def persisted(storage: Storage, checkpoint: Checkpoint, codec: Compression = Compression.NONE) -> ManifestPart:
    return persist_state(checkpoint, storage.put, codec, slot_bits=SLOT_BITS)


def restored(storage: Storage, component: Component, slots: SlotSet = ALL) -> dict[str, tuple[int, object]]:
    counter = Counter()
    counter.state.restore(retrieve_state(component, slots, storage.get))
    return counter.content()


WORDS = [f"word {n}" for n in range(40)]


@few
@given(st.lists(st.sampled_from(WORDS)), st.sampled_from(Compression), st.integers(1, 8))
def test_what_was_persisted_is_shared_by_any_number_of_instances(
    words: list[str], codec: Compression, parts: int
) -> None:
    storage, counter = Storage(), Counter().see(*words)
    component = component_of([persisted(storage, counter.checkpoint(17), codec)])
    found: dict[str, tuple[int, object]] = {}
    for slots in split_evenly(ALL, parts):
        found |= restored(storage, component, slots)
    assert found == counter.content()


def chained(storage: Storage, counter: Counter, rounds: list[list[str]]) -> Component:
    """A full checkpoint, and a delta for each round after the first."""
    component = None
    for epoch, words in enumerate(rounds):
        counter.see(*words)
        checkpoint = counter.checkpoint(epoch, base=epoch - 1 if epoch else None)
        part = persist_state(
            checkpoint, lambda name, data, at=epoch: storage.put(f"{at}-{name}", data), slot_bits=SLOT_BITS
        )
        component = component_of([part], component)
    assert component is not None
    return component


ROUNDS = st.lists(st.lists(st.sampled_from(WORDS)), min_size=1, max_size=4)


@few
@given(ROUNDS)
def test_deltas_are_read_after_what_they_build_on(rounds: list[list[str]]) -> None:
    storage, counter = Storage(), Counter()
    component = chained(storage, counter, rounds)
    assert restored(storage, component) == counter.content()


@few
@given(ROUNDS, st.integers(1, 2000), st.sampled_from(Compression))
def test_a_chain_that_is_compacted_has_the_same_state_and_builds_on_nothing(
    rounds: list[list[str]], group_bytes: int, codec: Compression
) -> None:
    storage, counter = Storage(), Counter()
    component = chained(storage, counter, rounds)

    def put(name: str, data: Sequence[Piece]) -> str:
        return storage.put(f"compacted-{name}", data)

    compacted = compact_state("counter", component, storage.get, put, codec, group_bytes)
    assert restored(storage, compacted) == counter.content()
    assert (compacted.epoch, compacted.parallelism) == (component.epoch, component.parallelism)
    assert not compacted.needs_full(ALL, 1)
    assert not compacted.blobs & component.blobs


def test_a_full_checkpoint_of_several_chunks_for_a_container_is_read_in_their_order(storage: Storage) -> None:
    counter = Counter().see(*WORDS)
    base = counter.checkpoint(1)
    counter.see("word 1", "word 2")
    whole = chain_checkpoints(base, [counter.checkpoint(2, base=1)])
    assert restored(storage, component_of([persisted(storage, whole)])) == counter.content()


def test_slots_that_were_handed_over_are_told_by_their_new_owner_only(storage: Storage) -> None:
    old, new = Counter().see(*WORDS), Counter()
    new.state.restore(old.state.snapshot(HIGH))
    new.see(*(word for word in WORDS if word in new.counts))
    expected = new.content() | {word: seen for word, seen in old.content().items() if word not in new.counts}
    covering_both = persist_state(old.checkpoint(9), storage.put, slot_bits=SLOT_BITS, slots=LOW)
    component = component_of([persisted(storage, new.checkpoint(9, HIGH, index=1)), covering_both])
    assert restored(storage, component) == expected


def test_a_delta_does_not_void_slots_that_have_left(storage: Storage) -> None:
    old, new = Counter().see(*WORDS), Counter()
    before = component_of([persisted(storage, old.checkpoint(1))])
    new.state.restore(old.state.snapshot(HIGH))
    expected = old.content()
    old.state.drop(HIGH)
    delta = replace(old.checkpoint(2, LOW, base=1), owner=InstanceId("counter", 2))
    parts = [persisted(storage, new.checkpoint(2, HIGH, index=1)), persisted(storage, delta)]
    assert restored(storage, component_of(parts, before)) == expected


def test_few_slots_are_read_without_the_others(storage: Storage) -> None:
    counter = Counter().see(*(f"{n} {'x' * 5000}" for n in range(300)))
    component = component_of([persisted(storage, counter.checkpoint(1))])
    restored(storage, component, SlotSet([3]))
    assert storage.read < sum(map(len, storage.blobs.values())) / 4


def test_every_flipped_byte_of_a_container_is_found_and_its_blob_named(storage: Storage) -> None:
    component = component_of([persisted(storage, Counter().see("a", "b").checkpoint(17))])
    key = "orders/12/counter/0-counts-0"
    whole = storage.blobs[key]
    for position in range(len(whole)):
        storage.blobs[key] = whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :]
        with pytest.raises(EnvironmentFault, match=f"{key} is damaged"):
            retrieve_state(component, ALL, storage.get)


def test_a_missing_blob_is_named(storage: Storage) -> None:
    component = component_of([persisted(storage, Counter().see("a").checkpoint(17))])
    del storage.blobs["orders/12/counter/0-last__20_page-1"]
    with pytest.raises(EnvironmentFault, match="there is no orders/12/counter/0-last__20_page-1"):
        retrieve_state(component, ALL, storage.get)
