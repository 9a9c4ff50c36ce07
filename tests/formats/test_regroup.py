"""Regrouping brings rows together by group and changes nothing else, whatever the types of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.regroup import regrouped, sizes_of
from primitives.errors import InternalError
from tests.formats.test_column_bytes import array, every_type

groupings = st.lists(st.integers(0, 4), max_size=30).map(lambda groups: np.array(groups, np.int32))


def in_groups(values: list[Any], groups: np.ndarray[Any, Any]) -> list[Any]:
    return [values[row] for row in np.argsort(groups, kind="stable")]


@given(groupings, st.data())
def test_rows_are_in_the_order_of_groups_and_then_in_their_own(groups: Any, draw: st.DataObject) -> None:
    def drawn(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw.draw(st.lists(st.none() | values, min_size=len(groups), max_size=len(groups)))

    given_ = {"n": drawn(st.integers(-9, 9)), "text": drawn(st.text(max_size=3)), "yes": drawn(st.booleans())}
    schema = pa.schema([("n", pa.int64()), ("text", pa.string()), ("yes", pa.bool_())])
    moved = regrouped(pa.record_batch(given_, schema=schema), groups, sizes_of(groups, 5))
    moved.validate(full=True)
    assert moved.to_pydict() == {name: in_groups(values, groups) for name, values in given_.items()}


@every_type
@pytest.mark.parametrize("times", [1, 20])
def test_columns_of_every_type_are_moved(kind: pa.DataType, values: list[Any], times: int) -> None:
    groups = np.array([2, 0, 1, 0] * times, np.int32)
    column = array(kind, [None, *[*values, None] * times])[1:]
    moved = regrouped(pa.record_batch([column], names=["c"]), groups, sizes_of(groups, 3)).column(0)
    moved.validate(full=True)
    assert moved.type == kind
    assert moved.to_pylist() == in_groups(column.to_pylist(), groups)


def test_long_texts_are_moved() -> None:
    texts, groups = [f"{n}" * 500 for n in range(8)], np.array([1, 0] * 4, np.int32)
    moved = regrouped(pa.record_batch({"text": texts}), groups, sizes_of(groups, 2))
    assert moved.column("text").to_pylist() == texts[1::2] + texts[::2]


def test_a_single_group_is_the_very_same_batch() -> None:
    batch = pa.record_batch({"n": [1, 2, 3]})
    assert regrouped(batch, np.array([1, 1, 1], np.int32), np.array([0, 3])) is batch


def test_sizes_of_other_rows_are_refused() -> None:
    with pytest.raises(InternalError, match="2 rows in groups of 3 are no batch of 2"):
        regrouped(pa.record_batch({"n": [1, 2]}), np.array([0, 1], np.int32), np.array([1, 2]))
