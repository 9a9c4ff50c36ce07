"""Soundness: whatever is missing, shorter, longer or different in the files of a checkpoint is found and named."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from formats.avro_file import Damaged
from formats.manifest import Manifest, component_of
from formats.persist import persist_state
from primitives.checkpoint import Checkpoint
from primitives.errors import EnvironmentFault
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.state.values import Values
from seep.storage.memory import MemoryStore
from seep.storage.soundness import check_content, check_files
from tests.storage.damage import WAYS, How

SLOT_BITS = 3


def put_checkpoint(store: MemoryStore) -> Manifest:
    """One with a blob for each of two containers."""
    names = Values("names", {"id": pa.int64()}, slot_bits=SLOT_BITS)
    for id in range(500):
        names[id] = f"name {id}"
    ages = Values("ages", {"id": pa.int64()}, slot_bits=SLOT_BITS)
    ages[7] = 30
    full = SlotSet.full(SLOT_BITS)
    state = names.snapshot(full), ages.snapshot(full)
    taken = Checkpoint(InstanceId("users", 0), 0, 0, 7, None, full, state, (), trimmed=7)

    def put(name: str, parts: object) -> str:
        key = f"orders/000000000001/users/{name}"
        store.put(key, parts)  # type: ignore[arg-type]
        return key

    part = persist_state(taken, put, slot_bits=SLOT_BITS)
    return Manifest(query="orders", id=1, epoch=7, created=0.0, components={"users": component_of([part])})


def test_files_as_they_were_written_are_sound() -> None:
    store = MemoryStore("checkpoints")
    manifest = put_checkpoint(store)
    check_files(manifest, store)
    check_content(manifest, store)
    assert len(manifest.files) == 2


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.__name__)
def test_any_damage_to_content_is_found_and_named(how: How) -> None:
    for seed in range(50):
        store = MemoryStore("checkpoints")
        manifest = put_checkpoint(store)
        files = {key: bytes(store.get(key)) for key in manifest.files}
        rng = random.Random(seed)
        different = {k: data for k, data in how(files, rng.choice(sorted(files)), rng).items() if data != files[k]}
        for key, data in different.items():
            store.delete([key])
            if data is not None:
                store.put(key, [data])
        with pytest.raises(Damaged, match="checkpoint 1 of orders is damaged: ") as found:
            check_content(manifest, store)
        assert any(key in str(found.value) for key in different)
        if any(data is None or len(data) != manifest.files[key] for key, data in different.items()):
            with pytest.raises(Damaged, match="checkpoint 1 of orders is damaged: "):
                check_files(manifest, store)


def test_a_store_that_fails_is_no_damage() -> None:
    class Down(MemoryStore):
        def size(self, key: str) -> int:
            raise EnvironmentFault(f"{key}: the network is down")

    store = Down("checkpoints")
    with pytest.raises(EnvironmentFault, match="the network is down") as found:
        check_files(put_checkpoint(store), store)
    assert not isinstance(found.value, Damaged)
