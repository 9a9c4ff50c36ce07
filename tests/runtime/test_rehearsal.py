import pyarrow as pa
import pytest

import seep
from seep.node import rehearsal
from seep.query.stream import Stream

SCHEMA = pa.schema([("at", pa.timestamp("us")), ("word", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


def grouped(query: seep.Query, name: str) -> Stream:
    rows = seep.sources.memory([pa.RecordBatch.from_pylist([], SCHEMA)], time="at")
    return query.source(name, rows).key_by("word")


def windows(query: seep.Query) -> Stream:
    return grouped(query, "a").window(seep.tumbling("1 s")).aggregate("counter", n=seep.count(), x=seep.mean("x"))


def sessions(query: seep.Query) -> Stream:
    return grouped(query, "a").window(seep.session("1 s")).aggregate("counter", n=seep.count())


def totals(query: seep.Query) -> Stream:
    return grouped(query, "a").aggregate("counter", n=seep.count(), last=seep.last("n"), emit="end")


def join(query: seep.Query) -> Stream:
    return grouped(query, "a").join("pairs", grouped(query, "b"), window=seep.tumbling("1 s"))


@pytest.mark.parametrize("shape", [windows, sessions, totals, join])
def test_our_own_operators_are_played_without_a_fault(shape, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """`rehearse` swallows what fails, so here it must not."""
    query = seep.Query("q")
    shape(query).sink("out", seep.sinks.discard())
    monkeypatch.setattr(rehearsal, "suppress", lambda *_: __import__("contextlib").nullcontext())
    rehearsal.rehearse(query.compile())


def test_a_function_of_the_user_is_never_called() -> None:
    calls = []

    def count_calls(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(len(batch))
        return batch

    query = seep.Query("q")
    grouped(query, "a").map("mine", count_calls, SCHEMA).sink("out", seep.sinks.discard())
    program = query.compile()
    calls.clear()
    rehearsal.rehearse(program)
    assert calls == []
