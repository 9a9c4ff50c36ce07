"""Sinks at the driver: each epoch of an instance once, from its latest incarnation only."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId
from seep import sinks
from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkFenced, StoreSite
from seep.sinks.in_driver import Collected

SCHEMA = pa.schema([("n", pa.int64())])


def life(number: int = 0, index: int = 0) -> Incarnation:
    return Incarnation(InstanceId("out", index), number)


def rows(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array([n])], schema=SCHEMA) for n in numbers]


@pytest.fixture
def store() -> Collected:
    made = sinks.collect().store("out", SCHEMA)
    assert isinstance(made, Collected)
    return made


def test_rows_are_in_order_of_epoch_and_then_of_instance(store: Collected) -> None:
    for index in (1, 0):
        store.open(life(index=index))
        store.commit(life(index=index), 1, rows(10 + index), 0)
    store.commit(life(index=1), 2, rows(21, 22), 0)
    assert store.table().equals(pa.table({"n": [10, 11, 21, 22]}))


def test_without_rows_there_are_still_columns(store: Collected) -> None:
    assert store.table().equals(SCHEMA.empty_table())


def test_a_commit_that_comes_again_counts_once(store: Collected) -> None:
    store.open(life())
    assert [store.commit(life(), 1, rows(1), 0) for _ in range(2)] == [1, 1]
    assert store.table()["n"].to_pylist() == [1]


def test_a_later_incarnation_goes_on_after_the_last_epoch_and_fences_the_earlier_one(store: Collected) -> None:
    store.open(life(0))
    store.commit(life(0), 4, rows(1), 0)
    assert store.open(life(1)) == 4
    with pytest.raises(SinkFenced):
        store.commit(life(0), 5, rows(2), 0)
    assert store.commit(life(1), 5, rows(3), 0) == 5
    assert store.table()["n"].to_pylist() == [1, 3]


def test_an_earlier_incarnation_that_opens_late_is_fenced(store: Collected) -> None:
    store.open(life(3))
    store.open(life(2))
    with pytest.raises(SinkFenced):
        store.commit(life(2), 1, rows(1), 0)
    assert store.commit(life(3), 1, [], 0) == 1


def test_a_store_is_opened_before_it_is_used(store: Collected) -> None:
    with pytest.raises(InternalError, match="without having opened"):
        store.commit(life(), 1, [], 0)


def test_a_function_is_called_for_every_epoch_with_rows() -> None:
    calls: list[tuple[int, dict[str, Any]]] = []
    store = sinks.callback(lambda epoch, table: calls.append((epoch, table.to_pydict()))).store("out", SCHEMA)
    store.open(life())
    for epoch, batches in enumerate([rows(1, 2), [], rows()[:0], [pa.RecordBatch.from_pylist([], SCHEMA)], rows(3)], 1):
        store.commit(life(), epoch, batches, 0)
    assert calls == [(1, {"n": [1, 2]}), (5, {"n": [3]})]


def test_calls_of_a_function_never_overlap() -> None:
    inside = threading.Lock()
    overlaps: list[int] = []

    def function(epoch: int, _: pa.Table) -> None:
        if not inside.acquire(blocking=False):
            overlaps.append(epoch)
            return
        inside.release()

    store = sinks.callback(function).store("out", SCHEMA)

    def commit_all(index: int) -> None:
        store.open(life(index=index))
        for epoch in range(1, 200):
            store.commit(life(index=index), epoch, rows(epoch), 0)

    threads = [threading.Thread(target=commit_all, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert overlaps == []


def test_a_function_that_fails_is_named_and_its_epoch_does_not_count() -> None:
    answers = iter([ValueError("no"), None])

    def function(_: int, __: pa.Table) -> None:
        answer = next(answers)
        if answer:
            raise answer

    store = sinks.callback(function).store("out", SCHEMA)
    store.open(life())
    with pytest.raises(UserError, match=r"sink 'out': its function failed on epoch 1 of out\[0\]: ValueError: no"):
        store.commit(life(), 1, rows(1), 0)
    assert store.commit(life(), 1, rows(1), 0) == 1


def test_both_are_at_the_driver_and_take_any_columns() -> None:
    for definition in (sinks.collect(), sinks.callback(print)):
        definition.check("out", pa.schema([("x", pa.list_(pa.int64()))]))
        assert (definition.place, definition.roll) == (StoreSite.DRIVER, 1)


def test_what_cannot_be_called_is_no_callback() -> None:
    with pytest.raises(UserError, match="needs a function"):
        sinks.callback("print")  # type: ignore[arg-type]
