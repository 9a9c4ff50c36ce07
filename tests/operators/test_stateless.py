"""Stateless operators: what each makes of rows, how columns are found out, and what is said of mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from primitives.errors import UserError
from primitives.graph import Kind
from primitives.slots import SlotSet
from seep.operators.definition import Definition, Input
from seep.operators.errors import UserCodeFailed
from seep.operators.stateless import EachRow, Filter, FlatMap, Map, Project
from tests.operators.instances import NAME, Instances, Row

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
STREAM = Input(SCHEMA)
N = pa.schema([("n", pa.int64())])
ROWS: list[Row] = [{"k": "a", "n": 1}, {"k": "b", "n": None}, {"k": None, "n": 3}]


def results(definition: Definition, rows: list[Row] = ROWS, **options: Any) -> list[Row]:
    """In the order of the first column, as rows go in in any order."""
    return sorted(Instances(definition, [STREAM], **options).epoch(rows), key=repr)


def per_row(function: Any, schema: pa.Schema = N) -> EachRow:
    return EachRow(function, schema)


def ratio(batch: pa.RecordBatch) -> dict[str, list[float]]:
    return {"ratio": [6 / n for n in batch["n"].to_pylist()]}


def test_a_map_makes_a_row_of_each() -> None:
    double = Map(lambda batch: {"k": batch["k"], "twice": pc.multiply(batch["n"], 2)})
    assert double.output(NAME, [STREAM]) == pa.schema([("k", pa.string()), ("twice", pa.int64())])
    assert results(double) == [{"k": "a", "twice": 2}, {"k": "b", "twice": None}, {"k": None, "twice": 6}]


def test_a_flat_map_makes_any_number_of_rows() -> None:
    some = FlatMap(lambda batch: pa.concat_tables([pa.table(batch)] * 2).filter(pc.field("n") > 1))
    assert results(some) == [ROWS[2], ROWS[2]]


def test_a_map_must_keep_the_number_of_rows() -> None:
    with pytest.raises(UserError, match=r"'operator' is a map, and its function made 0 rows from \d; .*flat_map"):
        Instances(Map(lambda batch: batch.slice(0, 0)), [STREAM]).epoch(pa.RecordBatch.from_pylist(ROWS, SCHEMA))


def test_columns_that_do_not_show_in_an_empty_batch_are_asked_for() -> None:
    with pytest.raises(UserError, match=r"operator 'mine': its function fails for an empty batch.*pass schema="):
        Map(lambda batch: {"n": [batch["n"].to_pylist()[0]]}).output("mine", [STREAM])
    with pytest.raises(UserError, match=r"operator 'mine': the type of its column 'n' is not known from.*pass schema="):
        Map(lambda batch: {"n": batch["n"].to_pylist()}).output("mine", [STREAM])
    assert results(Map(lambda batch: {"n": batch["n"].to_pylist()}, N)) == [{"n": 1}, {"n": 3}, {"n": None}]


def test_a_result_of_other_types_than_declared_is_refused() -> None:
    with pytest.raises(UserError, match="operator 'operator', column 'n': expected int64, found string"):
        results(Map(lambda batch: {"n": pc.cast(batch["n"], pa.string())}, N))


def test_functions_are_not_called_without_rows() -> None:
    assert results(Map(ratio, pa.schema([("ratio", pa.float64())])), []) == []


def test_rows_on_which_a_function_fails_stop_the_run_or_become_dead_letters() -> None:
    definition = Map(ratio, pa.schema([("ratio", pa.float64())]))
    rows: list[Row] = [{"k": "a", "n": 3}, {"k": "b", "n": 0}]
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as failure:
        results(definition, rows)
    assert failure.value.rows == [rows[1]]
    instances = Instances(definition, [STREAM], letters=True)
    assert instances.epoch(rows) == [{"ratio": 2.0}]
    assert [letter["row"] for letter in instances.letters] == ['{"k": "b", "n": 0}']
    assert instances.logics[0].counters["dead_letters"] == 1


# --- filters and projections ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "predicate",
    [
        pc.field("n") > 1,
        lambda batch: pc.greater(batch["n"], 1),
        lambda batch: [bool(n and n > 1) for n in batch["n"].to_pylist()],
        lambda batch: np.array(batch["n"].fill_null(0)) > 1,
        lambda batch: pa.chunked_array([pc.greater(batch["n"], 1)]),
    ],
)
def test_a_filter_keeps_the_rows_for_which_it_is_true(predicate: Any) -> None:
    assert results(Filter(predicate)) == [ROWS[2]]


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (pc.field("m") > 1, "operator 'big' uses column 'm', which its input lacks; it has .*'k', 'n'"),
        (pc.field("k") > 1, "operator 'big': .*k > 1.* cannot be computed: Function 'greater' has no kernel"),
        (pc.field("n") + 1, "operator 'big' filters by .*, which is int64; it must be true or false"),
    ],
)
def test_a_predicate_that_cannot_be_is_refused_before_the_run(predicate: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Filter(predicate).output("big", [STREAM])


@pytest.mark.parametrize("predicate", [lambda _: [True], lambda batch: batch["n"]])
def test_a_predicate_returns_a_boolean_for_each_row(predicate: Any) -> None:
    with pytest.raises(UserError, match=r"operator 'operator': its predicate returned .* return a boolean for each"):
        Instances(Filter(predicate), [STREAM]).epoch([ROWS[0]] * 3)


def test_a_projection_renames_and_computes() -> None:
    project = Project({"id": "k", "more": pc.field("n") + 1, "one": pc.scalar(1)})
    assert project.output(NAME, [STREAM]) == pa.schema([("id", pa.string()), ("more", pa.int64()), ("one", pa.int64())])
    assert results(project, ROWS[:2]) == [{"id": "a", "more": 2, "one": 1}, {"id": "b", "more": None, "one": 1}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "operator 'p' is a projection to no columns"),
        ({"m": "m"}, "operator 'p' uses column 'm', which its input lacks"),
        ({"m": pc.field("m") + 1}, "operator 'p' uses column 'm', which its input lacks"),
    ],
)
def test_a_projection_of_what_is_not_there_is_refused(columns: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Project(columns).output("p", [STREAM])


# --- row by row -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda row: {"n": row["n"]}, [1, 3, None]),
        (lambda row: None if row["n"] is None else {"n": -row["n"]}, [-1, -3]),
        (lambda row: [{"n": 7}] * (row["n"] or 0), [7, 7, 7, 7]),
        (lambda row: ({} for _ in range(row["n"] or 0)), [None, None, None, None]),
    ],
)
def test_each_row_makes_a_row_or_none_or_several(function: Any, expected: list[Any]) -> None:
    assert [row["n"] for row in results(per_row(function))] == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"n": "many"}, "ArrowInvalid|ArrowTypeError"),
        ({"m": 1}, r"returned columns \['m'\], which its schema does not declare"),
        (7, "TypeError"),
    ],
)
def test_a_row_that_makes_what_was_not_declared_is_at_fault(value: Any, message: str) -> None:
    definition = per_row(lambda row: value if row["k"] == "b" else {"n": 1})
    with pytest.raises(UserCodeFailed, match=message) as failure:
        results(definition)
    assert failure.value.rows == [ROWS[1]]
    instances = Instances(definition, [STREAM], letters=True)
    assert instances.epoch(ROWS) == [{"n": 1}, {"n": 1}]
    assert len(instances.letters) == 1


def test_a_failing_row_is_shown_as_it_came_in() -> None:
    def fail(row: Row) -> Row:
        del row["n"]
        raise ValueError("no")

    with pytest.raises(UserCodeFailed) as failure:
        results(per_row(fail), ROWS[:1])
    assert failure.value.rows == ROWS[:1]


def test_operators_that_keep_nothing_are_stateless() -> None:
    for definition in (Map(lambda batch: batch), Filter(pc.scalar(True)), Project({"n": "n"}), per_row(dict)):
        assert definition.kind is Kind.STATELESS
        assert Instances(definition, [STREAM]).logics[0].state.snapshot(SlotSet.full(2)) == ()
