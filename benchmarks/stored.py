"""Stored state: a frame to files and back, next to plain copies of the same file; and what a part of it takes to read.

All is done by one thread. Files that are read were just written, so they come from the page cache.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from formats.avro_file import Piece
from formats.manifest import Component, Manifest, component_of, read_manifest
from formats.persist import persist_state, retrieve_state
from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet
from primitives.state.frame import Frame, warm_up
from seep.storage.catalogue import Catalogue
from seep.storage.local import LocalStore
from seep.storage.streams import stream_of

ALL = SlotSet.full(DEFAULT_SLOT_BITS)
EPOCH = 7
ROUNDS = 5
#: Into how many parts of its slots state is taken apart, to read each of them by itself.
PARTS = 16

_MB = 1e6
_BATCH = 1 << 18
_OWNER = InstanceId("counter", 0)


def run(nbytes: int) -> dict[str, float]:
    """Frames of about so many bytes, of numbers and of texts."""
    warm_up()
    with tempfile.TemporaryDirectory() as directory:
        numbers = _there_and_back(NUMBERS, nbytes, Path(directory))
        texts = _there_and_back(TEXTS, nbytes, Path(directory))
        share = sixteenth_read_share(NUMBERS.filled(nbytes), Path(directory))
    return {**numbers, **{f"text_{name}": value for name, value in texts.items()}, "sixteenth_read_share": share}


# --- states -----------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """A kind of state: its columns, the first of which is the key, and rows of it by their numbers."""

    types: dict[str, pa.DataType]
    rows: Callable[[NDArray[np.int64]], dict[str, Any]]
    row_bytes: int  #: about

    def new(self) -> Frame:
        """A frame without rows."""
        key, *values = self.types
        return Frame("state", {key: self.types[key]}, {value: self.types[value] for value in values})

    def filled(self, nbytes: int) -> Frame:
        """A frame of about so many bytes."""
        frame, rows = self.new(), nbytes // self.row_bytes
        key, *values = self.types
        for first in range(0, rows, _BATCH):
            columns = self.rows(np.arange(first, min(first + _BATCH, rows)))
            frame.put(columns[key], **{value: columns[value] for value in values})
        return frame


def _numbers(at: NDArray[np.int64]) -> dict[str, Any]:
    return {"id": _scattered(at), "n": at, "total": at * 7, "mean": at / 3}


def _texts(at: NDArray[np.int64]) -> dict[str, Any]:
    words = pa.array(_scattered(at)).cast(pa.string())
    return {"word": words, "n": at, "last": pc.binary_join_element_wise("seen by", words, " ")}


def _scattered(at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Different numbers for different ones, from all over the range."""
    return at * np.int64(0x1E3779B97F4A7C15)


NUMBERS = State({"id": pa.int64(), "n": pa.int64(), "total": pa.int64(), "mean": pa.float64()}, _numbers, 32)
TEXTS = State({"word": pa.string(), "n": pa.int64(), "last": pa.string()}, _texts, 62)


# --- there and back ---------------------------------------------------------------------------------------------------


class Took(NamedTuple):
    """Seconds of some work."""

    wall: float
    cpu: float


def _there_and_back(state: State, nbytes: int, directory: Path) -> dict[str, float]:
    """Snapshots, restores, and copies of the file, flushed to the disk and not, in turn; the best of each."""
    frame, store = state.filled(nbytes), LocalStore(directory)
    rounds = [_round(state, frame, store, directory) for _ in range(ROUNDS)]
    snapshot, flushed, restore, copied = map(_best, zip(*rounds, strict=True))
    size = frame.snapshot(ALL).nbytes / _MB
    return {
        "snapshot_mb_s": size / snapshot.wall,
        "snapshot_over_copy": flushed.wall / snapshot.wall,
        "snapshot_mb_per_cpu_s": size / snapshot.cpu,
        "restore_mb_s": size / restore.wall,
        "restore_over_copy": copied.wall / restore.wall,
        "restore_mb_per_cpu_s": size / restore.cpu,
        "flushed_copy_mb_s": size / flushed.wall,
        "copy_mb_s": size / copied.wall,
    }


def _round(state: State, frame: Frame, store: LocalStore, directory: Path) -> tuple[Took, Took, Took, Took]:
    component: list[Component] = []
    snapshot = _took(lambda: component.append(stored(frame, store)))
    (key,) = component[0].blobs
    file, copy = directory / key, directory / "copy"
    flushed = _took(lambda: _copy_flushed(file, copy))
    copy.unlink()
    restore = _took(lambda: state.new().restore(retrieve_state(component[0], ALL, store.get)))
    copied = _took(lambda: shutil.copyfile(file, copy))
    copy.unlink()
    store.delete([key])
    return snapshot, flushed, restore, copied


def _took(work: Callable[[], object]) -> Took:
    wall, cpu = perf_counter(), process_time()
    work()
    return Took(perf_counter() - wall, process_time() - cpu)


def _best(rounds: Sequence[Took]) -> Took:
    return Took(min(took.wall for took in rounds), min(took.cpu for took in rounds))


def stored(frame: Frame, store: LocalStore) -> Component:
    """A frame as the only state of an operator, in one blob of a store."""

    def put(name: str, parts: Sequence[Piece]) -> str:
        store.put(name, parts)
        return name

    checkpoint = Checkpoint(_OWNER, 1, 0, EPOCH, None, ALL, (frame.snapshot(ALL),), (), trimmed=EPOCH)
    return component_of([persist_state(checkpoint, put, slot_bits=frame.slot_bits)])


def _copy_flushed(source: Path, target: Path) -> None:
    """Writes a file as the store does: to another name, flushed, renamed, and the directory flushed."""
    partial = target.with_suffix(".partial")
    shutil.copyfile(source, partial)
    _flush(partial)
    partial.rename(target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# --- a part of it -----------------------------------------------------------------------------------------------------


class CountingStore(LocalStore):
    """Counts the bytes that are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.nbytes = 0

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        found = super().get(key, start, length)
        self.nbytes += found.nbytes
        return found

    def open(self, key: str) -> BinaryIO:
        return stream_of(lambda start, length: self.get(key, start, length), self.size(key))


def sixteenth_read_share(frame: Frame, directory: Path) -> float:
    """Returns the most bytes that are read for a sixteenth of the slots, with the manifest, per byte of the blobs."""
    store = CountingStore(directory)
    component = stored(frame, store)
    catalogue = Catalogue(store, "parts", read_manifest)
    with catalogue.enter("benchmark").begin() as attempt:
        attempt.allow(component.blobs)
        manifest = Manifest(query="parts", id=attempt.id, epoch=EPOCH, created=0.0, components={"counter": component})
        attempt.commit(manifest.to_json())
    slots = len(ALL) // PARTS
    read = [_bytes_read(store, SlotSet.range(first, first + slots - 1)) for first in range(0, len(ALL), slots)]
    return max(read) / sum(map(store.size, component.blobs))


def _bytes_read(store: CountingStore, slots: SlotSet) -> int:
    """Returns the bytes that a new owner of these slots reads, which knows only the storage."""
    store.nbytes = 0
    catalogue = Catalogue(store, "parts", read_manifest)
    latest = catalogue.latest()
    assert latest is not None
    chunks = retrieve_state(latest.components["counter"], slots, store.get)
    assert all(chunk.replaced == slots for chunk in chunks)
    return store.nbytes
