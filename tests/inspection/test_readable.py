"""Readable values: what Python objects look like to other programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.inspection import packed, readable, unpacked
from seep.rows.readable import plain, plain_rows

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(json_values))
def test_what_json_has_is_shown_as_it_is_and_packed_without_loss(values: list[Any]) -> None:
    column = packed(values)
    assert unpacked(column) == values
    shown = readable(pa.record_batch({"value": column}))["value"].to_pylist()
    assert [None if text is None else json.loads(text) for text in shown] == values


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1, "a"), [1, "a"]),
        ({"b", "a"}, ["a", "b"]),
        ({2, 10, 1.5}, [1.5, 2, 10]),
        ({(2,): b"\xff"}, [[[2], "0xff"]]),
        (datetime(2026, 1, 31, 10, tzinfo=UTC), "2026-01-31T10:00:00+00:00"),
        (timedelta(hours=1), "1:00:00"),
        (Decimal("1.10"), "1.10"),
        (float("-inf"), "-inf"),
        (2**70, 2**70),
        (np.arange(3), [0, 1, 2]),
        (np.float32(0.5), 0.5),
        (np.longdouble(2), "2.0"),
        (np.complex128(1j), "1j"),
    ],
)
def test_other_objects_have_a_form_that_json_has(value: object, shown: object) -> None:
    assert plain(value) == shown
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize("data", [b"\xc1", b"\x92\x01", b"\xd4\x63\x00", b"\x01\x02", b"\xa1\xff"])
def test_bytes_that_are_no_object_are_shown_as_bytes(data: bytes) -> None:
    (row,) = plain_rows(pa.record_batch({"value": pa.array([data], pa.large_binary())}))
    assert row["value"] == f"0x{data.hex()}"


@given(st.binary())
def test_no_bytes_can_do_more_than_look_odd(data: bytes) -> None:
    (text,) = readable(pa.record_batch({"value": pa.array([data], pa.large_binary())}))["value"].to_pylist()
    json.loads(text)


def test_what_is_nested_very_deeply_is_shown_as_bytes() -> None:
    deep = b"\x91" * 5000 + b"\x01"
    (row,) = plain_rows(pa.record_batch({"value": pa.array([deep], pa.large_binary())}))
    assert row["value"] == f"0x{deep.hex()}"


def test_only_columns_of_objects_are_turned_into_text() -> None:
    batch = pa.record_batch(
        {"value": pa.array([b"\x01"], pa.binary()), "other": pa.array([b"\x01"], pa.large_binary())}
    )
    assert readable(batch) is batch
