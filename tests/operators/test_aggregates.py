"""Aggregates without windows: as plain Python has them, as they change and at the end, whoever owns the slots."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.graph import Kind
from primitives.slots import SlotSet
from seep.operators.aggregation import aggregates as agg
from seep.operators.aggregation.aggregates import Agg, Aggregate
from seep.operators.definition import Input
from tests.operators.instances import NAME, Instances, Row, bag

SCHEMA = pa.schema([("k", pa.string()), ("id", pa.int8()), ("t", pa.int64()), ("x", pa.int32())])
STREAM = Input(SCHEMA, ("k", "id"), "t")
ALL = {
    "n": agg.count(),
    "total": agg.sum("x"),
    "least": agg.min("x"),
    "most": agg.max("t"),
    "mean": agg.mean("x"),
    "first": agg.first("k"),
    "last": agg.last("x"),
}


def aggregated(key: tuple[Any, Any], rows: list[Row]) -> Row:
    x = [row["x"] for row in rows if row["x"] is not None]
    return {
        "k": key[0],
        "id": key[1],
        "n": len(rows),
        "total": sum(x) if x else None,
        "least": min(x, default=None),
        "most": max(row["t"] for row in rows),
        "mean": sum(x) / len(x) if x else None,
        "first": key[0],
        "last": max(((row["t"], row["x"]) for row in rows if row["x"] is not None), default=(0, None))[1],
    }


rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "long enough not to fit", None]),
        "id": st.sampled_from([1, 2, None]),
        "t": st.integers(-3, 3),
        "x": st.one_of(st.none(), st.integers(-9, 9)),
    }
)
moves = st.tuples(st.sets(st.integers(0, 3)).map(SlotSet), st.integers(0, 1))


@given(epochs=st.lists(st.tuples(st.lists(rows, max_size=8), moves), max_size=5), seed=st.integers(0, 99))
def test_keys_come_out_as_they_change_and_all_at_the_end(epochs: Any, seed: int) -> None:
    changing, ending = (
        Instances(Aggregate(ALL, emit=emit), [STREAM], count=2, seed=seed) for emit in ("changes", "end")
    )
    seen: dict[tuple[Any, Any], list[Row]] = {}
    for came, (slots, target) in epochs:
        for one in came:
            seen.setdefault((one["k"], one["id"]), []).append(one)
        changed = {(one["k"], one["id"]) for one in came}
        assert bag(changing.epoch(came)) == bag(aggregated(key, seen[key]) for key in changed)
        assert ending.epoch(came) == []
        for instances in (changing, ending):
            instances.move(slots, target)
            instances.recover(target)
    assert bag(ending.end([])) == bag(aggregated(key, rows) for key, rows in seen.items())
    assert ending.end([]) == changing.end([]) == []


def test_rows_of_the_last_epoch_count_at_the_end() -> None:
    instances = Instances(Aggregate({"n": agg.count()}, emit="end"), [STREAM])
    assert [row["n"] for row in instances.end([{"k": "a", "id": 1, "t": 0, "x": 0}] * 3)] == [3]


def one_result(aggregate: Agg, kind: pa.DataType, values: list[Any], seed: int = 0) -> Any:
    """What an aggregate makes of values of a type; and its type."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", kind)])
    instances = Instances(Aggregate({"v": aggregate}), [Input(schema, ("k",), "t")], seed=seed)
    found = instances.epoch([{"k": 1, "t": at, "v": value} for at, value in enumerate(values)])[0]["v"]
    return found, instances.setting.output.field("v").type


@pytest.mark.parametrize(
    ("aggregate", "kind", "values", "expected", "expected_kind"),
    [
        (agg.sum("v"), pa.int8(), [127, 127], 254, pa.int64()),
        (agg.sum("v"), pa.uint64(), [2**63, 2**62], 2**63 + 2**62, pa.uint64()),
        (agg.sum("v"), pa.float32(), [0.5, 0.25], 0.75, pa.float64()),
        (agg.sum("v"), pa.duration("us"), [timedelta(1), timedelta(2)], timedelta(3), pa.duration("us")),
        (agg.sum("v"), pa.int64(), [None, None], None, pa.int64()),
        (agg.count("v"), pa.string(), [None, "a"], 1, pa.int64()),
        (agg.count("v"), pa.list_(pa.int8()), [None, []], 1, pa.int64()),
        (agg.mean("v"), pa.int64(), [1, 2], 1.5, pa.float64()),
        (agg.mean("v"), pa.int64(), [None], None, pa.float64()),
        (agg.min("v"), pa.uint8(), [200, 3], 3, pa.uint8()),
        (agg.max("v"), pa.bool_(), [False, True], True, pa.bool_()),
        (
            agg.max("v"),
            pa.timestamp("ms", "UTC"),
            [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 2)],
            datetime(2026, 1, 3, tzinfo=UTC),
            pa.timestamp("ms", "UTC"),
        ),
        (agg.first("v"), pa.string(), [None, "b", "a"], "b", pa.string()),
        (agg.last("v"), pa.large_binary(), [b"a", b"c", b"b"], b"b", pa.large_binary()),
        (agg.last("v"), pa.dictionary(pa.int8(), pa.string()), ["a", "c", "b", None], "b", pa.string()),
    ],
)
def test_types_of_aggregates(
    aggregate: Agg, kind: pa.DataType, values: list[Any], expected: Any, expected_kind: pa.DataType
) -> None:
    for seed in range(5):
        assert one_result(aggregate, kind, values, seed) == (expected, expected_kind)


def test_sums_of_floats_do_not_depend_on_the_order_in_which_they_come() -> None:
    random_floats = [random.Random(1).uniform(-1e9, 1e9) for _ in range(200)]
    assert len({one_result(agg.sum("v"), pa.float64(), random_floats, seed)[0] for seed in range(10)}) == 1


def test_aggregates_of_one_column_share_what_is_kept() -> None:
    asked = {"mean": agg.mean("x"), "total": agg.sum("x"), "known": agg.count("x"), "again": agg.sum("x")}
    instances = Instances(Aggregate(asked), [STREAM])
    (chunk,) = instances.logics[0].state.snapshot(SlotSet.full(2))
    assert chunk.rows.schema.names == ["k", "id", "sum(x)", "count(x)"]


def test_state_is_only_that_of_keys() -> None:
    assert Aggregate({"n": agg.count()}).kind is Kind.STATEFUL
    with pytest.raises(UserError, match="operator 'c' keeps unkeyed state; call key_by on its input to name the key"):
        Aggregate({"n": agg.count()}).output("c", [Input(SCHEMA)])


@pytest.mark.parametrize(
    ("aggregates", "stream", "message"),
    [
        ({}, STREAM, "operator 'c' has no aggregates; give some, such as n=count()"),
        ({"n": agg.sum("y")}, STREAM, r"operator 'c' uses column 'y', which its input lacks; it has .*'x'"),
        (
            {"n": agg.sum("k")},
            STREAM,
            r"operator 'c': sum\(k\) needs integers, floats or decimal128, .* is string",
        ),
        (
            {"n": agg.mean("k")},
            STREAM,
            r"operator 'c': mean\(k\) needs integers, floats or decimal128, .* is string",
        ),
        (
            {"n": agg.max("k")},
            STREAM,
            r"operator 'c': max\(k\) needs a number, .*, date or time; .* is string",
        ),
        ({"n": agg.last("x")}, STREAM._replace(time=None), r"operator 'c': last\(x\) goes by event time"),
        ({"n": Agg("median", "x")}, STREAM, r"operator 'c' knows no aggregate median\(x\); use count, sum"),
        ({"k": agg.count()}, STREAM, "operator 'c' would put out two columns 'k', of .*; give the aggregate"),
        ({"n": Agg("sum")}, STREAM, r"operator 'c' knows no aggregate sum\(\); use count, sum"),
        (
            {"n": agg.count()},
            Input(pa.schema([("k", pa.list_(pa.int8()))]), ("k",)),
            "operator 'c': column 'k' of state 'totals' has type list",
        ),
    ],
)
def test_aggregates_that_cannot_be_are_refused_before_the_run(aggregates: Any, stream: Input, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Aggregate(aggregates).output("c", [stream])


def test_what_is_put_out_is_either_changes_or_the_end() -> None:
    with pytest.raises(UserError, match="emit='never' is neither 'changes' nor 'end'"):
        Aggregate({"n": agg.count()}, emit="never")  # type: ignore[arg-type]


def test_the_output_has_the_key_columns_first() -> None:
    schema = Aggregate(ALL).output(NAME, [STREAM])
    assert schema.names == ["k", "id", *ALL]
