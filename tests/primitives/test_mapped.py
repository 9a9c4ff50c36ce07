"""MappedFiles: what is large is in files that nobody sees, and stays readable; what is small is left where it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from primitives.backup import NodeBackups, retrieve_backup, store_backup
from primitives.checkpoint import Checkpoint
from primitives.emission import Emission
from primitives.errors import EnvironmentFault
from primitives.graph import Edge, InstanceId
from primitives.mapped import MappedFiles
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.frame import Frame

ALL = SlotSet.full(8)
SUM = InstanceId("sum", 0)
EDGE = Edge("sum", "out")


@pytest.fixture
def shelf(tmp_path: Path) -> MappedFiles:
    return MappedFiles(tmp_path / "shelf", above=1000)


def is_on(shelf: MappedFiles, batch: pa.RecordBatch) -> bool:
    """Whether it stays where it is when it is put there; nothing else of that size does."""
    column = batch.column(0).buffers()[1]
    return bool(shelf.batch(batch).column(0).buffers()[1].address == column.address)


def checkpoint(epoch: int, rows: int, base: int | None = None) -> Checkpoint:
    frame = Frame("counts", {"id": pa.int64()}, {"n": pa.int64()})
    frame.add(list(range(rows)), n=epoch)
    chunk = frame.snapshot(ALL if base is None else SlotSet.empty())
    chunk = Chunk("counts", 0, 8, chunk.replaced, ("id",), ("id",), frame.to_arrow(), chunk.deleted)
    emission = Emission({EDGE: pa.record_batch({"n": list(range(rows))})}, 0)
    return Checkpoint(SUM, 0, epoch, epoch, base, ALL, (chunk,), ((epoch, emission),), 0)


def test_large_buffers_and_batches_take_no_memory_and_no_name(shelf: MappedFiles) -> None:
    batch = pa.record_batch({"n": list(range(10_000)), "s": [str(n) for n in range(10_000)]}).slice(7)
    before = pa.total_allocated_bytes()
    put = shelf.batch(batch)
    content = shelf.buffer([pa.py_buffer(b"x" * 600), pa.py_buffer(b"y" * 600)])
    assert pa.total_allocated_bytes() - before < 1000
    assert put.equals(batch)
    assert content.to_pybytes() == b"x" * 600 + b"y" * 600
    assert list(shelf.directory.iterdir()) == []


def test_what_is_small_or_on_the_shelf_stays_where_it_is(shelf: MappedFiles) -> None:
    small, large = pa.py_buffer(b"x" * 1000), shelf.buffer([pa.py_buffer(b"x" * 1001)])
    assert shelf.buffer([small]).address == small.address
    assert shelf.buffer([large]).address == shelf.buffer([large.slice(0, 1001)]).address == large.address
    batch = shelf.batch(pa.record_batch({"n": list(range(1000))}))
    assert is_on(shelf, batch)
    assert not is_on(shelf, pa.record_batch({"n": list(range(1000))}))


def test_a_shelf_that_cannot_be_written_to_says_so(shelf: MappedFiles) -> None:
    shelf.directory.rmdir()
    with pytest.raises(EnvironmentFault, match=r"cannot keep 2000 bytes of backups in .*shelf.*free some space"):
        shelf.buffer([pa.py_buffer(b"x" * 2000)])


def test_what_a_holder_keeps_for_long_is_on_its_shelf(shelf: MappedFiles) -> None:
    store = NodeBackups(max_deltas=1, shelf=shelf)
    for epoch in (1, 2, 3):
        store_backup(store, checkpoint(epoch, 1000, base=epoch - 1 or None))
        backup = retrieve_backup(store, SUM)
        assert backup is not None
        assert all(is_on(shelf, chunk.rows) for chunk in backup.state)
        assert all(is_on(shelf, emission.outputs[EDGE]) for _, emission in backup.buffer)
    store.replace(checkpoint(4, 1000))
    backup = retrieve_backup(store, SUM)
    assert backup is not None
    assert is_on(shelf, backup.state[0].rows)


def test_a_small_backup_is_kept_as_it_is(shelf: MappedFiles) -> None:
    given, store = checkpoint(1, 10), NodeBackups(shelf=shelf)
    store_backup(store, given)
    backup = retrieve_backup(store, SUM)
    assert backup is not None
    assert backup.state[0].rows is given.state[0].rows
