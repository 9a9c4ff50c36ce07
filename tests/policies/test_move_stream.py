"""Move streams: rows become steps by their moment, and what is wrong is said with row and field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.migration.move_stream import Clock, move_stream
from primitives.errors import UserError
from primitives.slots import SlotSet

ROWS = [
    {"time": 2.5, "slot": 3, "instance": 1},
    {"time": 1.0, "slot": 0, "instance": 2},
    {"time": 2.5, "slot": 1, "instance": 0},
    {"time": 2.5, "slot": 2, "instance": 1},
]
MOVES = [(1.0, {2: SlotSet([0])}), (2.5, {0: SlotSet([1]), 1: SlotSet([2, 3])})]


def rows(**columns: list[Any]) -> list[dict[str, Any]]:
    """
    >>> rows(slot=[1, 2], instance=[0, 0])
    [{'slot': 1, 'instance': 0}, {'slot': 2, 'instance': 0}]
    """
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_rows_table_and_files_say_the_same(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    pa.csv.write_csv(table, tmp_path / "moves.csv")
    pa.parquet.write_table(table, tmp_path / "moves.parquet")
    for given_as in (ROWS, table, tmp_path / "moves.csv", tmp_path / "moves.parquet"):
        stream = move_stream(given_as, slot_bits=2)
        assert stream.clock is Clock.TIME
        assert list(stream) == MOVES


@given(
    st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 15)), st.integers(0, 5)).flatmap(
        lambda moves: st.permutations(list(moves.items()))
    )
)
def test_every_row_is_in_the_step_of_its_epoch_whatever_the_order(moves: list[tuple[tuple[int, int], int]]) -> None:
    columns = {
        "epoch": [epoch for (epoch, _), _ in moves],
        "slot": [slot for (_, slot), _ in moves],
        "instance": [instance for _, instance in moves],
    }
    stream = move_stream(pa.table({name: pa.array(each, pa.int32()) for name, each in columns.items()}), slot_bits=4)
    assert list(stream.moments) == sorted(set(columns["epoch"]))
    found = {((epoch, slot), i) for epoch, move in stream for i, slots in move.items() for slot in slots}
    assert found == set(moves)
    assert len(stream) == len(stream.moments)


def test_other_columns_are_left_alone() -> None:
    assert len(move_stream(rows(epoch=[1], slot=[0], instance=[1], why=["hot"]), slot_bits=0)) == 1


def test_a_million_rows_are_one_stream() -> None:
    count = 1 << 20
    table = pa.table({"epoch": np.arange(count) // 4096, "slot": np.arange(count), "instance": np.arange(count) % 7})
    stream = move_stream(table, slot_bits=20)
    assert len(stream) == 256
    assert set(stream.steps.sizes.tolist()) == {4096}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (rows(time=[1], slot=[4], instance=[0]), "moves: slot is 4 in row 1; there are slots 0 to 3"),
        (rows(time=[1, 2], slot=[0, -1], instance=[0, 0]), "moves: slot is -1 in row 2; there are slots 0 to 3"),
        (rows(time=[1], slot=[0], instance=[-2]), "moves: instance is -2 in row 1; there are instances 0 to"),
        (rows(time=[1, 2], slot=[0, "x"], instance=[0, 0]), "moves: slot is 'x' in row 2; write a whole number"),
        (rows(time=[1], slot=[1.5], instance=[0]), "moves: slot is 1.5 in row 1; write a whole number"),
        (rows(time=[1, 2], slot=[0, None], instance=[0, 0]), "moves: slot is None in row 2; write a whole number"),
        (rows(time=[1], slot=[True], instance=[0]), "moves: slot is True in row 1; write a whole number"),
        (rows(time=["soon"], slot=[0], instance=[0]), "moves: time is 'soon' in row 1; write a number of seconds"),
        (rows(time=[-0.5], slot=[0], instance=[0]), "moves: time is -0.5 in row 1; times count seconds from 0 on"),
        (rows(time=[float("nan")], slot=[0], instance=[0]), "moves: time is nan in row 1"),
        (rows(epoch=[10**30], slot=[0], instance=[0]), "moves: epoch is 1000"),
        (rows(epoch=[-3], slot=[0], instance=[0]), "moves: epoch is -3 in row 1; there are epochs 0 to"),
        (rows(epoch=[2.5], slot=[0], instance=[0]), "moves: epoch is 2.5 in row 1; write a whole number"),
        (rows(slot=[0], instance=[0]), "moves: the columns are slot, instance; there must be slot, instance, and one"),
        (rows(time=[1], epoch=[1], slot=[0], instance=[0]), "moves: the columns are time, epoch, slot, instance; "),
        (rows(time=[1], slot=[0]), "moves: the columns are time, slot; there must be slot, instance, and one of"),
        ([], "moves: the columns are none; there must be slot, instance, and one of time and epoch"),
        (
            rows(epoch=[7, 8, 7], slot=[1, 1, 1], instance=[0, 0, 2]),
            "moves: slot is 1 in row 3, and in row 1 too, both at epoch 7; a slot moves once at a time",
        ),
    ],
)
def test_what_is_wrong_is_said_with_row_and_field(said: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        move_stream(said, slot_bits=2)


def test_a_row_without_a_field_is_named() -> None:
    with pytest.raises(UserError, match="moves: instance is None in row 2; write a whole number"):
        move_stream([*ROWS[:1], {"time": 1.0, "slot": 0}], slot_bits=2)


def test_two_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1])] * 4, ["time", "slot", "slot", "instance"])
    with pytest.raises(UserError, match="moves: there are two columns 'slot'; keep one"):
        move_stream(table, slot_bits=2)


def test_a_file_is_named_with_the_row_and_field_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "moves.csv"
    path.write_text("epoch,slot,instance\n1,0,1\n2,three,1\n")
    with pytest.raises(UserError, match=re.escape(f"{path}: slot is 'three' in row 2; write a whole number")):
        move_stream(path, slot_bits=2)


def test_a_file_that_is_not_there_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.csv cannot be read"):
        move_stream(tmp_path / "none.csv", slot_bits=2)
    with pytest.raises(UserError, match=r"moves\.txt is neither a \.csv nor a \.parquet file"):
        move_stream(tmp_path / "moves.txt", slot_bits=2)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "moves.parquet").write_text("epoch,slot,instance\n")
    with pytest.raises(UserError, match=r"moves\.parquet cannot be read"):
        move_stream(tmp_path / "moves.parquet", slot_bits=2)
