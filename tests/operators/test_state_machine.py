"""StateMachine and Reduce: rows of a key in order, a state that a failing row does not touch, wherever the key is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.operators.definition import Definition, Input
from seep.operators.errors import UserCodeFailed
from seep.operators.state_machine import Reduce, StateMachine
from tests.operators.instances import NAME, Instances, Row, bag

INPUT = Input(pa.schema([("k", pa.string()), ("t", pa.int64()), ("n", pa.int64())]), ("k",), "t")
OUT = pa.schema([("k", pa.string()), ("text", pa.string())])


def row(k: Any, t: int, n: int = 0) -> Row:
    return {"k": k, "t": t, "n": n}


def join_digits(state: list[int] | None, row: Row) -> tuple[list[int] | None, Row | None]:
    """Collects numbers, changing its state in place; 5 puts them out and forgets them, 7 raises halfway."""
    state = [] if state is None else state
    state.append(row["n"])
    if row["n"] == 7:
        raise ValueError("seven")
    if row["n"] == 5:
        return None, {"k": row["k"], "text": "".join(map(str, state))}
    return state, None


def by_hand(epochs: list[list[Row]]) -> tuple[list[Row], list[Row]]:
    """What comes out, and the rows that fail."""
    states: dict[Any, str] = defaultdict(str)
    out, failed = [], []
    for epoch in epochs:
        for one in sorted(epoch, key=lambda row: (row["t"], row["k"] is None, row["k"] or "", row["n"])):
            if one["n"] == 7:
                failed.append(one)
                continue
            states[one["k"]] += str(one["n"])
            if one["n"] == 5:
                out.append({"k": one["k"], "text": states.pop(one["k"])})
    return out, failed


rows = st.builds(row, st.sampled_from([*"abcd", None]), st.integers(0, 3), st.integers(3, 7))
moves = st.tuples(st.sets(st.integers(0, 3)).map(SlotSet), st.integers(0, 1))


@settings(max_examples=60)
@given(epochs=st.lists(st.tuples(st.lists(rows, max_size=12), moves), max_size=5), seed=st.integers(0, 9))
def test_a_fold_sees_the_rows_of_a_key_in_order_and_failing_ones_leave_no_trace(
    epochs: list[tuple[list[Row], tuple[SlotSet, int]]], seed: int
) -> None:
    instances = Instances(StateMachine(join_digits, OUT), [INPUT], count=2, letters=True, seed=seed)
    out = []
    for epoch, move in epochs:
        out += instances.epoch(epoch)
        instances.move(*move)
    expected, failed = by_hand([epoch for epoch, _ in epochs])
    assert bag(out) == bag(expected)
    assert len(instances.letters) == len(failed)
    assert {letter["error"] for letter in instances.letters} <= {"ValueError: seven"}


@settings(max_examples=60)
@given(epochs=st.lists(st.tuples(st.lists(rows, max_size=12), moves), max_size=5), seed=st.integers(0, 9))
@pytest.mark.parametrize("emit", ["changes", "end"])
def test_reduce_combines_the_rows_of_a_key(
    emit: Any, epochs: list[tuple[list[Row], tuple[SlotSet, int]]], seed: int
) -> None:
    def later_sum(a: Row, b: Row) -> Row:
        return {"t": max(a["t"], b["t"]), "n": a["n"] + b["n"]}

    instances = Instances(Reduce(later_sum, emit), [INPUT], count=2, seed=seed)
    values: dict[Any, Row] = {}
    for epoch, move in epochs:
        for one in epoch:
            values[one["k"]] = {**later_sum(values[one["k"]], one), "k": one["k"]} if one["k"] in values else one
        changed = [values[k] for k in {one["k"] for one in epoch}]
        assert bag(instances.epoch(epoch)) == bag(changed if emit == "changes" else [])
        instances.move(*move)
    assert bag(instances.end([])) == bag(values.values() if emit == "end" else [])


# --- what a fold may return -------------------------------------------------------------------------------------------


def run(fold: Callable[..., Any], *rows: Row, **options: Any) -> list[Row]:
    return Instances(StateMachine(fold, OUT, **options), [INPUT]).epoch(rows)


def test_a_fold_puts_out_none_one_or_several_rows() -> None:
    def repeat(_: Any, row: Row) -> tuple[None, Iterator[Row]]:
        return None, ({"k": row["k"], "text": str(at)} for at in range(row["n"]))

    assert [out["text"] for out in run(repeat, row("a", 1, 2), row("b", 1, 0))] == ["0", "1"]
    assert run(lambda state, _: (state, None), row("a", 1)) == []
    assert run(lambda state, row: (state, {"k": row["k"]}), row("a", 1)) == [{"k": "a", "text": None}]


def test_a_key_begins_with_the_initial_state_or_what_a_factory_makes() -> None:
    def count(state: list[int], row: Row) -> tuple[list[int], Row]:
        state.append(row["n"])
        return state, {"k": row["k"], "text": str(state)}

    for initial in ([9], lambda: [9]):
        out = run(count, row("a", 1, 1), row("b", 1, 2), row("a", 2, 3), initial=initial)
        assert bag(out) == bag(
            {"k": k, "text": text} for k, text in [("a", "[9, 1]"), ("b", "[9, 2]"), ("a", "[9, 1, 3]")]
        )


def test_a_declared_type_of_state_is_what_comes_back_after_a_move() -> None:
    def last(state: datetime | None, row: Row) -> tuple[datetime, Row]:
        return datetime(2026, 1, row["n"]), {"k": row["k"], "text": str(state)}

    instances = Instances(StateMachine(last, OUT, key_state_type=pa.timestamp("s")), [INPUT], count=2)
    instances.epoch([row("a", 1, 3)])
    for target in (0, 1):
        instances.move(SlotSet.full(2), target)
    assert instances.epoch([row("a", 1, 4)]) == [{"k": "a", "text": "2026-01-03 00:00:00"}]


def test_nan_is_one_key_and_a_key_may_be_called_value() -> None:
    def count(state: int | None, _: Row) -> tuple[int, Row]:
        return (state or 0) + 1, {"text": str((state or 0) + 1)}

    given = Input(pa.schema([("value", pa.float64()), ("n", pa.int64())]), ("value", "n"))
    instances = Instances(StateMachine(count, OUT), [given])
    for expected in ("1", "2"):
        assert [out["text"] for out in instances.epoch([{"value": float("nan"), "n": 1}])] == [expected]


def test_without_event_time_rows_come_in_order_of_their_columns() -> None:
    instances = Instances(Reduce(lambda a, b: {**a, "n": a["n"] * 10 + b["n"]}), [INPUT._replace(time=None)])
    assert instances.epoch([row("a", 1, 3), row("a", 2, 1), row("a", 1, 2)]) == [row("a", 1, 231)]


# --- failures ---------------------------------------------------------------------------------------------------------

MISFITS: list[tuple[Callable[..., Any], str]] = [
    (lambda state, row: (state, {"k": row["k"], "text": 5 if row["n"] == 7 else "five"}), "ArrowTypeError"),
    (lambda state, row: (state, {"other": 1} if row["n"] == 7 else None), "returned columns .'other'."),
    (lambda state, row: None if row["n"] == 7 else (state, None), "fold returned NoneType; return a pair"),
    (lambda state, row: (state, 1 // (row["n"] - 7) and None), "ZeroDivisionError"),
]


@pytest.mark.parametrize(("fold", "cause"), MISFITS)
def test_a_row_that_fails_stops_the_run_and_is_shown(fold: Callable[..., Any], cause: str) -> None:
    with pytest.raises(UserCodeFailed, match=cause) as failure:
        run(fold, row("a", 1, 3), row("b", 2, 7))
    assert (failure.value.operator, failure.value.epoch) == (NAME, 1)
    assert failure.value.rows == [row("b", 2, 7)]


@pytest.mark.parametrize(("fold", "cause"), MISFITS)
def test_with_dead_letters_a_row_that_fails_goes_there_and_the_others_go_on(
    fold: Callable[..., Any], cause: str
) -> None:
    instances = Instances(StateMachine(fold, OUT), [INPUT], letters=True)
    instances.epoch([row("a", 1, 3), row("b", 2, 7), row("c", 3, 3)])
    (letter,) = instances.letters
    assert (letter["operator"], letter["epoch"], letter["row"]) == (NAME, 1, '{"k": "b", "t": 2, "n": 7}')
    assert re.search(cause, letter["error"])
    assert instances.logics[0].counters["dead_letters"] == 1


def test_a_row_changed_in_place_by_the_fold_is_shown_as_it_came() -> None:
    def spoil(_: Any, row: Row) -> None:
        row.clear()
        raise KeyError("k")

    with pytest.raises(UserCodeFailed) as failure:
        run(spoil, row("a", 1))
    assert failure.value.rows == [row("a", 1)]


def test_reduce_must_return_the_columns_of_the_stream() -> None:
    instances = Instances(Reduce(lambda a, _: {"n": a["n"]}), [INPUT])
    with pytest.raises(UserCodeFailed, match=r"returned columns \['k', 'n'\] instead of"):
        instances.epoch([row("a", 1), row("a", 2)])


def test_reduce_says_so_if_a_value_does_not_fit() -> None:
    instances = Instances(Reduce(lambda a, _: {**a, "n": "many"}), [INPUT], letters=True)
    assert instances.epoch([row("a", 1), row("a", 2), row("a", 3)]) == [row("a", 1)]
    assert len(instances.letters) == 2


@pytest.mark.parametrize(
    ("definition", "given", "message"),
    [
        (StateMachine(join_digits, OUT), INPUT._replace(keys=()), "unkeyed state; call key_by on the stream"),
        (Reduce(lambda a, _: a), INPUT._replace(keys=()), "unkeyed state"),
        (Reduce(lambda a, _: a, "often"), INPUT, "write 'changes' or 'end'"),  # type: ignore[arg-type]
        (Reduce(lambda a, _: a), Input(pa.schema([("k", pa.decimal256(5))]), ("k",)), "decimal256"),
    ],
)
def test_what_cannot_work_is_refused_with_the_name(definition: Definition, given: Input, message: str) -> None:
    with pytest.raises(UserError, match=f"operator '{NAME}'.*{message}"):
        definition.output(NAME, [given])
