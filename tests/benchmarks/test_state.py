"""The measurements of state measure what they say; how fast anything is, is no matter here."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from benchmarks import larger, state, stored
from formats.persist import retrieve_state
from primitives.state.frame import Frame
from seep.storage.local import LocalStore
from tests.waiting import eventually


@pytest.mark.parametrize("kind", [stored.NUMBERS, stored.TEXTS], ids=["numbers", "texts"])
def test_what_is_stored_is_the_whole_frame_of_about_the_size_asked_for(kind: stored.State, tmp_path: Path) -> None:
    store, frame = LocalStore(tmp_path), kind.filled(4 << 20)
    component = stored.stored(frame, store)
    back = kind.new()
    back.restore(retrieve_state(component, stored.ALL, store.get))
    assert _sorted(back).equals(_sorted(frame))
    assert frame.snapshot(stored.ALL).nbytes == pytest.approx(4 << 20, rel=0.1)


def _sorted(frame: Frame) -> object:
    return frame.to_arrow().sort_by("n")


def test_parts_are_counted_with_the_manifest_and_are_about_what_they_are_of_the_whole(tmp_path: Path) -> None:
    share = stored.sixteenth_read_share(stored.NUMBERS.filled(30 << 20), tmp_path)
    assert 1 / stored.PARTS < share < 1.3 / stored.PARTS


def test_a_counting_store_counts_streams_too(tmp_path: Path) -> None:
    store = stored.CountingStore(tmp_path)
    store.put("key", [b"twelve bytes"])
    with store.open("key") as stream:
        assert stream.read() == b"twelve bytes"
    store.get("key", 3, 5)
    assert store.nbytes == 17


def test_keys_in_turn_are_all_there_once() -> None:
    keys = 3 * larger.BATCH // 2
    drawn = np.concatenate([larger._in_turn(first, keys) for first in range(0, keys, larger.BATCH)])
    assert np.array_equal(np.sort(drawn), np.arange(keys))


def test_memory_is_seen_at_its_peak() -> None:
    """A fresh mapping: what an allocator gives out may be memory that the process has had all along."""
    size = 1 << 24
    with larger.Peak() as peak, mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(b"1" * size)
        assert eventually(lambda: peak.nbytes >= size // 2, 20.0)
    assert peak.nbytes < 8 * size


@pytest.mark.acceptance
def test_state_larger_than_memory_is_measured_in_full() -> None:
    measured = larger.run(1 << 20)
    assert measured["rocks_rows"] == larger.TIMES * (1 << 20) // larger.ROW
    assert 0 < measured["rocks_incremental_share"] <= measured["rocks_incremental_share_at_most"]
    assert all(value > 0 for name, value in measured.items() if name != "rocks_peak_over_budget")


def test_sizes_are_given_as_people_write_them() -> None:
    assert state._size("1GiB") == 1 << 30
