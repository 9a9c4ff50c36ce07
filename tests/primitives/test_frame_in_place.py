"""Frames in the hands of compiled code, and rows that are deleted by number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.frame import Frame

ALL = SlotSet.full(8)


def frame() -> Frame:
    return Frame("state", {"road": pa.int32()}, {"n": pa.int64(), "m": pa.int64()}, subkeys={"vid": pa.int64()})


def keys(numbers: list[int]) -> dict[str, list[int]]:
    return {"road": [number % 3 for number in numbers], "vid": numbers}


def write(state: Frame, numbers: list[int], column: int, value: int) -> None:
    place = state.in_place(state.locate(keys(numbers)))
    place.words[place.rows * place.width + place.first + column] = value


numbers = st.lists(st.integers(0, 30))


@given(first=numbers, second=numbers)
def test_what_is_written_in_place_is_there_and_in_the_delta(first: list[int], second: list[int]) -> None:
    state, other = frame(), frame()
    write(state, first, 0, 7)
    other.restore([state.snapshot(ALL)])
    state.mark(1)
    write(state, second, 1, 9)
    delta = state.snapshot(ALL, 1)
    assert sorted(delta.rows["vid"].to_pylist()) == sorted(set(second))
    other.restore([delta])
    assert {row["vid"]: (row["n"], row["m"]) for row in other.to_arrow().to_pylist()} == {
        number: (7 * (number in first), 9 * (number in second)) for number in {*first, *second}
    }


@given(held=numbers, deleted=numbers)
def test_rows_that_are_deleted_by_number_are_gone_and_so_the_delta_says(held: list[int], deleted: list[int]) -> None:
    state, other = frame(), frame()
    state.locate(keys(held))
    other.restore([state.snapshot(ALL)])
    state.mark(1)
    rows = state.locate(keys(deleted), create=False)
    assert state.delete_rows(rows[rows >= 0]) == len({*held} & {*deleted})
    other.restore([state.snapshot(ALL, 1)])
    for each in (state, other):
        assert sorted(each.to_arrow()["vid"].to_pylist()) == sorted({*held} - {*deleted})


def test_words_of_numbers_that_are_no_rows_are_zero() -> None:
    state = frame()
    write(state, [1, 2, 3], 0, 7)
    state.delete_rows(state.locate(keys([2])))
    place = state.in_place(np.empty(0, np.int64))
    column = place.words[place.first :: place.width][: place.end]
    assert sorted(column.tolist()) == [0, 7, 7]


def test_a_number_that_is_no_row_is_refused() -> None:
    with pytest.raises(UserError, match="has no row 5"):
        frame().in_place(np.array([5]))
