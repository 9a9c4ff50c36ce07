"""Chunks of files in checkpoints: a `Disk` next to a `Frame`, through backups, partitions, storage and queries."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.manifest import Component, component_of
from formats.persist import persist_state, retrieve_state
from primitives.backup import NodeBackups, StoreOutcome, retrieve_backup, store_backup
from primitives.checkpoint import Checkpoint, checkpoint_state
from primitives.errors import EnvironmentFault
from primitives.graph import InstanceId
from primitives.mapped import MappedFiles
from primitives.merge import merge_state
from primitives.outbox import Outbox
from primitives.partition import partition_processing_state
from primitives.slots import SlotSet, split_evenly
from primitives.state.file_chunk import FileChunk
from primitives.state.frame import Frame
from primitives.state.on_disk.disk import Disk
from primitives.state.processing import Containers
from seep.channels.wire import decode, encode
from seep.protocol.cuts import Cut, CutComplete, CutPart
from seep.running.queryable import StateView

SLOT_BITS = 3
ALL = SlotSet.full(SLOT_BITS)
ME, OTHER = InstanceId("sum", 0), InstanceId("sum", 1)
COLUMNS: Any = {"id": pa.int64()}, {"n": pa.int64()}

few = settings(max_examples=10, deadline=None)
#: Keys that are counted, and keys that are deleted; more than fit into a buffer, or less.
turns = st.tuples(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=5))


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def disk_in(place: Path, name: str) -> Disk:
    return Disk("counts", *COLUMNS, directory=place / name, slot_bits=SLOT_BITS, memory=1000)


def frame() -> Frame:
    return Frame("counts", *COLUMNS, slot_bits=SLOT_BITS)


def content(container: Disk | Frame) -> dict[int, int]:
    return as_dict(container.to_arrow())


def as_dict(rows: pa.RecordBatch | pa.Table) -> dict[int, int]:
    found = dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def take(turn: tuple[list[int], list[int]], *containers: Disk | Frame) -> None:
    for container in containers:
        container.add(pa.array(turn[0], pa.int64()), n=1)
        container.delete(pa.array(turn[1], pa.int64()))


def checkpoint_of(disk: Disk, epoch: int, base: int | None = None) -> Checkpoint:
    """As its holder gets it."""
    taken = checkpoint_state(
        Containers(disk), Outbox(), owner=ME, incarnation=0, serial=epoch, epoch=epoch, slots=ALL, base=base
    )
    arrived = decode(encode(taken))
    assert isinstance(arrived, Checkpoint)
    return arrived


@given(st.lists(turns, min_size=1, max_size=7), st.integers(0, 2))
@few
def test_what_a_holder_has_after_each_checkpoint_is_what_was_there(rounds: list[Any], max_deltas: int) -> None:
    with directory() as place, closing(disk_in(place, "disk")) as disk:
        store, expected = NodeBackups(max_deltas, MappedFiles(place / "shelf", above=100)), frame()
        for epoch, turn in enumerate(rounds, 1):
            take(turn, disk, expected)
            assert store_backup(store, checkpoint_of(disk, epoch, epoch - 1 or None)) is StoreOutcome.KEPT
            disk.release(epoch)
            backup = retrieve_backup(store, ME)
            assert backup is not None
            with closing(disk_in(place, f"restored {epoch}")) as restored:
                restored.restore(decode(encode(backup)).state)
                assert content(restored) == content(disk) == content(expected)


@given(turns, turns, st.integers(1, 4))
@few
def test_parts_of_a_backup_are_disjoint_cover_and_merge(first: Any, second: Any, count: int) -> None:
    with directory() as place, closing(disk_in(place, "disk")) as disk:
        store = NodeBackups()
        take(first, disk)
        store_backup(store, checkpoint_of(disk, 1))
        take(second, disk)
        store_backup(store, checkpoint_of(disk, 2, base=1))
        whole = retrieve_backup(store, ME)
        assert whole is not None
        parts = {InstanceId("sum", at): slots for at, slots in enumerate(split_evenly(ALL, count))}
        cut = partition_processing_state(whole, parts)
        found: dict[int, int] = {}
        for owner, part in cut.items():
            with closing(disk_in(place, str(owner))) as restored:
                restored.restore(part.state)
                assert found.keys().isdisjoint(content(restored))
                found |= content(restored)
        assert found == content(disk)
        with closing(disk_in(place, "merged")) as restored:
            restored.restore(merge_state(ME, list(cut.values())).state)
            assert content(restored) == found


# --- storage ----------------------------------------------------------------------------------------------------------


class Storage:
    """Keeps bytes under keys."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, name: str, parts: Sequence[Any]) -> str:
        key = f"{len(self.blobs)} {name}"
        self.blobs[key] = b"".join(parts)
        return key

    def get(self, key: str, start: int, length: int) -> bytes:
        return self.blobs[key][start : start + length]


def stored(storage: Storage, checkpoint: Checkpoint, before: Component | None = None, piece: int = 300) -> Component:
    part = persist_state(checkpoint, storage.put, slot_bits=SLOT_BITS, piece=piece)
    return component_of([part], before)


@given(st.lists(turns, min_size=1, max_size=4))
@few
def test_cuts_are_stored_as_rows_whatever_they_are_made_of(rounds: list[Any]) -> None:
    with directory() as place, closing(disk_in(place, "disk")) as disk:
        storage, expected, component = Storage(), frame(), None
        for epoch, turn in enumerate(rounds, 1):
            take(turn, disk, expected)
            state = disk.snapshot(ALL, epoch - 1 or None)
            disk.mark(epoch)
            cut = Checkpoint(ME, 0, 0, epoch, epoch - 1 or None, ALL, (state,), (), epoch)
            component = stored(storage, cut, component)
        assert component is not None
        for slots in split_evenly(ALL, 3):
            restored = frame()
            restored.restore(retrieve_state(component, slots, storage.get))
            assert content(restored) == as_dict(expected.to_arrow(slots))


def large(place: Path, name: str = "disk", rows: int = 5000) -> Disk:
    disk = disk_in(place, name)
    disk.add(np.arange(rows), n=1)
    return disk


def cut_of(disk: Disk, slots: SlotSet = ALL) -> Checkpoint:
    return Checkpoint(ME, 0, 0, 7, None, slots, tuple(Containers(disk).snapshot(slots)), (), 7)


def test_files_are_stored_as_a_blob_for_each_few_slots_that_knows_its_own(tmp_path: Path) -> None:
    with closing(large(tmp_path)) as disk:
        component = stored(Storage(), cut_of(disk), piece=disk.size() // 4)
    blobs = component.containers["counts"].blobs
    assert 4 <= len(blobs) <= len(ALL)
    assert sum(blob.index.rows for blob in blobs) == 5000
    assert [slot for blob in blobs for slot in blob.replaced] == list(ALL)


def test_a_cut_can_be_stored_after_its_container_has_gone_on_and_closed(tmp_path: Path) -> None:
    storage = Storage()
    with closing(large(tmp_path)) as disk:
        cut = cut_of(disk)
        disk.add(np.arange(9000), n=1)
        disk.snapshot(ALL)
    component, restored = stored(storage, cut), frame()
    restored.restore(retrieve_state(component, ALL, storage.get))
    assert content(restored) == dict.fromkeys(range(5000), 1)


def test_slots_that_were_handed_over_are_not_stored(tmp_path: Path) -> None:
    mine, storage = SlotSet.range(0, 4), Storage()
    with closing(large(tmp_path)) as disk:
        part = persist_state(cut_of(disk), storage.put, slot_bits=SLOT_BITS, slots=mine)
        assert sum(blob.index.rows for blob in part.containers["counts"].blobs) == len(disk.to_arrow(mine))
    assert part.slots == mine


def test_a_cut_whose_files_are_damaged_is_not_stored(tmp_path: Path) -> None:
    with closing(large(tmp_path)) as disk:
        (chunk,) = decode(encode(cut_of(disk))).state
    rows = max(chunk.sizes, key=lambda name: chunk.sizes[name])
    damaged = replace(chunk, contents={**chunk.contents, rows: pa.py_buffer(bytes(chunk.sizes[rows]))})
    with pytest.raises(EnvironmentFault, match=rf"state 'counts'|{rows}"):
        stored(Storage(), replace(Checkpoint(ME, 0, 0, 7, None, ALL, (), (), 7), state=(damaged,)))


# --- looking at it ----------------------------------------------------------------------------------------------------


def test_who_looks_at_state_on_disk_sees_its_rows(tmp_path: Path) -> None:
    low, high = split_evenly(ALL, 2)
    with closing(large(tmp_path, "a")) as a, closing(large(tmp_path, "b")) as b:
        a.drop(high)
        b.drop(low)
        parts = {ME: CutPart(low, None, (a.snapshot(low),)), OTHER: CutPart(high, None, (b.snapshot(high),))}
        complete = decode(encode([part.reference for part in parts.values()]))
    assert all(isinstance(chunk, FileChunk) for chunks in complete for chunk in chunks)
    shipped = {
        owner: part._replace(reference=chunks) for (owner, part), chunks in zip(parts.items(), complete, strict=True)
    }
    view = StateView.of("sum", CutComplete(Cut(1, 7, None, "sum"), {}, shipped))
    assert as_dict(view.to_arrow()) == dict.fromkeys(range(5000), 1)
    assert view.get(7) == [{"id": 7, "n": 1}]
    assert view.get(5000) == []
