"""Operators of users: state by key, notifications in order, and the same result wherever their slots are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.graph import Kind
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of, split_evenly
from primitives.state.values import Values
from seep.operators.context import Context, Inputs
from seep.operators.custom import CustomOperator, Operator, StatelessOperator
from seep.operators.definition import Input
from seep.operators.errors import UserCodeFailed
from tests.operators.instances import NAME, Instances, Row, bag, setting_of

INPUT = Input(pa.schema([("k", pa.string()), ("t", pa.int64()), ("n", pa.int64())]), ("k",), "t")


def row(k: Any, t: int, n: int = 0) -> Row:
    return {"k": k, "t": t, "n": n}


class Echo(Operator):
    """Puts rows out as they come; a base for others."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: Inputs) -> Any:
        return inputs[0]


# --- notifications ----------------------------------------------------------------------------------------------------


class Delay(Echo):
    """Each row comes `n` later, and once more 5 later than that; with the sum of all that came for its key by then."""

    notify_type = pa.int64()

    def open(self, context: Context) -> None:
        self.sums = context.frame("sums", {"sum": pa.int64()})

    def process(self, inputs: Inputs) -> None:
        rows = inputs[0]
        self.notify_batch(rows["t"].to_numpy() + rows["n"].to_numpy(), [rows["k"]], rows["n"])

    def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> Mapping[str, Any]:
        again = due.filter(pa.array(due["value"].to_numpy() > 0))
        self.notify_batch(again["time"].to_numpy() + 5, [again["k"]], np.zeros(len(again), np.int64))
        for time, key, value in self.records(due):
            assert time <= inputs.watermark
            self.sums.add([key], sum=value)
        return {"k": due["k"], "t": due["time"], "n": self.sums.get(due["k"])[0]["sum"]}


rows = st.builds(row, st.sampled_from([*"abcd", None]), st.integers(0, 20), st.integers(0, 9))
moves = st.tuples(st.sets(st.integers(0, 3)).map(SlotSet), st.integers(0, 1))
stories = st.lists(st.tuples(st.lists(rows, max_size=6), st.integers(0, 8), moves), max_size=5)


@settings(max_examples=60)
@given(story=stories, seed=st.integers(0, 9))
def test_notifications_come_once_when_due_wherever_their_slot_is(
    story: list[tuple[list[Row], int, tuple[SlotSet, int]]], seed: int
) -> None:
    instances = Instances(CustomOperator(Delay), [INPUT], count=2, seed=seed)
    watermark = 0
    waiting: list[tuple[int, Any, int]] = []
    sums: dict[Any, int] = defaultdict(int)
    for epoch, step, move in [*story, ([], 100, (SlotSet.empty(), 0))]:
        watermark += step
        waiting += [(row["t"] + row["n"], row["k"], row["n"]) for row in epoch]
        expected = []
        while due := [one for one in waiting if one[0] <= watermark]:
            waiting = [one for one in waiting if one[0] > watermark]
            waiting += [(time + 5, key, 0) for time, key, value in due if value]
            for _, key, value in due:
                sums[key] += value
            expected += [row(key, time, sums[key]) for time, key, _ in due]
        assert bag(instances.epoch(epoch, watermark=watermark)) == bag(expected)
        instances.move(*move)
        instances.recover(seed % 2)


def test_notifications_come_in_order_of_time_and_key() -> None:
    seen: list[tuple[int, Any, Any]] = []

    class Watch(Echo):
        def process(self, inputs: Inputs) -> None:
            for one in inputs[0].to_pylist():
                self.notify(one["t"], one["k"], {"n": one["n"]})

        def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> None:  # noqa: ARG002
            seen.extend(self.records(due))

    instances = Instances(CustomOperator(Watch), [INPUT], slot_bits=0)
    instances.epoch([row("b", 2), row("a", 2, 1), row("c", 1), row("a", 9)], watermark=5)
    assert seen == [(1, "c", {"n": 0}), (2, "a", {"n": 1}), (2, "b", {"n": 0})]


def test_an_operator_that_notifies_itself_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seep.operators.custom._ROUNDS", 50)

    class Clock(Echo):
        def process(self, inputs: Inputs) -> None:
            self.notify_batch(inputs[0]["t"], [inputs[0]["k"]])

        def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> None:  # noqa: ARG002
            self.notify_batch(due["time"].to_numpy() + 10, [due["k"]])

    instances = Instances(CustomOperator(Clock), [INPUT])
    instances.epoch([row("a", 1)], watermark=35)
    with pytest.raises(UserError, match=f"operator '{NAME}' has notified itself 50 times .* inputs.ended"):
        instances.end()


def test_a_key_of_another_instance_cannot_be_notified() -> None:
    class Stranger(Echo):
        def process(self, inputs: Inputs) -> None:
            key = inputs[0]["k"][0].as_py()
            if inputs[0]["n"][0].as_py():
                self.notify(1, key + "!")
            else:
                self.notify_batch([1, 1], [[key, key + "!"]])

    keys = [f"a{n}" for n in range(50)]
    mine, theirs = (slots_of(hash_keys([pa.array(k + end for k in keys)]), 2) for end in ("", "!"))
    key = next(k for k, one, other in zip(keys, mine, theirs, strict=True) if one % 2 != other % 2)
    for n in (0, 1):
        with pytest.raises(UserError, match=f"operator '{NAME}'.*key '{key}!'.*belongs to another instance"):
            Instances(CustomOperator(Stranger), [INPUT], count=2).epoch([row(key, 1, n)])


def test_a_key_column_called_time_has_an_underscore_where_it_is_notified() -> None:
    class Later(Echo):
        def process(self, inputs: Inputs) -> None:
            self.notify(5, (inputs[0]["time"][0].as_py(), "x"), 1)

        def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> Any:  # noqa: ARG002
            assert due.schema.names == ["time", "time_", "value_", "value"]
            return {"time": due["time_"], "value": due["value_"]}

    given = Input(pa.schema([("time", pa.int64()), ("value", pa.string())]), ("time", "value"))
    assert Instances(CustomOperator(Later), [given]).end([{"time": 7, "value": "x"}]) == [{"time": 7, "value": "x"}]


# --- state ------------------------------------------------------------------------------------------------------------


class Everything(Operator):
    """Counts the rows of each key in every way there is to keep something."""

    def __init__(self) -> None:
        self.own: dict[int, dict[Any, int]] = defaultdict(dict)

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return pa.schema([inputs[0].schema.field("k"), ("counts", pa.list_(pa.int64()))])

    def open(self, context: Context) -> Sequence[Values]:
        self.bits = context.slot_bits
        self.values = context.values("values")
        self.frame = context.frame("frame", {"count": pa.int64()})
        self.rows = context.rows("rows", {"n": pa.int64()})
        self.timers = context.timers("timers")
        self.foreign = Values("foreign", {"user": pa.string()}, slot_bits=context.slot_bits)
        return [self.values, self.foreign]

    def process(self, inputs: Inputs) -> Any:
        batch = inputs.in_sequence()
        slots = slots_of(hash_keys([batch["k"]]), self.bits).tolist()
        for slot, key in zip(slots, batch["k"].to_pylist(), strict=True):
            for values in (self.values, self.foreign, self.own[slot]):
                values[key] = values.get(key, 0) + 1
            self.timers.schedule(1, key)
        self.frame.add(batch, count=1)
        self.rows.add(batch)
        found, _ = self.frame.get(batch["k"])
        matches = np.bincount(self.rows.match([batch["k"]])[0], minlength=len(batch))
        counts = [
            [self.values[key], self.foreign[key], self.own[slot][key], count, match]
            for slot, key, count, match in zip(
                slots, batch["k"].to_pylist(), found["count"].to_pylist(), matches.tolist(), strict=True
            )
        ]
        return {"k": batch["k"], "counts": pa.array(counts, pa.list_(pa.int64()))}

    def get_processing_state(self, slots: SlotSet) -> dict[int, Any]:
        return {slot: self.own[slot] for slot in slots if self.own[slot]}

    def set_processing_state(self, state: Mapping[int, Any]) -> None:
        self.own |= state

    def drop_processing_state(self, slots: SlotSet) -> None:
        for slot in slots:
            self.own.pop(slot, None)


@settings(max_examples=30)
@given(story=stories, seed=st.integers(0, 9))
def test_state_of_every_kind_moves_with_its_slots(
    story: list[tuple[list[Row], int, tuple[SlotSet, int]]], seed: int
) -> None:
    instances = Instances(CustomOperator(Everything()), [INPUT], count=2, seed=seed)
    counts: dict[Any, int] = defaultdict(int)
    for epoch, _, move in story:
        for one in epoch:
            counts[one["k"]] += 1
        out = instances.epoch(epoch)
        assert bag(out) == bag({"k": one["k"], "counts": [counts[one["k"]]] * 5} for one in epoch)
        instances.move(*move)
        instances.recover(seed % 2)


def test_objects_given_are_copied_for_each_instance() -> None:
    prototype = Everything()
    instances = Instances(CustomOperator(prototype), [INPUT])
    instances.epoch([row("a", 1)])
    assert not prototype.own


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_a_binary_operator_reads_two_streams_by_port() -> None:
    class Lookup(Operator):
        ports = 2

        def open(self, context: Context) -> None:
            self.names = context.values("names", pa.string())

        def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
            return pa.schema([("k", pa.string()), ("name", pa.string())])

        def process(self, inputs: Inputs) -> Any:
            for one in inputs[1].to_pylist():
                self.names[one["id"]] = one["name"]
            keys = inputs[0]["k"].to_pylist()
            return {"k": keys, "name": pa.array([self.names.get(key) for key in keys], pa.string())}

    names = Input(pa.schema([("name", pa.string()), ("id", pa.string())]), ("id",))
    instances = Instances(CustomOperator(Lookup()), [INPUT, names], count=2)
    assert instances.epoch([], [{"name": "Ada", "id": "a"}]) == []
    out = instances.epoch([row("a", 1), row("b", 2)], [{"name": "Bob", "id": "b"}])
    assert bag(out) == bag([{"k": "a", "name": "Ada"}, {"k": "b", "name": "Bob"}])


def test_chance_follows_from_the_key_and_the_epoch() -> None:
    class Dice(Echo):
        def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
            return pa.schema([("k", pa.string()), ("x", pa.float64()), ("y", pa.float64()), ("time", pa.float64())])

        def process(self, inputs: Inputs) -> Any:
            keys = inputs[0]["k"]
            return {
                "k": keys,
                "x": inputs.uniform([keys]),
                "y": inputs.uniform([keys], draw=1),
                "time": np.full(len(keys), inputs.time),
            }

    batch = [row(f"k{n}", 0) for n in range(1000)]
    one, two = (Instances(CustomOperator(Dice), [INPUT], count=count) for count in (1, 3))
    first, second = one.epoch(batch), one.epoch(batch)
    assert bag(first) == bag(two.epoch(batch))
    assert {out["time"] for out in second} == {2 * 0.05}
    samples = [{out["k"]: out[column] for out in outs} for outs in (first, second) for column in ("x", "y")]
    for sample in samples:
        assert 0 <= min(sample.values()) < 0.01 < 0.99 < max(sample.values()) < 1
        assert 0.45 < sum(sample.values()) / 1000 < 0.55
    drawn = np.array([[sample[one["k"]] for one in batch] for sample in samples])
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 0.1


def test_process_is_not_called_without_rows() -> None:
    class Never(Echo):
        def process(self, inputs: Inputs) -> Any:  # noqa: ARG002
            pytest.fail("there are no rows")

    assert Instances(CustomOperator(Never), [INPUT]).end([]) == []


def test_the_last_epoch_is_told() -> None:
    class Last(Echo):
        def process(self, inputs: Inputs) -> Any:
            return inputs[0] if inputs.ended else None

    instances = Instances(CustomOperator(Last), [INPUT])
    assert instances.epoch([row("a", 1)]) == []
    assert instances.end([row("a", 2)]) == [row("a", 2)]


# --- stateless --------------------------------------------------------------------------------------------------------


class Invert(StatelessOperator):
    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: Inputs) -> Any:
        numbers = [60 // number for number in inputs[0]["n"].to_pylist()]
        return {**{name: inputs[0][name] for name in ("k", "t")}, "n": numbers}


UNKEYED = INPUT._replace(keys=())


def test_a_stateless_operator_needs_no_key_and_is_of_that_kind() -> None:
    assert CustomOperator(Invert).kind is Kind.STATELESS
    assert CustomOperator(Delay).kind is Kind.STATEFUL
    assert CustomOperator.kind is Kind.STATEFUL
    instances = Instances(CustomOperator(Invert), [UNKEYED], count=2)
    assert bag(instances.epoch([row("a", 1, 3), row("b", 1, 5)])) == bag([row("a", 1, 20), row("b", 1, 12)])
    assert all(not logic.state.snapshot(SlotSet.full(2)) for logic in instances.logics)


def test_rows_at_fault_of_a_stateless_operator_are_found() -> None:
    instances = Instances(CustomOperator(Invert), [UNKEYED], letters=True)
    assert bag(instances.epoch([row("a", 1, 3), row("b", 1, 0), row("c", 1, 5)])) == bag(
        [row("a", 1, 20), row("c", 1, 12)]
    )
    assert [letter["row"] for letter in instances.letters] == ['{"k": "b", "t": 1, "n": 0}']
    with pytest.raises(UserCodeFailed) as failure:
        Instances(CustomOperator(Invert), [UNKEYED]).epoch([row("a", 1, 3), row("b", 1, 0)])
    assert failure.value.rows == [row("b", 1, 0)]


class Numbered(Invert):
    """Its extra data are the numbers of the instances that it goes on from."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def get_extra(self) -> bytes | None:
        return bytes(self.numbers) if self.numbers else None

    def set_extra(self, extras: Sequence[bytes]) -> None:
        assert not self.numbers, "it is called once"
        self.numbers = tuple(b"".join(extras))


def gone_on(before: int, after: int) -> list[tuple[int, ...]]:
    """Has so many instances go on from the checkpoint of others; returns the numbers that each has taken over."""
    shares = [split_evenly(SlotSet.full(5), count) for count in (before, after)]
    stored = [chunk for i, slots in enumerate(shares[0]) for chunk in logic_of(Numbered(i)).state.snapshot(slots)]
    numbers = []
    for slots in shares[1]:
        logic = logic_of(made := Numbered())
        logic.state.restore([chunk.select(slots) for chunk in stored])
        again = [value for chunk in logic.state.snapshot(slots) for value in chunk.rows["value"].to_pylist()]
        numbers.append(tuple(b"".join(again)))
        assert not made.numbers, "each instance has an operator of its own"
    return numbers


def logic_of(operator: Operator) -> Any:
    definition = CustomOperator(operator)
    return definition.logic(setting_of(definition, [UNKEYED], slot_bits=5))


@given(st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=30)
def test_extra_data_goes_to_one_new_instance_each(before: int, after: int) -> None:
    assert [number for numbers in gone_on(before, after) for number in numbers] == list(range(before))


def test_extra_data_stays_where_it_is_or_comes_together_when_there_are_fewer_instances() -> None:
    assert gone_on(3, 3) == [(0,), (1,), (2,)]
    assert gone_on(4, 2) == [(0, 1), (2, 3)]
    assert gone_on(1, 3) == [(0,), (), ()], "new instances have none"


def test_extra_data_that_is_no_bytes_is_refused_with_the_name_of_the_operator() -> None:
    class Wordy(Numbered):
        def get_extra(self) -> Any:
            return "words"

    with pytest.raises(UserError, match=r"operator 'operator': its get_extra\(\) returned 'words'; return bytes"):
        logic_of(Wordy()).state.snapshot(SlotSet.full(5))


def test_a_stateless_operator_has_no_state_or_notifications() -> None:
    class Secretive(Invert):
        def open(self, context: Context) -> None:
            context.values("secret")

    class Late(Invert):
        def process(self, inputs: Inputs) -> Any:  # noqa: ARG002
            self.notify(1, "a")

    with pytest.raises(UserError, match=f"operator '{NAME}'.*'secret'; subclass Operator"):
        CustomOperator(Secretive).output(NAME, [INPUT])
    with pytest.raises(UserError, match="no notifications"):
        Instances(CustomOperator(Late), [UNKEYED]).epoch([row("a", 1)])


# --- failures ---------------------------------------------------------------------------------------------------------


def test_an_exception_in_process_or_on_notify_stops_the_run_and_shows_some_rows() -> None:
    class Bad(Echo):
        def process(self, inputs: Inputs) -> None:
            if inputs[0]["n"][0].as_py():
                raise RuntimeError("bad process")
            self.notify(1, inputs[0]["k"][0].as_py())

        def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> None:  # noqa: ARG002
            raise RuntimeError("bad notification")

    for n, cause in ((1, "bad process"), (0, "bad notification")):
        with pytest.raises(UserCodeFailed, match=cause) as failure:
            Instances(CustomOperator(Bad), [INPUT], letters=True).epoch([row("a", 1, n)], watermark=1)
        assert failure.value.rows == [row("a", 1, n)]


def test_an_operator_hands_over_dead_letters_itself() -> None:
    class Careful(Echo):
        def process(self, inputs: Inputs) -> None:
            for one in inputs[0].to_pylist():
                self.fail(one, ValueError("unwanted"))

    instances = Instances(CustomOperator(Careful), [INPUT], letters=True)
    instances.epoch([row("a", 1)])
    assert [letter["error"] for letter in instances.letters] == ["ValueError: unwanted"]
    with pytest.raises(UserCodeFailed, match="unwanted"):
        Instances(CustomOperator(Careful), [INPUT]).epoch([row("a", 1)])


def test_what_it_puts_out_must_have_the_declared_columns() -> None:
    class Odd(Echo):
        def process(self, inputs: Inputs) -> Any:
            return {"k": inputs[0]["k"], "t": inputs[0]["k"], "n": inputs[0]["n"]}

    with pytest.raises(UserError, match=f"operator '{NAME}', column 't': expected int64, found string"):
        Instances(CustomOperator(Odd), [INPUT]).epoch([row("a", 1)])


class KeyedOtherwise(Echo):
    def open(self, context: Context) -> Sequence[Values]:
        return [Values("mine", {"n": pa.int64()}, slot_bits=context.slot_bits)]


class HalfOwn(Echo):
    def get_processing_state(self, slots: SlotSet) -> dict[int, Any]:  # noqa: ARG002
        return {}


class NoSchema(Echo):
    def output(self, inputs: Sequence[Input]) -> Any:
        return inputs[0].schema.names


class Twice(Echo):
    def open(self, context: Context) -> None:
        context.values("notifications")


class Binary(Echo):
    ports = 2


DECIMAL = Input(pa.schema([("k", pa.decimal256(5))]), ("k",))


@pytest.mark.parametrize(
    ("operator", "inputs", "message"),
    [
        (Echo, [UNKEYED], "unkeyed state; call key_by on the stream before it, or make it a StatelessOperator"),
        (Echo, [INPUT, INPUT], "Echo reads 1 stream.s., and 2 are connected"),
        (Binary, [INPUT, INPUT._replace(keys=("n",))], "key all by columns of the same types"),
        (KeyedOtherwise, [INPUT], "state 'mine' is keyed by n .int64. .* rows come by k .string."),
        (HalfOwn, [INPUT], "it has get_processing_state; .* it needs all of"),
        (NoSchema, [INPUT], "return a pyarrow.Schema"),
        (Twice, [INPUT], "need different names; used twice: notifications"),
        (Echo, [DECIMAL], "has type decimal256"),
    ],
)
def test_what_cannot_work_is_refused_with_the_name(operator: type[Operator], inputs: list[Input], message: str) -> None:
    with pytest.raises(UserError, match=f"operator '{NAME}'.*{message}"):
        CustomOperator(operator).output(NAME, inputs)


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(UserError, match="is not an operator"):
        CustomOperator(dict)  # type: ignore[arg-type]


def test_the_version_of_stored_state_is_that_of_the_operator() -> None:
    class Newer(Delay):
        version = 2

    old, new = (Instances(CustomOperator(operator), [INPUT]).logics[0] for operator in (Delay, Newer))
    with pytest.raises(UserError, match="version 2"):
        new.state.restore(old.state.snapshot(SlotSet.full(2)))
