"""State under a key of another instance, and attributes that change, are refused where they are seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import seep
from primitives.errors import UserError
from primitives.hashing import hash_key
from primitives.slots import slot_of
from seep.operators.custom import CustomOperator
from seep.operators.definition import Input
from tests.operators.instances import NAME, Instances, Row

SCHEMA = pa.schema([("user", pa.string()), ("friend", pa.string()), ("t", pa.int64())])
STREAM = Input(SCHEMA, ("user",), "t")
USERS = [f"user-{number}" for number in range(64)]


def row(user: str, friend: str | None = None) -> Row:
    return {"user": user, "friend": friend or user, "t": 0}


def owner(user: str, instances: int = 2, slot_bits: int = 2) -> int:
    return slot_of(hash_key(user), slot_bits) % instances


A, B = (next(user for user in USERS if owner(user) == instance) for instance in (0, 1))
A_TOO = next(user for user in USERS if owner(user) == 0 and user != A)


class Friends(seep.Operator):
    """Counts for whoever is named in a row, which is somebody else's state."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: seep.Inputs) -> None:
        if len(inputs[0]):
            self.write(inputs[0])

    def write(self, rows: pa.RecordBatch) -> None:
        raise NotImplementedError


class InFrame(Friends):
    spill: ClassVar[bool] = False

    def open(self, context: seep.Context) -> None:
        self.counts = context.frame("counts", {"n": pa.int64()}, spill=self.spill)

    def write(self, rows: pa.RecordBatch) -> None:
        self.counts.add(rows["friend"], n=1)


class InSpillingFrame(InFrame):
    spill = True


class OnDisk(InFrame):
    def open(self, context: seep.Context) -> None:
        self.counts = context.disk("counts", {"n": pa.int64()})  # type: ignore[assignment]


class InValues(Friends):
    spill: ClassVar[bool] = False

    def open(self, context: seep.Context) -> None:
        self.counts = context.values("counts", spill=self.spill)

    def write(self, rows: pa.RecordBatch) -> None:
        for friend in rows["friend"].to_pylist():
            self.counts.change(friend, lambda n: n + 1, 0)


class InSpillingValues(InValues):
    spill = True


class InRows(Friends):
    def open(self, context: seep.Context) -> None:
        self.counts = context.rows("counts", {"t": pa.int64()})

    def write(self, rows: pa.RecordBatch) -> None:
        self.counts.add(pa.record_batch({"user": rows["friend"], "t": rows["t"]}))


class InTimers(Friends):
    def open(self, context: seep.Context) -> None:
        self.counts = context.timers("counts")

    def write(self, rows: pa.RecordBatch) -> None:
        for friend in rows["friend"].to_pylist():
            self.counts.schedule(9, friend)


class InBatchesOfTimers(InTimers):
    def write(self, rows: pa.RecordBatch) -> None:
        self.counts.schedule_batch([9] * len(rows), [rows["friend"]])


CONTAINERS: list[type[Friends]] = [
    *(InFrame, InSpillingFrame, OnDisk, InValues, InSpillingValues, InRows, InTimers, InBatchesOfTimers)
]
FOREIGN = rf"operator '{NAME}', state 'counts': key '?\[?'?{B}.* is not one of a row that came here.* key_by"


def both(operator: type[seep.Operator]) -> Instances:
    return Instances(CustomOperator(operator), [STREAM], count=2)


@pytest.mark.parametrize("operator", CONTAINERS)
def test_a_key_whose_slot_another_instance_owns_is_refused_by_name(operator: type[Friends]) -> None:
    instances = both(operator)
    instances.epoch([row(A), row(B), row(A_TOO)])
    with pytest.raises(UserError, match=FOREIGN):
        instances.epoch([row(A), row(A, B)])


@pytest.mark.parametrize("operator", CONTAINERS)
def test_what_was_restored_may_be_of_any_key_that_came_before(operator: type[Friends]) -> None:
    instances = both(operator)
    instances.epoch([row(A), row(B), row(A_TOO)])
    for instance in (0, 1):
        instances.recover(instance)
    instances.epoch([row(A), row(B)])


def queried(operator: Any, *batches: Sequence[Row], **options: Any) -> pa.Table:
    query = seep.Query("friends")
    parts = [pa.RecordBatch.from_pylist(list(batch), SCHEMA) for batch in batches]
    rows = query.source("rows", seep.testing.script(*parts, time="t"))
    rows.key_by("user").apply(NAME, operator).sink("out", seep.sinks.collect())
    return seep.testing.run(query, **options)["out"]


@pytest.mark.parametrize("operator", CONTAINERS)
def test_in_tests_a_key_of_no_row_is_refused_though_there_is_one_instance(operator: type[Friends]) -> None:
    with pytest.raises(UserError, match=FOREIGN):
        queried(operator, [row(A)], [row(A, B)])


@pytest.mark.parametrize("operator", CONTAINERS)
def test_in_tests_keys_of_rows_may_be_written_whenever_they_came(operator: type[Friends]) -> None:
    queried(operator, [row(A), row(B)], [row(user) for user in USERS], [row(A, A)])


class Reminded(InFrame):
    """Writes state of keys that only notifications name, after its state came from elsewhere."""

    def write(self, rows: pa.RecordBatch) -> None:
        self.counts.add(rows, n=1)
        for user in rows["user"].to_pylist():
            self.notify(100, user)

    def on_notify(self, due: pa.RecordBatch, inputs: seep.Inputs) -> None:  # noqa: ARG002
        self.counts.delete(due["user"])
        self.counts.add(due["user"], n=1)


def test_keys_of_notifications_may_be_written_by_whoever_has_restored_them() -> None:
    query = seep.Query("reminded")
    parts = [pa.RecordBatch.from_pylist([row(user) for user in USERS[:9]], SCHEMA)] * 3
    rows = query.source("rows", seep.testing.script(*parts, seep.testing.Scale(NAME, 2), *parts, time="t"))
    rows.key_by("user").apply(NAME, Reminded).sink("out", seep.sinks.collect())
    with seep.testing.InProcess(query) as run:
        for _ in range(5):
            run.pulse()
            run.settle()
        run.kill(NAME)
        run.run()
    assert run.finished


# --- attributes -------------------------------------------------------------------------------------------------------


class Counting(InFrame):
    """Has attributes of all kinds, and leaves them alone."""

    def open(self, context: seep.Context) -> None:
        super().open(context)
        self.n, self.nothing, self.names, self.weights = 0, math.nan, {"a": [1]}, np.arange(3)
        self.myself = [self]

    def write(self, rows: pa.RecordBatch) -> None:
        self.counts.add(rows, n=1)
        self.count(rows)

    def count(self, rows: pa.RecordBatch) -> None:
        pass


class Adding(Counting):
    def count(self, rows: pa.RecordBatch) -> None:
        self.n += len(rows)


class Appending(Counting):
    def count(self, rows: pa.RecordBatch) -> None:
        self.names["a"].append(len(rows))


class Weighing(Counting):
    def count(self, rows: pa.RecordBatch) -> None:
        self.weights[0] += len(rows)


class Remembering(Counting):
    def count(self, rows: pa.RecordBatch) -> None:
        self.last = rows


class Caching(Remembering):
    caches = ("last",)


class Stateless(seep.StatelessOperator):
    def __init__(self) -> None:
        self.n = 0

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: seep.Inputs) -> None:
        self.n += len(inputs[0])


class WithOddsAndEnds(Stateless):
    def get_extra(self) -> bytes:
        return str(self.n).encode()


@pytest.mark.parametrize(
    ("operator", "attribute"),
    [(Adding, "n"), (Appending, "names"), (Weighing, "weights"), (Remembering, "last"), (Stateless, "n")],
)
def test_in_tests_an_attribute_that_changes_is_refused_by_name(operator: type[seep.Operator], attribute: str) -> None:
    message = (
        rf"operator '{NAME}': attribute '{attribute}' of {operator.__name__} has changed .*caches = \('{attribute}'"
    )
    with pytest.raises(UserError, match=message):
        queried(operator, [row(A)])


@pytest.mark.parametrize("operator", [Counting, Caching, WithOddsAndEnds])
def test_attributes_that_stay_and_caches_are_no_error(operator: type[seep.Operator]) -> None:
    queried(operator, [row(A)], [row(B)], [row(A)])
