"""Failing user code: exactly the rows at fault are found, shown, or turned into dead letters."""

from __future__ import annotations

import gc
import json
import weakref
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, UserError
from primitives.graph import Edge
from seep.operators.definition import OperatorSetting
from seep.operators.errors import DEAD_LETTERS, Guard, UserCodeFailed, naming, row_as_json
from seep.record.reports import LETTER_TEXT, MOST_LETTERS

SCHEMA = pa.schema([("n", pa.int64())])
EDGE = Edge("halve", "letters")


def guard(*, letters: bool = True) -> Guard:
    return Guard(OperatorSetting("halve", 2, (), SCHEMA, (), dead_letters=EDGE if letters else None))


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def only_even(rows: pa.RecordBatch) -> list[int]:
    """Fails on a batch that has an odd number in it, without saying which."""
    numbers: list[int] = rows["n"].to_pylist()
    if any(number % 2 for number in numbers):
        raise ValueError("odd")
    return numbers


# --- finding rows -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), max_size=40))
def test_the_result_is_that_of_the_good_rows_and_the_others_are_letters(numbers: list[int]) -> None:
    good = [number for number in numbers if number % 2 == 0]
    guarded = guard()
    result = guarded.call(3, only_even, batch(*numbers))
    assert result == good or (result is None and not good)
    letters = guarded.take()
    assert letters.schema == DEAD_LETTERS
    assert letters.to_pylist() == [
        {"operator": "halve", "epoch": 3, "error": "ValueError: odd", "row": json.dumps({"n": number})}
        for number in numbers
        if number % 2
    ]


def test_each_row_at_fault_has_its_own_error() -> None:
    def fussy(rows: pa.RecordBatch) -> None:
        for number in rows["n"].to_pylist():
            if number > 2:
                raise ValueError(number)

    guarded = guard()
    guarded.call(1, fussy, batch(1, 3, 2, 4))
    assert guarded.take()["error"].to_pylist() == ["ValueError: 3", "ValueError: 4"]


def test_rows_that_only_fail_together_are_all_at_fault() -> None:
    def small(rows: pa.RecordBatch) -> int:
        if pc.sum(rows["n"]).as_py() > 10:
            raise ValueError("too much")
        return len(rows)

    guarded = guard()
    assert guarded.call(1, small, batch(6, 6)) is None
    assert len(guarded.take()) == 2


def test_one_row_of_many_is_found_in_few_calls() -> None:
    calls = 0

    def counted(rows: pa.RecordBatch) -> None:
        nonlocal calls
        calls += 1
        only_even(rows)

    guard().call(1, counted, batch(*range(0, 2000, 2), 1, *range(0, 2000, 2)))
    assert calls <= 2 + 2 * 11


def test_letters_are_taken_once() -> None:
    guarded = guard()
    guarded.call(1, only_even, batch(1))
    assert len(guarded.take()) == 1
    assert len(guarded.take()) == 0
    assert guarded.failed == 1


# --- samples ----------------------------------------------------------------------------------------------------------


def test_the_newest_letters_are_samples_with_the_users_function_its_error_and_the_time_since() -> None:
    times = iter([100.0, 103.5])
    guarded = Guard(OperatorSetting("halve", 2, (), SCHEMA, (), dead_letters=EDGE), lambda: next(times))
    guarded.call(4, only_even, batch(*range(20)))
    assert guarded.take().num_rows == 10
    samples = guarded.samples()
    assert [sample.row for sample in samples] == [json.dumps({"n": n}) for n in (11, 13, 15, 17, 19)]
    assert {(sample.epoch, sample.function, sample.error, sample.age) for sample in samples} == {
        (4, "only_even", "ValueError: odd", 3.5)
    }


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5))
def test_each_letter_is_a_sample_once_at_most_and_only_the_newest_are(epochs: list[list[int]]) -> None:
    guarded = guard()
    for epoch, numbers in enumerate(epochs):
        guarded.call(epoch, only_even, batch(*numbers))
        guarded.take()
    odd = [(epoch, json.dumps({"n": n})) for epoch, numbers in enumerate(epochs) for n in numbers if n % 2]
    assert [(sample.epoch, sample.row) for sample in guarded.samples()] == odd[-MOST_LETTERS:]
    assert guarded.samples() == ()


def test_the_texts_of_a_sample_are_cut_and_those_of_the_letter_are_whole() -> None:
    def refuse(rows: pa.RecordBatch) -> None:
        raise ValueError(rows["text"][0].as_py())

    guarded = guard()
    guarded.call(1, refuse, pa.record_batch({"text": ["x" * 10_000]}))
    assert len(guarded.take()["row"][0].as_py()) > 10_000
    (sample,) = guarded.samples()
    assert (len(sample.error), len(sample.row)) == (LETTER_TEXT, LETTER_TEXT)


def test_an_error_or_row_with_a_text_that_utf_8_cannot_have_is_a_letter_with_an_escape_in_it() -> None:
    guarded = guard()
    guarded.fail(1, ValueError("no \ud800 text"), {"name": "\udc80 file"})
    (letter,) = guarded.take().to_pylist()
    assert (letter["error"], letter["row"]) == ("ValueError: no \\ud800 text", '{"name": "\\udc80 file"}')
    with pytest.raises(UserCodeFailed, match=r"no \\ud800 text"):
        guard(letters=False).fail(1, ValueError("no \ud800 text"), {"n": 1})


def test_a_sample_does_not_keep_the_exception_and_what_it_refers_to() -> None:
    class Big:
        pass

    alive: weakref.ref[Big] | None = None

    def refuse(rows: pa.RecordBatch) -> None:  # noqa: ARG001
        nonlocal alive
        big = Big()
        alive = weakref.ref(big)
        raise ValueError("no")

    guarded = guard()
    guarded.call(1, refuse, batch(1))
    guarded.take()
    gc.collect()
    assert alive is not None
    assert alive() is None


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_without_a_place_for_letters_the_run_stops_and_shows_up_to_five_rows() -> None:
    with pytest.raises(UserCodeFailed) as failure:
        guard(letters=False).call(7, only_even, batch(*range(100)))
    assert (failure.value.operator, failure.value.epoch) == ("halve", 7)
    assert failure.value.rows == [{"n": number} for number in (1, 3, 5, 7, 9)]
    assert failure.value.cause.startswith("ValueError: odd (in only_even, line ")
    assert failure.value.cause.endswith("test_errors.py)")
    assert isinstance(failure.value.__cause__, ValueError)


def test_a_function_that_fails_without_any_row_stops_the_run_in_any_case() -> None:
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as failure:
        guard().call(1, lambda rows: 1 // len(rows), batch())
    assert failure.value.rows == []


@pytest.mark.parametrize("error", [UserError("wrong column"), EnvironmentFault("disk full")])
def test_errors_of_the_project_are_nobodys_row(error: Exception) -> None:
    def raising(_: pa.RecordBatch) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        guard().call(1, raising, batch(1))


def test_errors_of_the_project_pass_while_rows_at_fault_are_looked_for() -> None:
    def raising(rows: pa.RecordBatch) -> None:
        if len(rows) == 1:
            raise UserError("wrong column")
        raise ValueError

    with pytest.raises(UserError, match="wrong column"):
        guard().call(1, raising, batch(1, 2))


def test_an_interrupt_is_no_failure_of_a_row() -> None:
    def interrupted(_: pa.RecordBatch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard().call(1, interrupted, batch(1))


# --- in words ---------------------------------------------------------------------------------------------------------


def test_an_error_survives_as_text() -> None:
    rows: list[dict[str, Any]] = [{"n": 1, "at": datetime(2026, 1, 2)}, *[{"n": 2}] * 9]
    failure = UserCodeFailed("halve", 7, rows, "ValueError: odd", "halve[1]")
    copy = UserCodeFailed.from_json(failure.to_json())
    assert (copy.operator, copy.epoch, copy.cause, copy.instance) == ("halve", 7, "ValueError: odd", "halve[1]")
    assert copy.rows == [{"n": 1, "at": "2026-01-02 00:00:00"}, *[{"n": 2}] * 4]
    assert str(copy) == str(failure)
    assert str(copy).startswith("instance halve[1] failed in epoch 7: ValueError: odd; on rows like {")


def test_the_instance_can_be_filled_in_later() -> None:
    failure = UserCodeFailed("halve", 7, [], "odd")
    failure.instance = "halve[2]"
    assert str(failure) == "instance halve[2] failed in epoch 7: odd"


def test_what_json_does_not_know_becomes_text() -> None:
    row = {"d": Decimal("1.50"), "b": b"\xff", "x": float("inf"), "m": [("a", {"z": None})], "u": "ü"}
    text = row_as_json(row)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "d": "1.50",
        "b": "b'\\xff'",
        "x": "inf",
        "m": [["a", {"z": None}]],
        "u": "ü",
    }


def test_naming_leaves_alone_what_has_the_name_or_says_more() -> None:
    for error in (UserError("operator 'halve' is odd"), UserCodeFailed("double", 1, [], "odd")):
        with pytest.raises(type(error)) as raised, naming("halve"):
            raise error
        assert raised.value is error
