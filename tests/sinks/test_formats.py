"""Formats: what is written is read as it was, by `read` and by sources; what cannot be held is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.graph import InstanceId
from seep import sinks, sources
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.sinks.formats import CSV, FORMATS, JSON_LINES, PARQUET, FileFormat
from tests.sources.stage import EDGE, Driver

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INSTANTS = st.integers(-(2**50), 2**50)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): FLOATS,
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    pa.large_string(): st.text(st.sampled_from('"\\\n\r\t\x01,é{}'), max_size=8),
    pa.timestamp("us"): INSTANTS,
    pa.timestamp("ns", "Europe/Paris"): INSTANTS,
    pa.timestamp("s", "UTC"): st.integers(-(2**31), 2**31),
    pa.date32(): st.integers(-100_000, 100_000),
    pa.decimal128(10, 2): st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2)),
}
SCHEMA = pa.schema([(f'column "{i}"', kind) for i, kind in enumerate(VALUES)])
ROWS = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), max_size=8)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [_array([row[i] for row in rows], kind) for i, kind in enumerate(VALUES)]
    return pa.table(columns, schema=SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.array(values, kind)


def written(form: FileFormat, table: pa.Table, home: Path) -> Path:
    path = home / f"part.{form.suffix}"
    with open(path, "wb") as stream:
        form.write(table, stream)
    return path


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
@hypothesis_settings(max_examples=50)
@given(ROWS)
def test_rows_are_read_as_they_were_written(
    form: FileFormat, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    table = table_of(rows)
    assert form.read(written(form, table, tmp_path_factory.mktemp("form")), SCHEMA).equals(table)


@hypothesis_settings(max_examples=25)
@given(st.sampled_from([CSV, JSON_LINES]), ROWS)
def test_sources_read_what_sinks_write(
    tmp_path_factory: pytest.TempPathFactory, form: FileFormat, rows: list[tuple[Any, ...]]
) -> None:
    table = table_of(rows)
    path = written(form, table, tmp_path_factory.mktemp("form"))
    make = sources.csv if form is CSV else sources.json_lines
    found = [reading.outputs[EDGE] for reading in Driver(make(path, schema=SCHEMA)).read_all() if reading.outputs]
    assert pa.Table.from_batches(found, SCHEMA).equals(table)


@hypothesis_settings(max_examples=50)
@given(ROWS)
def test_other_programs_can_read_the_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    path = written(JSON_LINES, table_of(rows), tmp_path_factory.mktemp("form"))
    found = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    names = SCHEMA.names
    assert [(each[names[1]], each[names[3]], each[names[6]], each[names[7]]) for each in found] == [
        (row[1], row[3], row[6], row[7]) for row in rows
    ]


def test_what_json_has_no_number_for_is_null(tmp_path: Path) -> None:
    table = pa.table({"x": [1.5, float("nan"), float("-inf")]})
    path = written(JSON_LINES, table, tmp_path)
    assert JSON_LINES.read(path, table.schema)["x"].to_pylist() == [1.5, None, None]


def test_a_part_of_a_batch_is_written_as_such(tmp_path: Path) -> None:
    table = pa.Table.from_batches([pa.record_batch({"word": ["a", None, "c", "d"], "n": [1.0, 2.0, None, 4.0]})[1:3]])
    for form in FORMATS.values():
        assert form.read(written(form, table, tmp_path), table.schema).equals(table)


def test_a_null_in_a_single_column_stays_a_row_in_csv(tmp_path: Path) -> None:
    table = pa.table({"n": [None, 1, None]})
    assert CSV.read(written(CSV, table, tmp_path), table.schema).equals(table)


@pytest.mark.parametrize("form", [CSV, JSON_LINES], ids=["csv", "jsonl"])
@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.binary(),
        pa.duration("us"),
        pa.time64("us"),
        pa.float16(),
    ],
    ids=str,
)
def test_columns_that_text_cannot_hold_are_refused(form: FileFormat, kind: pa.DataType, tmp_path: Path) -> None:
    sink = sinks.csv(tmp_path) if form is CSV else sinks.json_lines(tmp_path)
    with pytest.raises(UserError, match=r"sink 'out': column 'x' of type .* cannot be written as .*Parquet"):
        sink.check("out", pa.schema([("n", pa.int64()), ("x", kind)]))


def test_parquet_holds_nested_columns_but_no_unions() -> None:
    PARQUET.check(pa.schema([("x", pa.list_(pa.struct([("a", pa.binary())])))]))
    with pytest.raises(UserError, match=r"column 'x' of type .* cannot be written as Parquet"):
        PARQUET.check(pa.schema([("x", pa.dense_union([pa.field("a", pa.int64())]))]))


def test_a_null_sink_counts_rows() -> None:
    store = sinks.discard().store("out", pa.schema([("n", pa.int64())]))
    sink = Incarnation(InstanceId("out", 0), 0)
    assert store.open(sink) == 0
    assert store.commit(sink, 1, [pa.record_batch({"n": [1, 2]})] * 2, MAX_WATERMARK) == 1
    assert store.counters == {"rows": 4}  # type: ignore[attr-defined]
