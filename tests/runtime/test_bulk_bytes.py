"""Messages of the bulk lane as bytes: read in any ranges without a copy, put together on a shelf or in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.mapped import MappedFiles
from seep.channels.bulk_bytes import Arriving, BulkBytes
from seep.channels.wire import WireError
from tests.runtime.values import comparable, letters

ROWS = pa.record_batch({"key": list(range(20_000)), "name": [str(n) for n in range(20_000)]})
LARGE = pa.py_buffer(b"large" * 100_000)


def ranges(laid_out: BulkBytes, lengths: list[int]) -> Iterator[pa.Buffer]:
    """All of it, in ranges of these lengths, over and over."""
    at = turn = 0
    while at < laid_out.size:
        length = min(lengths[turn % len(lengths)], laid_out.size - at)
        yield laid_out.cut(at, length)
        at, turn = at + length, turn + 1


def brought(message: Any, lengths: list[int], shelf: MappedFiles | None = None) -> Any:
    laid_out = BulkBytes(message)
    arriving = Arriving(laid_out.size, shelf)
    for each in ranges(laid_out, lengths):
        arriving.write(each)
    return arriving.message()


@given(letters, st.lists(st.integers(1, 4_000), min_size=1, max_size=4))
def test_every_message_arrives_as_it_was_whatever_the_ranges(message: Any, lengths: list[int]) -> None:
    assert comparable(brought(message, lengths)) == comparable(message)


def test_state_is_not_copied_to_be_sent() -> None:
    laid_out = BulkBytes({"rows": ROWS, "large": LARGE})
    sent = [piece for piece in ranges(laid_out, [4096]) if piece.size == 4096]
    ours = [buffer for column in ROWS.columns for buffer in column.buffers() if buffer] + [LARGE]
    inside = [p for p in sent if any(b.address <= p.address < b.address + b.size for b in ours)]
    assert len(inside) > 0.9 * len(sent)


def test_rows_arrive_where_numpy_reads_them_in_place() -> None:
    arrived = brought(["odd", ROWS.slice(7, 1000), ROWS], [977])
    for rows in arrived[1:]:
        assert rows.column(0).to_numpy().flags.aligned


def test_large_parts_arrive_on_the_shelf_each_by_itself(tmp_path: Path) -> None:
    shelf = MappedFiles(tmp_path / "shelf", above=1 << 17)
    small, large = brought([pa.py_buffer(b"small" * 2_000), LARGE], [10_001], shelf)
    assert (small.size, large) == (10_000, LARGE)
    assert shelf.buffer([large]).address == large.address, "it is there already"
    assert list(shelf.directory.iterdir()) == []


def test_large_parts_arrive_when_there_is_no_shelf_any_more(tmp_path: Path) -> None:
    shelf = MappedFiles(tmp_path / "shelf", above=1 << 17)
    shelf.directory.rmdir()
    assert brought([LARGE], [10_001], shelf) == [LARGE]


@pytest.mark.parametrize("place", [0, 4])
def test_large_parts_arrive_when_the_disk_is_full_on_the_way(tmp_path: Path, place: int) -> None:
    shelf = MappedFiles(tmp_path / "shelf", above=1 << 17)
    laid_out = BulkBytes([LARGE])
    arriving = Arriving(laid_out.size, shelf)
    for number, each in enumerate(ranges(laid_out, [200, *[50_000] * 20])):
        arriving.write(each)
        if number == place:
            (part,) = arriving._parts
            part._file = Full(part._file)  # type: ignore[assignment]
    assert arriving.message() == [LARGE]
    assert list(shelf.directory.iterdir()) == []


class Full:
    """A file on a disk that has no room left."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        raise OSError(28, f"no space left for {len(data)} bytes")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_of_a_message_that_is_given_up_no_file_is_left(tmp_path: Path) -> None:
    shelf = MappedFiles(tmp_path / "shelf", above=1 << 17)
    laid_out = BulkBytes([LARGE])
    arriving = Arriving(laid_out.size, shelf)
    arriving.write(laid_out.cut(0, 300_000))
    assert len(list(shelf.directory.iterdir())) == 1
    arriving.drop()
    assert list(shelf.directory.iterdir()) == []


def test_a_message_that_is_cut_off_or_too_long_or_none_is_refused() -> None:
    laid_out = BulkBytes(["state", LARGE])
    short = Arriving(laid_out.size)
    short.write(laid_out.cut(0, 1_000))
    with pytest.raises(WireError, match="cut off"):
        short.message()
    short.write(laid_out.cut(1_000, laid_out.size - 1_000))
    with pytest.raises(WireError, match="goes on"):
        short.write(pa.py_buffer(b"more"))
    with pytest.raises(WireError, match="no message"):
        Arriving(100).write(pa.py_buffer(b"something else altogether"))
    with pytest.raises(WireError, match="bytes, not 3"):
        Arriving(3)
