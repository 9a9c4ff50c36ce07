"""Disk: a frame in every respect, with most of its rows in files; these can be linked, shipped and opened again."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from primitives.chunk import Chunk
from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.slots import SlotSet
from primitives.state.disk import Disk
from tests.primitives import test_frame
from tests.primitives.test_frame import SLOT_BITS, TYPES, Row, texts


def make_disk(directory: Path, name: str = "counts", memory: int = 1 << 20) -> Disk:
    return Disk(name, {"id": pa.int64()}, {"n": pa.int64()}, directory=directory, memory=memory)


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may become larger than `limit`, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- next to a dictionary ---------------------------------------------------------------------------------------------


class DisksOfTwoInstances(test_frame.FramesOfTwoInstances):
    """As for frames; nearly every batch finds that the buffer is too large."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.serials = count()
        super().__init__()

    def make(self) -> Any:
        return Disk(
            "seen",
            {name: kind for name, kind in self.keys if name not in self.subkeys},
            {"sum": pa.int64(), "least": pa.float64(), "text": pa.string()},
            subkeys={name: kind for name, kind in self.keys if name in self.subkeys},
            slot_bits=SLOT_BITS,
            defaults={"least": None, "text": "none so far"},
            directory=Path(self.directory.name, f"disk {next(self.serials)}"),
            memory=1000,
        )

    def restored(self, *chunks: Chunk) -> dict[Row, Row]:
        with closing(self.make()) as disk:
            disk.restore(chunks)
            return self.content(disk)

    @rule()
    def compact(self) -> None:
        """Of the frame that this is not; it makes room all the time."""

    @rule()
    def open_linked_files(self) -> None:
        """The original goes on with its own files, as if they had been shipped."""
        linked = Path(self.directory.name, f"linked {next(self.serials)}")
        self.here.link_files(linked)
        before = self.content(self.here)
        self.here.restore_files(linked)
        assert self.content(self.here) == before

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.here.close()
            self.there.close()
            self.directory.cleanup()


class WithNumbers(DisksOfTwoInstances):
    keys = (("id", pa.int64()),)
    key_values = (st.one_of(st.none(), st.integers(-4, 8)),)


class WithSubkeysAndTexts(DisksOfTwoInstances):
    keys = (("word", pa.string()), ("yes", pa.bool_()), ("at", pa.int64()))
    subkeys = ("at",)
    key_values = (texts, st.sampled_from([None, False, True]), st.integers(-2, 8))


short_runs = settings(max_examples=8, stateful_step_count=20, deadline=None)
TestWithNumbers = WithNumbers.TestCase
TestWithNumbers.settings = short_runs
TestWithSubkeysAndTexts = WithSubkeysAndTexts.TestCase
TestWithSubkeysAndTexts.settings = short_runs


# --- keys and values of every type ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "one", "other"), TYPES, ids=lambda value: str(value)[:20])
def test_keys_and_values_of_any_type_come_back_from_disk(tmp_path: Path, kind: Any, one: Any, other: Any) -> None:
    with closing(Disk("seen", {"k": kind}, {"v": kind}, directory=tmp_path / "disk", memory=0)) as disk:
        for value in (one, other, None):
            disk.put({"k": pa.array([value], kind)}, v=pa.array([value], kind))
        values, found = disk.get({"k": pa.array([other, None, one], kind)})
        assert values["v"].to_pylist() == [other, None, one]
        assert found.all()
        assert values["v"].type == kind


def test_nan_is_one_key_and_minus_zero_is_zero_on_disk_too(tmp_path: Path) -> None:
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    with closing(Disk("seen", {"x": pa.float64()}, {"n": pa.int64()}, directory=tmp_path / "disk", memory=0)) as disk:
        for key in (np.nan, other_nan, 0.0, -0.0):
            disk.add(np.array([key]), n=1)
        assert sorted(disk.to_arrow()["n"].to_pylist()) == [2, 2]


def test_rows_may_be_keys_only(tmp_path: Path) -> None:
    with closing(Disk("seen", {"id": pa.int64()}, {}, directory=tmp_path / "disk", memory=0)) as disk:
        assert [disk.locate_new([key])[1].tolist() for key in (7, 9, 7)] == [[0], [0], []]
        assert len(disk) == 2


# --- memory -----------------------------------------------------------------------------------------------------------


def test_the_buffer_stays_near_its_share_of_the_budget(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "disk", memory=1 << 20)) as disk:
        for start in range(0, 200_000, 2_000):
            disk.add(np.arange(start, start + 2_000), n=1)
            assert disk._buffer.size() <= (1 << 18) + 2_000 * 16
        assert disk.size() >= 200_000 * 16
        assert len(disk) == 200_000
        assert disk.to_arrow()["n"].to_pylist() == [1] * 200_000


def test_numbers_of_the_last_batch_are_good_for_reading_what_it_wrote(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "disk", memory=0)) as disk:
        totals = disk.column("n")
        for _ in range(3):
            rows = disk.add([7, 9, 7], n=1)
        assert totals[rows].tolist() == [6, 3, 6]
        totals[rows[1:2]] = [0]
        assert disk.get([9, 7])[0]["n"].to_pylist() == [0, 6]


# --- files ------------------------------------------------------------------------------------------------------------


def test_linked_files_open_elsewhere_and_do_not_change_when_the_original_goes_on(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "here")) as here, closing(make_disk(tmp_path / "there")) as there:
        here.add(np.arange(10_000), n=1)
        names = here.link_files(tmp_path / "linked")
        assert names == {path.name: path.stat().st_size for path in (tmp_path / "linked").iterdir()}
        here.add(np.arange(20_000), n=5)
        here.link_files(tmp_path / "linked again")
        there.restore_files(tmp_path / "linked")
        assert sorted(there.to_arrow()["n"].to_pylist()) == [1] * 10_000
        there.add(np.arange(10_000), n=1)
        there.drop(SlotSet.range(0, 127))
        assert set(there.to_arrow()["n"].to_pylist()) == {2}
        assert sorted(here.to_arrow()["n"].to_pylist()) == [5] * 10_000 + [6] * 10_000


def test_of_files_linked_again_only_those_with_what_changed_are_new(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "disk", memory=64 << 20)) as disk:
        disk.add(np.arange(100_000), n=1)
        first = disk.link_files(tmp_path / "first")
        disk.add(np.arange(1_000), n=1)
        second = disk.link_files(tmp_path / "second")
        new = [name for name in second if name.endswith(".sst") and name not in first]
        assert len(new) == 1
        assert 0 < second[new[0]] < sum(first.values()) / 10
        for name in first.keys() & second.keys():
            if name.endswith(".sst"):
                assert (tmp_path / "first" / name).samefile(tmp_path / "second" / name)


def test_files_of_another_container_are_refused_before_anything_is_lost(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "here")) as here, closing(make_disk(tmp_path / "there", "others")) as there:
        here.add([7], n=1)
        there.add([9], n=1)
        here.link_files(tmp_path / "linked")
        with pytest.raises(InternalError, match="state 'others' has name 'others' and cannot restore a chunk"):
            there.restore_files(tmp_path / "linked")
        with pytest.raises(EnvironmentFault, match=r"cannot read state back from .*disk.arrow"):
            there.restore_files(tmp_path)
        assert there.to_arrow()["id"].to_pylist() == [9]


def test_a_damaged_file_is_found_when_its_rows_are_read(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "here")) as here, closing(make_disk(tmp_path / "there")) as there:
        here.add(np.arange(10_000), n=1)
        names = here.link_files(tmp_path / "linked")
        (rows,) = (tmp_path / "linked" / name for name in names if name.endswith(".sst"))
        data = bytearray(rows.read_bytes())
        rows.unlink()  # a link: the original keeps its file
        data[5_000] ^= 1
        rows.write_bytes(data)
        there.restore_files(tmp_path / "linked")
        for read in (there.to_arrow, lambda: there.get(np.arange(10_000))):
            with pytest.raises(EnvironmentFault, match=r"corruption.*restore from a checkpoint|Corruption"):
                read()


def test_nothing_is_left_when_it_closes_and_nothing_of_a_predecessor_counts(tmp_path: Path) -> None:
    disk = make_disk(tmp_path / "disk", memory=0)
    disk.add([7], n=1)
    disk.add([8], n=1)
    disk._store.close()  # as a killed process leaves it
    with closing(make_disk(tmp_path / "disk")) as successor:
        assert len(successor) == 0
        assert successor.get([7])[1].tolist() == [False]
    assert list(tmp_path.iterdir()) == []


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_what_was_there_is_still_there(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "disk", memory=64 << 10)) as disk:
        disk.add(np.arange(2_000), n=1)
        with full_disk(4_096), pytest.raises(EnvironmentFault, match=r"File too large.*restore from a checkpoint"):
            disk.link_files(tmp_path / "linked")
        disk.mark(1)
        disk.add(np.arange(2_000), n=0)
        with (
            full_disk(4_096),
            pytest.raises(EnvironmentFault, match=r"cannot write .* bytes .*changed.*free some space"),
        ):
            disk.add([7], n=1)
        values, found = disk.get(np.arange(1_000))
        assert found.all()
        assert set(values["n"].to_pylist()) == {1}


def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    with mock.patch.dict("sys.modules", rocksdict=None), pytest.raises(UserError, match="pip install rocksdict"):
        make_disk(tmp_path / "disk")
