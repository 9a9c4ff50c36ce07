"""persist_state: what is written is read back whole, or the blob that is not is named."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from primitives.checkpoint import Checkpoint
from primitives.errors import EnvironmentFault, InternalError
from primitives.graph import InstanceId
from primitives.persist import persist_state, retrieve_state
from primitives.slots import SlotSet
from primitives.state.values import Values

ALL = SlotSet.full(3)


def counts_of(words: dict[str, int]) -> Values:
    counts = Values("counts", keys={"word": pa.string()}, slot_bits=3, value=pa.int64())
    for word, count in words.items():
        counts[word] = count
    return counts


def checkpoint_of(counts: Values) -> Checkpoint:
    return Checkpoint(InstanceId("counter", 2), 1, 4, 17, None, ALL, (counts.snapshot(ALL),), (), 17)


@pytest.fixture
def blobs() -> dict[str, bytes]:
    return {}


@pytest.fixture
def prefix(blobs: dict[str, bytes]) -> str:
    return persist_state(
        checkpoint_of(counts_of({"a": 1, "b": 2, "c": 3})), lambda name, data: blobs.update({name: bytes(data)})
    )


def test_what_was_persisted_restores_to_the_same_state(blobs: dict[str, bytes], prefix: str) -> None:
    back, counts = retrieve_state(prefix, blobs.__getitem__), counts_of({})
    counts.restore(back.state)
    assert dict(counts.items()) == {"a": 1, "b": 2, "c": 3}
    assert (back.owner, back.epoch, back.slots, back.buffer) == (InstanceId("counter", 2), 17, ALL, ())


def test_the_manifest_is_written_last(blobs: dict[str, bytes], prefix: str) -> None:
    assert list(blobs) == [f"{prefix}/counts", f"{prefix}/manifest.json"]


def test_a_checkpoint_without_its_manifest_does_not_count(blobs: dict[str, bytes], prefix: str) -> None:
    del blobs[f"{prefix}/manifest.json"]
    with pytest.raises(EnvironmentFault, match=r"manifest\.json is missing or damaged"):
        retrieve_state(prefix, blobs.__getitem__)


def test_every_flipped_byte_of_a_container_is_found_and_its_blob_named(blobs: dict[str, bytes], prefix: str) -> None:
    name = f"{prefix}/counts"
    whole = blobs[name]
    for position in range(len(whole)):
        blobs[name] = whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :]
        with pytest.raises(EnvironmentFault, match="counts cannot be read back"):
            retrieve_state(prefix, blobs.__getitem__)


def test_a_delta_is_refused() -> None:
    delta = replace(checkpoint_of(counts_of({})), base=9)
    with pytest.raises(InternalError, match="merge it before persisting"):
        persist_state(delta, lambda _name, _data: None)
