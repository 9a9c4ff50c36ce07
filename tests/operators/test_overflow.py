"""Sums beyond their type: an error that names the key, null, wrapped or widened; decimals; and NaN."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.operators.aggregation import aggregates as agg
from seep.operators.aggregation.agg import Agg, OnOverflow
from seep.operators.aggregation.aggregates import Aggregate
from seep.operators.aggregation.highest import HighestKeys, HighestRows
from seep.operators.definition import Definition, Input
from seep.operators.windows import Session, Sliding, Tumbling
from tests.operators.instances import NAME, Instances, Row, bag

MOST = 2**63 - 1


def stream(kind: pa.DataType | None = None, key: pa.DataType | None = None) -> Input:
    return Input(pa.schema([("k", key or pa.string()), ("t", pa.int64()), ("x", kind or pa.int64())]), ("k",), "t")


def row(x: Any, t: int = 0, k: Any = "a") -> Row:
    return {"k": k, "t": t, "x": x}


# --- wherever sums are kept -------------------------------------------------------------------------------------------

TOTAL = {"total": agg.sum("x")}
PLACES: dict[str, Definition] = {
    "changes": Aggregate(TOTAL),
    "end": Aggregate(TOTAL, emit="end"),
    "on disk": Aggregate(TOTAL, on_disk=True),
    "tumbling windows": Aggregate(TOTAL, Tumbling(10)),
    "sliding windows": Aggregate(TOTAL, Sliding(10, 5)),
    "sessions": Aggregate(TOTAL, Session(5)),
    "the highest keys": HighestKeys("total", agg.sum("x"), Tumbling(10)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_sum_beyond_its_type_is_an_error_that_names_operator_column_and_key(place: str) -> None:
    instances = Instances(PLACES[place], [stream()])
    instances.epoch([row(MOST, 1), row(5, 1, "b"), row(None, 1)])
    with pytest.raises(UserError, match=rf"'{NAME}': the sum of column 'x' for key {{'k': 'a'.*}} is beyond int64"):
        instances.epoch([row(1, 1), row(7, 1, "b")])


@pytest.mark.parametrize("place", PLACES)
def test_numbers_that_pass_the_limit_on_the_way_are_no_error(place: str) -> None:
    for seed in range(4):
        instances = Instances(PLACES[place], [stream()], seed=seed)
        came = instances.epoch([row(MOST, 1), row(MOST, 1), row(-MOST, 1), row(-(2**63), 1), row(2, 1)])
        ended = [*came, *instances.end([])]
        assert {found["total"] for found in ended} == {1}


@pytest.mark.parametrize(
    "definition",
    [Aggregate(TOTAL, Sliding(10, 5)), HighestKeys("total", agg.sum("x"), Sliding(10, 5))],
    ids=["aggregate", "highest"],
)
def test_panes_that_fit_may_be_beyond_the_type_together(definition: Definition) -> None:
    instances = Instances(definition, [stream()])
    instances.epoch([row(MOST, 1)], watermark=0)
    instances.epoch([row(1, 7), row(-5, 17)], watermark=3)
    with pytest.raises(UserError, match=r"sum.*x.* for key {'k': 'a'.*} is beyond int64"):
        instances.epoch([], watermark=9)


@pytest.mark.parametrize(
    ("kind", "values", "total"),
    [
        (pa.int32(), [2**31 - 1, 1], pa.int64()),
        (pa.uint64(), [2**64 - 1, 0], pa.uint64()),
        (pa.decimal128(28, 2), [Decimal("1E+25")] * 9, pa.decimal128(38, 2)),
    ],
)
def test_the_type_of_a_sum_has_room_for_more_than_one_value(kind: Any, values: list[Any], total: Any) -> None:
    instances = Instances(Aggregate(TOTAL), [stream(kind)])
    assert instances.epoch([row(value) for value in values]) == [{"k": "a", "total": sum(values)}]
    assert instances.setting.output.field("total").type == total


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.uint64(), 2**64 - 1), (pa.decimal128(38, 0), Decimal(9 * 10**37)), (pa.duration("us"), timedelta(10**8))],
)
def test_sums_of_every_type_are_checked(kind: pa.DataType, value: Any) -> None:
    instances = Instances(Aggregate(TOTAL), [stream(kind)])
    instances.epoch([row(value)])
    with pytest.raises(UserError, match=r"the sum of column 'x' for key {'k': 'a'} is beyond"):
        instances.epoch([row(value)])


# --- what else may become of them -------------------------------------------------------------------------------------

numbers = st.sampled_from([MOST, -(2**63), 2**62, 1, -1, None])
came = st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 19), numbers), max_size=5), max_size=4)


def asked(overflow: OnOverflow) -> dict[str, Agg]:
    return {"total": agg.sum("x", overflow=overflow)}


@settings(max_examples=25)
@given(came, st.sampled_from([None, Tumbling(10, lateness=99), Sliding(10, 5, lateness=99), Session(4, lateness=99)]))
def test_widened_sums_are_exact(epochs: list[list[tuple[str, int, int | None]]], window: Any) -> None:
    instances = Instances(Aggregate(asked("widen"), window, emit="end"), [stream()], count=2)
    by_rows = Instances(Aggregate({"total": agg.sum("x")}, window, emit="end"), [stream(pa.decimal128(38))], count=2)
    for epoch in epochs:
        instances.epoch([row(x, t, k) for k, t, x in epoch])
        by_rows.epoch([row(x if x is None else Decimal(x), t, k) for k, t, x in epoch])
        instances.move(SlotSet([1, 2]), 0)
        instances.recover(0)
    assert bag(instances.end([])) == bag(by_rows.end([]))


@settings(max_examples=25)
@given(came)
def test_a_sum_that_was_beyond_its_type_is_null_from_then_on(epochs: list[list[tuple[str, int, int | None]]]) -> None:
    instances = Instances(Aggregate(asked("null")), [stream()], count=2)
    totals: dict[str, int | None] = {}
    beyond: set[str] = set()
    for at, epoch in enumerate(epochs):
        for k, _, x in epoch:
            totals[k] = (totals.get(k) or 0) + x if x is not None else totals.get(k)
        beyond |= {k for k, total in totals.items() if total is not None and not -(2**63) <= total <= MOST}
        found = {one["k"]: one["total"] for one in instances.epoch([row(x, t, k) for k, t, x in epoch])}
        assert found == {k: None if k in beyond else totals[k] for k, _, _ in epoch}
        instances.move(SlotSet([at % 4]), at % 2)
        instances.recover(at % 2)


@pytest.mark.parametrize("window", [Sliding(10, 5), Session(20)], ids=["panes", "sessions"])
def test_what_is_put_together_from_a_null_sum_is_null(window: Any) -> None:
    instances = Instances(Aggregate({**asked("null"), "n": agg.count()}, window), [stream()])
    instances.epoch([row(MOST, 1), row(MOST, 1)], watermark=0)
    instances.recover(0)
    instances.epoch([row(-MOST, 7), row(1, 8, "b")], watermark=0)
    totals = {(one["k"], one["n"]): one["total"] for one in instances.end([])}
    assert totals["a", 3] is None
    assert totals["b", 1] == 1


def test_sums_wrap_around_if_that_is_asked_for() -> None:
    instances = Instances(Aggregate(asked("wrap")), [stream()])
    assert instances.epoch([row(MOST), row(1)]) == [{"k": "a", "total": -(2**63)}]


@pytest.mark.parametrize("place", ["totals", "panes", "sessions"])
@pytest.mark.parametrize("overflow", ["null", "wrap", "widen"])
def test_a_sum_of_which_more_is_asked_goes_on_from_what_is_stored(place: str, overflow: OnOverflow) -> None:
    window = {"totals": None, "panes": Tumbling(100), "sessions": Session(100)}[place]
    before = Instances(Aggregate(TOTAL, window, emit="end"), [stream()])
    before.epoch([row(40), row(None, k="b")], watermark=0)
    after = Instances(Aggregate(asked(overflow), window, emit="end"), [stream()])
    logic: Any = after.logics[0]
    every = SlotSet.full(2)
    declared = tuple(logic.state.snapshot(SlotSet.empty()))
    logic.state.restore(logic.evolution.adapted(tuple(before.logics[0].state.snapshot(every)), declared, every))
    after.epoch([row(2)], watermark=0)
    assert {one["k"]: one["total"] for one in after.end([])} == {"a": 42, "b": None}


@pytest.mark.parametrize(
    ("kind", "overflow", "message"),
    [
        (pa.float64(), "null", "leave it out: floats become infinite"),
        (pa.decimal128(5, 2), "wrap", "use error, null or widen"),
        (pa.duration("s"), "widen", "use error, null or wrap"),
    ],
)
def test_what_does_not_fit_a_type_is_refused(kind: pa.DataType, overflow: OnOverflow, message: str) -> None:
    with pytest.raises(UserError, match=rf"operator 'c': sum\(x\) has overflow='{overflow}', and .* {message}"):
        Aggregate(asked(overflow)).output("c", [stream(kind)])


def test_a_word_that_says_nothing_of_overflow_is_refused() -> None:
    with pytest.raises(UserError, match=r"overflow='saturate' of sum\(x\) is none of error, null, wrap, widen"):
        agg.sum("x", overflow="saturate")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"the highest sum\(x\), which cannot be beyond int64"):
        HighestKeys("total", agg.sum("x", overflow="null"), Tumbling(10)).output(NAME, [stream()])


# --- decimals ---------------------------------------------------------------------------------------------------------

PRICES = {"sum": agg.sum("x"), "min": agg.min("x"), "max": agg.max("x"), "mean": agg.mean("x"), "last": agg.last("x")}


@pytest.mark.parametrize("window", [None, Tumbling(100), Sliding(100, 50), Session(100)])
@pytest.mark.parametrize("on_disk", [False, True])
def test_decimals_are_keys_and_aggregates(window: Any, on_disk: bool) -> None:
    price = pa.decimal128(7, 2)
    if on_disk and window is not None:
        pytest.skip("windows are kept in memory")
    instances = Instances(Aggregate(PRICES, window, "end", on_disk), [stream(price, pa.decimal128(5, 1))], count=2)
    instances.epoch([row(Decimal("1.05"), 1, Decimal("1.5")), row(Decimal("-2.00"), 2, Decimal("1.5"))])
    instances.recover(0)
    instances.recover(1)
    instances.epoch([row(Decimal("0.03"), 0, Decimal("1.5")), row(None, 0, Decimal(2)), row(None, 0, None)])
    found = {one["k"]: [one[name] for name in PRICES] for one in instances.end([])}
    results = ["-0.92", "-2.00", "1.05", "-0.306667", "-2.00"]
    assert found == {Decimal("1.5"): list(map(Decimal, results)), Decimal(2): [None] * 5, None: [None] * 5}
    kinds = [instances.setting.output.field(name).type for name in PRICES]
    assert kinds == [pa.decimal128(17, 2), price, price, pa.decimal128(11, 6), price]


@given(st.lists(st.integers(1 - 10**38, 10**38 - 1), min_size=1, max_size=5), st.randoms())
@settings(max_examples=50)
def test_the_mean_of_integers_is_never_beyond_its_type(values: list[int], random: Any) -> None:
    values = [value % 2**64 - 2**63 for value in values]
    random.shuffle(values)
    (found,) = Instances(Aggregate({"m": agg.mean("x")}), [stream()]).epoch([row(value) for value in values])
    assert math.isclose(found["m"], sum(values) / len(values), rel_tol=1e-15)


# --- NaN --------------------------------------------------------------------------------------------------------------


def test_nan_is_greater_than_any_other_number() -> None:
    asked = {"min": agg.min("x"), "max": agg.max("x"), "mean": agg.mean("x"), "last": agg.last("x")}
    for window in (None, Tumbling(10), Sliding(10, 5), Session(10)):
        instances = Instances(Aggregate(asked, window, "end"), [stream(pa.float64())])
        instances.epoch([row(math.nan), row(-math.inf), row(math.nan, k="b")])
        instances.recover(0)
        instances.epoch([row(None), row(2.0), row(-0.0, k="c"), row(0.0, k="c")])
        found = {one["k"]: one for one in instances.end([])}
        assert found["a"]["min"] == -math.inf
        assert all(math.isnan(found["a"][name]) for name in ("max", "mean", "last"))
        assert all(math.isnan(found["b"][name]) for name in asked)
        assert [str(found["c"][name]) for name in ("min", "max")] == ["0.0", "0.0"]


def test_the_highest_rows_are_those_with_nan_if_there_are_any() -> None:
    instances = Instances(HighestRows("x", Tumbling(10)), [stream(pa.float64())])
    came = [row(math.inf), row(math.nan), row(1.0), row(math.nan, 3), row(-1.0, 12), row(None, 13), row(-2.0, 14)]
    assert instances.epoch(came) == []
    found = instances.end([])
    assert [str(one["x"]) for one in sorted(found, key=lambda one: one["t"])] == ["nan", "nan", "-1.0"]
