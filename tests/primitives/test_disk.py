"""Disk: a frame in every respect, with most of its rows in files; these can be linked, shipped and opened again."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
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

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.slots import SlotSet, split_evenly
from primitives.state.chunk import Chunk
from primitives.state.chunk_chain import merged
from primitives.state.file_chunk import FileChunk
from primitives.state.on_disk.disk import Disk
from primitives.state.on_disk.row_files import read_pieces
from seep.channels.wire import decode, encode, pack
from tests.primitives import test_frame
from tests.primitives.test_frame import FULL, SLOT_BITS, TYPES, Row, decimals, slot_sets, texts

AnyChunk = Chunk | FileChunk
ALL = SlotSet.full(8)


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


def shipped(chunks: Iterable[AnyChunk]) -> Iterator[AnyChunk]:
    """As they arrive in another process: of files, those that are new are all there is."""
    return (decode(encode(chunk)) for chunk in chunks)


def as_chain(chunks: AnyChunk | list[AnyChunk]) -> list[AnyChunk]:
    return chunks if isinstance(chunks, list) else [chunks]


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

    def restored(self, *chunks: AnyChunk) -> dict[Row, Row]:
        with closing(self.make()) as disk:
            disk.restore(shipped(chunks))
            return self.content(disk)

    @rule()
    def compact(self) -> None:
        """Of the frame that this is not; it makes room all the time."""

    @rule(slots=slot_sets)
    def move_away(self, slots: SlotSet) -> None:
        slots &= self.owned
        self.there.restore(shipped([self.here.snapshot(slots)]))
        self.here.drop(slots)
        self.owned -= slots

    @rule(slots=slot_sets, since=st.integers(0, 3))
    def hand_over_a_checkpoint_and_what_changed_since(self, slots: SlotSet, since: int) -> None:
        slots &= self.owned
        mark = self.here.marks[min(since, len(self.here.marks) - 1)]
        chunks = [*as_chain(self.full_at[mark]), self.here.snapshot(slots, mark)]
        self.there.restore(shipped(chunk.select(slots) for chunk in chunks))
        self.here.drop(slots)
        self.owned -= slots

    @rule()
    def recover(self) -> None:
        """What is restored from the chain, as a holder has it, goes on in place of the original, and in its chain."""
        self.checkpoint()
        last = self.content(self.here)
        chain = list(shipped(self.chain))
        assert self.restored(*chain) == self.restored(*merged(chain)) == last
        self.here.close()
        self.here = self.make()
        self.here.restore(chain)
        self.here.mark(self.epoch)
        self.chain, self.full_at = merged(chain), {self.epoch: chain}

    @rule(slots=slot_sets)
    def parts_of_a_chain_are_restored_next_to_each_other(self, slots: SlotSet) -> None:
        self.checkpoint()
        with closing(self.make()) as disk:
            for part in (slots, FULL - slots):
                disk.restore(shipped(chunk.select(part) for chunk in self.chain))
            assert self.content(disk) == self.content(self.here)

    @rule()
    def deltas_since_any_mark_complete_what_was_there(self) -> None:
        now = self.content(self.here)
        for mark, full in self.full_at.items():
            delta = self.here.snapshot(FULL, mark)
            chain = [*as_chain(full), delta]
            assert self.restored(*chain) == self.restored(*merged(list(shipped(chain)))) == now
            if isinstance(delta, Chunk):
                assert self.here.changed(mark) == len(delta.rows) + len(delta.deleted)

    @rule(slots=slot_sets)
    def pieces_of_files_are_the_rows_of_their_slots(self, slots: SlotSet) -> None:
        for chunk in shipped([self.here.snapshot(FULL)]):
            if isinstance(chunk, FileChunk):
                pieces = list(read_pieces(chunk.select(slots), 100))
                assert self.restored(*pieces) == self.restored(chunk.select(slots))

    @rule()
    def parts_are_disjoint_cover_and_merge(self) -> None:
        whole = self.here.snapshot(FULL)
        parts = [whole.select(slots) for slots in split_evenly(FULL, 3)]
        assert self.restored(*merged(parts)) == self.content(self.here)

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
    keys = (("word", pa.string()), ("price", pa.decimal128(38, 2)), ("at", pa.int64()))
    subkeys = ("at",)
    key_values = (texts, decimals, st.integers(-2, 8))


short_runs = settings(max_examples=6, stateful_step_count=15, deadline=None)
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


def filled(directory: Path, rows: int = 30_000, name: str = "counts", memory: int = 1 << 20) -> Disk:
    """With so many rows that snapshots are files."""
    disk = make_disk(directory, name, memory)
    disk.add(np.arange(rows), n=1)
    return disk


def files_of(disk: Disk, since: int | None = None) -> FileChunk:
    chunk = disk.snapshot(ALL, since)
    assert isinstance(chunk, FileChunk)
    return chunk


def test_state_that_fits_into_the_buffer_and_slots_that_do_are_rows_and_all_else_is_files(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "disk", 5_000)) as disk:
        assert isinstance(disk.snapshot(ALL), Chunk)
        disk.add(np.arange(30_000), n=1)
        assert isinstance(disk.snapshot(ALL), FileChunk)
        assert isinstance(disk.snapshot(SlotSet.range(0, 9)), Chunk)
        assert isinstance(disk.snapshot(SlotSet.empty()), Chunk)


def test_files_do_not_change_when_the_original_goes_on_or_closes(tmp_path: Path) -> None:
    with closing(make_disk(tmp_path / "there")) as there:
        with closing(filled(tmp_path / "here")) as here:
            taken = files_of(here)
            here.add(np.arange(40_000), n=5)
            files_of(here)
        there.restore([taken])
        assert sorted(there.to_arrow()["n"].to_pylist()) == [1] * 30_000
        there.add(np.arange(30_000), n=1)
        there.drop(SlotSet.range(0, 127))
        assert set(there.to_arrow()["n"].to_pylist()) == {2}


def test_after_one_key_in_a_hundred_has_changed_less_than_a_tenth_is_shipped_on_average(tmp_path: Path) -> None:
    """Most times it is a hundredth; now and then it is more, as RocksDB has rewritten files meanwhile."""
    with closing(filled(tmp_path / "disk", 200_000, memory=8 << 20)) as disk:
        full, shipped = sum(buffer.size for buffer in pack(files_of(disk))), []
        for epoch in range(16):
            disk.mark(epoch)
            disk.add(np.arange(epoch, 200_000, 100), n=1)
            shipped.append(sum(buffer.size for buffer in pack(files_of(disk, since=epoch))))
        assert 0 < sum(shipped) / 16 < full / 10


def test_new_files_alone_are_refused_with_the_names_of_the_others(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "here")) as here, closing(filled(tmp_path / "there", 7)) as there:
        first = files_of(here)
        here.mark(1)
        here.add([7], n=1)
        (delta,) = shipped([files_of(here, since=1)])
        for slots in (ALL, SlotSet.range(0, 100)):
            with pytest.raises(
                EnvironmentFault, match=r"files of state 'counts' are not here \(0000..\.sst.*a full one"
            ):
                there.restore([delta.select(slots)])
        assert len(there) == 7
        there.restore([first, delta])
        assert there.get([7, 8])[0]["n"].to_pylist() == [2, 1]


def test_files_of_another_container_are_refused_before_anything_is_lost(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "here")) as here, closing(filled(tmp_path / "there", 3, "others")) as there:
        with pytest.raises(InternalError, match="state 'others' has name 'others' and cannot restore a chunk"):
            there.restore([files_of(here)])
        assert len(there.to_arrow()) == 3


def test_files_that_do_not_belong_together_are_refused_before_anything_is_lost(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "here")) as here, closing(filled(tmp_path / "there", 3)) as there:
        files_of(here)
        here.add(np.arange(9_000), n=1)
        (chunk,) = shipped([files_of(here)])
        name, other = sorted(name for name in chunk.contents if name.endswith(".sst"))[:2]
        size, content = chunk.sizes[other], chunk.contents[other]
        mixed = replace(chunk, sizes={**chunk.sizes, name: size}, contents={**chunk.contents, name: content})
        with pytest.raises(EnvironmentFault, match=rf"cannot open .*/there/rows-.*{name}"):
            there.restore([mixed])
        assert there.to_arrow()["n"].to_pylist() == [1] * 3


@pytest.mark.parametrize(
    ("sizes", "contents", "message"),
    [
        ({"a.sst": 3}, {"a.sst": b"ab"}, r"file a\.sst of state 'counts' has 2 bytes where 3 belong to it"),
        ({"a.sst": 3}, {"b.sst": b"ab"}, r"file b\.sst of state 'counts' has 2 bytes where None belong"),
        ({"../a.sst": 3}, {}, r"state 'counts' cannot be in a file '\.\./a\.sst'"),
        ({"/etc/passwd": 3}, {}, "cannot be in a file"),
        ({"..": 3}, {}, "cannot be in a file"),
        ({"a.sst\n": 3}, {}, "cannot be in a file"),
        ({"a.sst": -1}, {}, "cannot be in a file"),
    ],
)
def test_files_with_other_sizes_or_other_than_plain_names_are_refused(
    tmp_path: Path, sizes: Any, contents: dict[str, bytes], message: str
) -> None:
    with closing(filled(tmp_path / "disk")) as disk:
        chunk = files_of(disk)
    buffers = {name: pa.py_buffer(content) for name, content in contents.items()}
    with pytest.raises(EnvironmentFault, match=message):
        replace(chunk, sizes=sizes, contents=buffers)


def test_a_damaged_file_is_found_when_its_rows_are_read(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "here")) as here, closing(make_disk(tmp_path / "there")) as there:
        (chunk,) = shipped([files_of(here)])
        rows = max(chunk.sizes, key=lambda name: chunk.sizes[name])
        data = bytearray(chunk.contents[rows])
        data[5_000] ^= 1
        damaged = replace(chunk, contents={**chunk.contents, rows: pa.py_buffer(bytes(data))})
        there.restore([damaged])
        for read in (there.to_arrow, lambda: there.get(np.arange(30_000)), lambda: list(read_pieces(damaged))):
            with pytest.raises(EnvironmentFault, match=r"corruption.*restore from a checkpoint|Corruption"):
                read()


def test_what_is_kept_and_what_is_read_leaves_no_files_behind(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "here")) as here, closing(filled(tmp_path / "there", 7)) as there:
        chunk = files_of(here).select(SlotSet.range(0, 99))
        there.restore([chunk])
        assert sum(len(piece.rows) for piece in read_pieces(chunk, 1000)) == chunk.count_in(SlotSet.range(0, 99))
        del chunk
        assert {path.name for path in tmp_path.iterdir()} == {"here", "there"}
        assert not [path for path in there.directory.iterdir() if not path.name.startswith("rows-")]


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
    with (
        mock.patch.dict("sys.modules", rocksdict=None),
        pytest.raises(UserError, match=r"pip install 'seep-streaming\[disk\]'"),
    ):
        make_disk(tmp_path / "disk")
