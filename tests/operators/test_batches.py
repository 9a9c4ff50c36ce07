"""Batches: what users return becomes the declared columns or a clear error, and sequences do not depend on arrival."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from seep.rows.batches import as_batch, concat, conform, in_sequence

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


@pytest.mark.parametrize(
    "given",
    [
        pa.record_batch({"n": [1, 2], "s": ["a", None]}),
        pa.table({"n": pa.chunked_array([[1], [2]]), "s": ["a", None]}),
        {"n": [1, 2], "s": pa.array(["a", None])},
        {"n": pa.chunked_array([[1], [2]]), "s": ("a", None)},
        {"s": pa.array(["a", None]).dictionary_encode(), "n": pa.array([1, 2], pa.int8())},
        pa.record_batch({"n": [1, 2], "s": ["a", None]}).replace_schema_metadata({"made": "by hand"}),
    ],
)
def test_rows_in_any_form_become_the_declared_columns(given: Any) -> None:
    batch = conform("op", as_batch("op", given), SCHEMA)
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert batch.to_pydict() == {"n": [1, 2], "s": ["a", None]}


def test_a_table_without_rows_is_a_batch_without_rows() -> None:
    assert as_batch("op", SCHEMA.empty_table()).schema == SCHEMA


def test_the_schema_tells_the_types_of_lists() -> None:
    batch = as_batch("op", {"x": [1, None], "s": [None, None]}, pa.schema([("x", pa.float64()), ("s", pa.string())]))
    assert batch.schema.types == [pa.float64(), pa.string()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "operator 'op': its function returned int; return a RecordBatch"),
        ({"n": [1], "s": ["a", "b"]}, "operator 'op': its function returned columns that make no rows"),
        ({"n": [1]}, r"operator 'op' put out no single column 's' \(string\), only \['n'\]"),
        ({"n": [1], "s": ["a"], "m": [1]}, "operator 'op' put out a column 'm' that is not among those declared"),
        ({"n": ["1"], "s": ["a"]}, "operator 'op', column 'n': expected int64, found string; cast it"),
        ({"n": [1.0], "s": ["a"]}, "operator 'op', column 'n': expected int64, found double; cast it"),
        ({"n": pa.array([2**63], pa.uint64()), "s": ["a"]}, "column 'n': expected int64, found uint64 .*not in range"),
    ],
)
def test_what_is_not_as_declared_is_refused_by_name(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        conform("op", as_batch("op", given), SCHEMA)


def test_nulls_are_refused_where_none_are_declared() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert conform("op", pa.record_batch({"n": [1]}), schema).schema == schema
    with pytest.raises(UserError, match="operator 'op' put out 1 nulls in column 'n'"):
        conform("op", pa.record_batch({"n": [1, None]}), schema)


def test_a_single_batch_is_not_copied() -> None:
    batch = pa.record_batch({"n": [1], "s": ["a"]})
    assert concat([batch], SCHEMA) is batch
    assert concat([], SCHEMA).schema == SCHEMA
    assert concat([batch, batch], SCHEMA)["n"].to_pylist() == [1, 1]


MIXED = pa.schema(
    [("x", pa.float64()), ("t", pa.int64()), ("l", pa.list_(pa.int64())), ("d", pa.dictionary(pa.int8(), pa.string()))]
)
mixed_rows = st.fixed_dictionaries(
    {
        "x": st.sampled_from([None, 0.0, -0.0, math.inf, -1.5, -2.5, math.nan]),
        "t": st.integers(0, 2),
        "l": st.sampled_from([None, [], [1], [1, 2]]),
        "d": st.sampled_from([None, "a", "b"]),
    }
)


@given(st.lists(mixed_rows, max_size=12).flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(rows))))
def test_a_sequence_is_by_time_and_does_not_depend_on_the_order_of_arrival(orders: Any) -> None:
    one, other = (in_sequence(pa.RecordBatch.from_pylist(list(rows), MIXED), "t") for rows in orders)
    assert repr(one.to_pylist()) == repr(other.to_pylist())  # tells -0.0 from 0.0
    assert one["t"].to_pylist() == sorted(one["t"].to_pylist())


def test_floats_are_in_sequence_by_value() -> None:
    batch = pa.record_batch({"x": [3.5, None, -1.0, math.nan, -2.0, 0.0, -0.0]})
    assert repr(in_sequence(batch, None)["x"].to_pylist()) == "[-2.0, -1.0, -0.0, 0.0, 3.5, nan, None]"
