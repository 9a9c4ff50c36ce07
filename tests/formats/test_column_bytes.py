"""Columns as bytes come back as they were, in one piece or in several, and nothing else passes for them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.column_bytes import layout_of, read_column, write_column
from primitives.errors import Damaged

DAY = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)

#: A type, and values of it.
TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-1, 7, 127]),
    (pa.uint64(), [0, 2**64 - 1, 5]),
    (pa.float32(), [0.5, -1.5, 3.25]),
    (pa.float16(), [0.5, 1.5, 2.5]),
    (pa.bool_(), [True, False, True]),
    (pa.date32(), [date(2026, 1, 31), date(1, 1, 1), date(1970, 1, 1)]),
    (pa.timestamp("us", "UTC"), [DAY, DAY + timedelta(days=1), DAY]),
    (pa.time64("us"), [time.time() for time in (DAY, DAY, DAY)]),
    (pa.duration("ms"), [timedelta(1), timedelta(0), timedelta(-1)]),
    (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-7.00"), Decimal("0.01")]),
    (pa.decimal256(60, 0), [Decimal(10**50), Decimal(0), Decimal(-1)]),
    (pa.binary(3), [b"abc", b"xyz", b"\0\0\0"]),
    (pa.string(), ["", "be", "Größe"]),
    (pa.large_string(), ["a", "", "ccc"]),
    (pa.binary(), [b"", b"\xff", b"abc"]),
    (pa.large_binary(), [b"abc", b"", b"d"]),
    (pa.string_view(), ["a text that is too long for a view to hold", "short", ""]),
    (pa.binary_view(), [b"bytes that are too long for a view to hold", b"", b"x"]),
    (pa.list_(pa.int64()), [[1, 2], [], [3]]),
    (pa.list_(pa.int16(), 2), [[1, 2], [3, 4], [5, 6]]),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 2, "b": ""}]),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], [("b", 2), ("c", 3)]]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
    (pa.null(), [None, None, None]),
]
every_type = pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])


def array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array(values, kind)


def written(column: pa.Array) -> memoryview:
    return memoryview(b"".join(write_column(column)))


@every_type
@pytest.mark.parametrize("nulls", [False, True], ids=["full", "with nulls"])
def test_a_column_comes_back_put_together_from_slices(kind: pa.DataType, values: list[Any], nulls: bool) -> None:
    whole = array(kind, [*values, *values, *([None] if nulls else []), *values])
    slices = [whole.slice(0, 2), whole.slice(2, 0), whole.slice(2, 1), whole.slice(3)]
    back = read_column(kind, [written(part) for part in slices], [len(part) for part in slices])
    back.validate(full=True)
    assert back.type == kind
    assert back.to_pylist() == whole.to_pylist()


@every_type
def test_a_column_of_nothing_but_nulls_comes_back(kind: pa.DataType, values: list[Any]) -> None:
    nothing = array(kind, [None] * len(values))
    assert read_column(kind, [written(nothing)], [len(values)]).to_pylist() == nothing.to_pylist()


@every_type
def test_a_column_without_rows_takes_no_bytes(kind: pa.DataType, values: list[Any]) -> None:
    assert written(array(kind, values)[:0]) == b""
    assert read_column(kind, [memoryview(b"")], [0]).type == kind


@every_type
def test_a_column_with_bytes_too_few_or_too_many_is_refused(kind: pa.DataType, values: list[Any]) -> None:
    data = bytes(written(array(kind, [*values, None])))
    if not pa.types.is_null(kind):  # which has no values that could be missing
        with pytest.raises(Damaged):
            read_column(kind, [memoryview(data[: len(data) // 3])], [len(values) + 1])
    if layout_of(kind).name != "arrow":  # there, what comes after the end of the stream is not looked at
        with pytest.raises(Damaged):
            read_column(kind, [memoryview(data + b"\0")], [len(values) + 1])


@given(st.lists(st.lists(st.none() | st.text(max_size=3), max_size=20), max_size=5))
def test_texts_come_back_whatever_their_number(pieces: list[list[str | None]]) -> None:
    columns = [array(pa.string(), piece) for piece in pieces]
    back = read_column(pa.string(), [written(column) for column in columns], [len(piece) for piece in pieces])
    assert back.to_pylist() == [value for piece in pieces for value in piece]


@given(st.lists(st.lists(st.none() | st.booleans(), max_size=20), max_size=5), st.integers(0, 9))
def test_bits_come_back_wherever_in_a_byte_they_begin(pieces: list[list[bool | None]], before: int) -> None:
    columns = [array(pa.bool_(), [True] * before + piece)[before:] for piece in pieces]
    back = read_column(pa.bool_(), [written(column) for column in columns], [len(piece) for piece in pieces])
    assert back.to_pylist() == [value for piece in pieces for value in piece]


def test_numbers_and_texts_are_not_copied_when_they_are_written() -> None:
    for column in (pa.array([1, 2, 3]), pa.array(["a", "bb", "ccc"])):
        places = {buffer.address for buffer in column.buffers() if buffer is not None}
        parts = [pa.py_buffer(part) for part in write_column(column) if len(part)]
        assert {part.address for part in parts} <= places | {address + 4 for address in places}


@given(st.binary(min_size=12, max_size=12))
def test_ends_of_texts_that_make_no_sense_are_refused(ends: bytes) -> None:
    data = memoryview(ends + b"abcdef")
    try:
        back = read_column(pa.binary(), [data], [3])
    except Damaged:
        return
    back.validate(full=True)
    assert sum(map(len, back.to_pylist())) == 6


def test_a_dictionary_is_cut_down_to_what_a_slice_uses() -> None:
    column = pa.array([f"word {n}" for n in range(1000)]).dictionary_encode()
    assert len(written(column[:1])) < len(written(column)) / 20
