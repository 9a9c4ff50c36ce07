"""Every call of the query API, from source to sink on the real protocol machines, against an independent result."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

import seep
from seep.query.query import Query
from seep.query.stream import Stream
from seep.testing import rows, run, script

ROWS = [
    {"word": word, "n": n, "at": at}
    for at, (word, n) in enumerate([("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5), ("a", 6), ("c", 7), ("a", 8)] * 3)
]
SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
#: Every operator is run so, which must make no difference.
DIVIDED = {"parallelism": 3}


def in_epochs(given: Sequence[dict[str, Any]] = ROWS, size: int = 3) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(given), size):
        yield pa.RecordBatch.from_pylist(list(given[start : start + size]), SCHEMA)


@pytest.fixture(params=[{}, DIVIDED], ids=["one instance", "three instances"])
def query(request: pytest.FixtureRequest) -> Query:
    return seep.Query("test", **request.param)


@pytest.fixture
def stream(query: Query) -> Stream:
    return query.source("rows", script(*in_epochs(), time="at"))


def result(stream: Stream) -> list[dict[str, Any]]:
    """All that comes out of a stream, in an order of its own."""
    stream.sink("out", seep.sinks.collect())
    return sorted(run(stream.query)["out"].to_pylist(), key=lambda row: [str(value) for value in row.values()])


def ordered(expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(expected, key=lambda row: [str(value) for value in row.values()])


def last_by_word(changes: list[dict[str, Any]], column: str) -> dict[str, int]:
    """The last state of each key, of a column that only grows."""
    found: dict[str, int] = defaultdict(int)
    for row in changes:
        found[row["word"]] = max(found[row["word"]], row[column])
    return dict(found)


# -- row by row --------------------------------------------------------------------------------------------------------


def test_map(stream: Stream) -> None:
    doubled = stream.map("double", lambda batch: {"n": pc.multiply(batch["n"], 2)})
    assert doubled.schema == pa.schema([("n", pa.int64())])
    assert Counter(row["n"] for row in result(doubled)) == Counter(row["n"] * 2 for row in ROWS)


def test_flat_map(stream: Stream) -> None:
    def repeat(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.take(pa.array(np.repeat(np.arange(len(batch)), batch["n"].to_numpy())))

    assert len(result(stream.flat_map("repeat", repeat))) == sum(row["n"] for row in ROWS)


def test_each(stream: Stream) -> None:
    def shout(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"shout": row["word"].upper()}] * (row["n"] % 2)

    shouted = stream.each("shout", shout, schema=pa.schema([("shout", pa.string())]))
    assert result(shouted) == ordered([{"shout": row["word"].upper()} for row in ROWS if row["n"] % 2])


def test_filter_by_an_expression(stream: Stream) -> None:
    assert result(stream.filter("big", pc.field("n") > 3)) == ordered([row for row in ROWS if row["n"] > 3])


def test_filter_by_a_function(stream: Stream) -> None:
    kept = stream.filter("a", lambda batch: pc.equal(batch["word"], "a"))
    assert result(kept) == ordered([row for row in ROWS if row["word"] == "a"])


def test_select_some_columns(stream: Stream) -> None:
    selected = stream.select("few", ["n", "word"])
    assert selected.schema.names == ["n", "word"]
    assert result(selected) == ordered([{"n": row["n"], "word": row["word"]} for row in ROWS])


def test_select_with_new_names_and_computed_columns(stream: Stream) -> None:
    selected = stream.select("new", {"w": "word", "square": pc.field("n") * pc.field("n")})
    assert result(selected) == ordered([{"w": row["word"], "square": row["n"] ** 2} for row in ROWS])


# -- keys and event time -----------------------------------------------------------------------------------------------


def test_the_key_and_the_event_time_stay_while_their_columns_do(stream: Stream) -> None:
    keyed = stream.key_by("word", "n")
    assert (keyed.keys, keyed.time) == (("word", "n"), "at")
    assert keyed.filter("f", pc.field("n") > 0).keys == ("word", "n")
    selected = keyed.select("s", ["word", "at"])
    assert (selected.keys, selected.time) == ((), "at")
    renamed = keyed.select("r", {"word": "word", "n": "n", "when": "at"})
    assert (renamed.keys, renamed.time) == (("word", "n"), None)


def test_an_event_time_of_another_kind_is_none(stream: Stream) -> None:
    assert stream.select("text", {"at": pc.field("at").cast("string")}).time is None


def test_a_stream_describes_itself(stream: Stream) -> None:
    described = repr(stream.key_by("word"))
    assert described == "<stream of 'rows' (word: string, n: int64, at: int64), keys ['word'], event time at>"


def test_a_renamed_time_column_is_the_event_time_again(stream: Stream) -> None:
    renamed = stream.select("r", {"word": "word", "when": "at"}).event_time("when")
    counted = renamed.key_by("word").window(seep.tumbling(8)).aggregate("count", n=seep.count())
    assert sum(row["n"] for row in result(counted)) == len(ROWS)


# -- by key ------------------------------------------------------------------------------------------------------------


def test_aggregate_at_the_end(stream: Stream) -> None:
    totals = stream.key_by("word").aggregate(
        "totals", emit="end", rows=seep.count(), total=seep.sum("n"), least=seep.min("n"), most=seep.max("n")
    )
    groups = {word: [row["n"] for row in ROWS if row["word"] == word] for word in "abc"}
    assert result(totals) == [
        {"word": word, "rows": len(ns), "total": sum(ns), "least": min(ns), "most": max(ns)}
        for word, ns in groups.items()
    ]


def test_aggregate_as_it_changes(stream: Stream) -> None:
    counted = result(stream.key_by("word").aggregate("count", n=seep.count()))
    assert len(counted) > 3
    assert last_by_word(counted, "n") == Counter(row["word"] for row in ROWS)


def test_mean_first_and_last(stream: Stream) -> None:
    made = stream.key_by("word").aggregate(
        "made", emit="end", mean=seep.mean("n"), first=seep.first("n"), last=seep.last("n")
    )
    assert result(made) == [
        {"word": "a", "mean": 4.5, "first": 1, "last": 8},
        {"word": "b", "mean": 3.5, "first": 2, "last": 5},
        {"word": "c", "mean": 5.5, "first": 4, "last": 7},
    ]


def test_several_key_columns(stream: Stream) -> None:
    counted = stream.key_by("word", "n").aggregate("count", emit="end", times=seep.count())
    assert {(row["word"], row["n"]): row["times"] for row in result(counted)} == Counter(
        (row["word"], row["n"]) for row in ROWS
    )


def test_tumbling_windows(stream: Stream) -> None:
    counted = stream.key_by("word").window(seep.tumbling(5)).aggregate("count", n=seep.count())
    assert counted.schema.names == ["word", "window_start", "window_end", "n"]
    assert counted.keys == ("word",)
    expected = Counter((row["word"], row["at"] // 5 * 5) for row in ROWS)
    found = {(row["word"], row["window_start"]): row["n"] for row in result(counted)}
    assert found == expected


def test_sliding_windows(stream: Stream) -> None:
    counted = stream.key_by("word").window(seep.sliding(6, 2)).aggregate("count", n=seep.count())
    expected = Counter(
        (row["word"], start) for row in ROWS for start in range(-6, 30, 2) if start <= row["at"] < start + 6
    )
    assert {(row["word"], row["window_start"]): row["n"] for row in result(counted)} == expected


def test_session_windows(query: Query) -> None:
    times = {"a": [0, 1, 2, 9, 10], "b": [3, 4, 12]}
    given = sorted(({"word": w, "n": 1, "at": at} for w, ats in times.items() for at in ats), key=lambda row: row["at"])
    stream = query.source("rows", script(*in_epochs(given), time="at"))
    sessions = stream.key_by("word").window(seep.session(4)).aggregate("count", n=seep.count())
    assert [tuple(row.values()) for row in result(sessions)] == [
        ("a", 0, 6, 3),
        ("a", 9, 14, 2),
        ("b", 12, 16, 1),
        ("b", 3, 8, 2),
    ]


def test_windows_of_timestamps(query: Query) -> None:
    at = pa.array([0, 999, 1_000, 2_500], pa.timestamp("ms"))
    stream = query.source("rows", script(pa.record_batch({"k": [1] * 4, "at": at}), time="at"))
    counted = stream.key_by("k").window(seep.tumbling("1 s")).aggregate("count", n=seep.count())
    assert counted.schema.field("window_start").type == pa.timestamp("ms")
    assert [row["n"] for row in result(counted)] == [2, 1, 1]


def test_windows_of_windows(stream: Stream) -> None:
    counted = stream.key_by("word").window(seep.tumbling(4)).aggregate("count", n=seep.count())
    again = (
        counted.event_time("window_end").key_by("word").window(seep.tumbling(8, 4)).aggregate("sum", n=seep.sum("n"))
    )
    assert sum(row["n"] for row in result(again)) == len(ROWS)


def test_a_row_may_come_late_within_the_lateness(query: Query) -> None:
    given = [{"word": "a", "n": 1, "at": at} for at in (1, 9, 2, 25, 3)]
    stream = query.source("rows", script(*in_epochs(given, 1), time="at"))
    counted = stream.key_by("word").window(seep.tumbling(5, lateness=10)).aggregate("count", n=seep.count())
    assert [row["n"] for row in result(counted) if row["window_start"] == 0] == [1, 2]


def test_reduce(stream: Stream) -> None:
    longest = stream.key_by("word").reduce("most", lambda a, b: max(a, b, key=lambda row: row["n"]), emit="end")
    assert [(row["word"], row["n"]) for row in result(longest)] == [("a", 8), ("b", 5), ("c", 7)]


def test_state_machine(stream: Stream) -> None:
    def fold(last: int | None, row: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        rises = last is not None and row["n"] > last
        return row["n"], {"word": row["word"], "by": row["n"] - (last or 0)} if rises else None

    schema = pa.schema([("word", pa.string()), ("by", pa.int64())])
    rises = result(stream.key_by("word").state_machine("rises", fold, schema, state_type=pa.int64()))
    assert rises == ordered(
        [{"word": "a", "by": by} for by in (2, 3, 2) * 3] + [{"word": "b", "by": 3}] * 3 + [{"word": "c", "by": 3}] * 3
    )


# -- operators of the user's own -------------------------------------------------------------------------------------


class Absent(seep.Operator):
    """Tells after which rows a key had no other for some time; each notification is about one row."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def output(self, inputs: Sequence[Any]) -> pa.Schema:
        return pa.schema([inputs[0].schema.field("word"), ("since", pa.int64())])

    def open(self, context: seep.Context) -> None:
        self.times = context.values("times")

    def process(self, inputs: seep.Inputs) -> None:
        for row in inputs.in_sequence().to_pylist():
            self.times.setdefault(row["word"], []).append(row["at"])
            self.notify(row["at"] + self.patience, row["word"], row["at"])

    def on_notify(self, due: pa.RecordBatch, inputs: seep.Inputs) -> dict[str, Any]:  # noqa: ARG002
        silent = [(w, at) for until, w, at in self.records(due) if not any(at < t <= until for t in self.times[w])]
        return {"word": pa.array([w for w, _ in silent], pa.string()), "since": [at for _, at in silent]}


class Enrich(seep.StatelessOperator):
    """Binary, without state: both streams, one above the other."""

    ports = 2

    def output(self, inputs: Sequence[Any]) -> pa.Schema:
        return pa.schema([*inputs[0].schema, ("port", pa.int64())])

    def process(self, inputs: seep.Inputs) -> pa.Table:
        return pa.concat_tables(
            pa.Table.from_batches([batch.append_column("port", pa.array([port] * len(batch), pa.int64()))])
            for port, batch in enumerate(inputs)
        )


@pytest.mark.parametrize("made", [Absent(3), lambda: Absent(3)], ids=["object", "factory"])
def test_an_operator_with_state_and_notifications(stream: Stream, made: Any) -> None:
    times = {word: [row["at"] for row in ROWS if row["word"] == word] for word in "abc"}
    expected = [
        {"word": word, "since": at}
        for word, ats in times.items()
        for at, following in zip(ats, [*ats[1:], 10**6], strict=True)
        if following - at > 3
    ]
    assert result(stream.key_by("word").apply("absent", made)) == ordered(expected)


def test_an_operator_of_two_streams(stream: Stream) -> None:
    big, small = (
        stream.filter(name, test) for name, test in (("big", pc.field("n") > 4), ("small", pc.field("n") <= 4))
    )
    both = big.apply("both", Enrich, small)
    assert both.time is None
    assert result(both) == ordered([{**row, "port": int(row["n"] <= 4)} for row in ROWS])


def test_an_operator_of_one_stream_keeps_the_event_time(stream: Stream) -> None:
    class Same(seep.StatelessOperator):
        def output(self, inputs: Sequence[Any]) -> pa.Schema:
            return inputs[0].schema

        def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
            return inputs[0]

    same = stream.apply("same", Same)
    assert same.time == "at"
    assert result(same) == ordered(ROWS)


def test_an_operator_may_hand_rows_to_the_dead_letters() -> None:
    class Picky(seep.Operator):
        def output(self, inputs: Sequence[Any]) -> pa.Schema:
            return inputs[0].schema

        def process(self, inputs: seep.Inputs) -> None:
            for row in inputs[0].to_pylist():
                self.fail(row, ValueError("not good enough"))

    query = seep.Query("test", on_error="dead-letters")
    stream = query.source("rows", script(*in_epochs(), time="at"))
    stream.key_by("word").apply("picky", Picky).sink("out", seep.sinks.collect())
    tables = run(query)
    assert (tables["out"].num_rows, tables["dead-letters"].num_rows) == (0, len(ROWS))


# -- several streams ---------------------------------------------------------------------------------------------------


def pairs_where(meet: Any) -> Counter[tuple[str, int, int]]:
    return Counter((a["word"], a["at"], b["at"]) for a in ROWS for b in ROWS if a["word"] == b["word"] and meet(a, b))


def joined(stream: Stream, **how: Any) -> Counter[tuple[str, int, int]]:
    left = stream.select("left", ["word", "at"]).key_by("word")
    right = stream.select("right", {"term": "word", "at": "at"}).key_by("term")
    found = result(left.join("join", right, **how))
    return Counter((row["word"], row["at"], row["at_right"]) for row in found)


def test_a_join_of_all_pairs(stream: Stream) -> None:
    assert joined(stream) == pairs_where(lambda *_: True)


def test_a_join_in_windows(stream: Stream) -> None:
    assert joined(stream, window=seep.tumbling(6)) == pairs_where(lambda a, b: a["at"] // 6 == b["at"] // 6)


def test_a_join_within_a_distance(stream: Stream) -> None:
    assert joined(stream, between=(-2, 5)) == pairs_where(lambda a, b: -2 <= b["at"] - a["at"] <= 5)


def test_a_stream_joined_with_itself(stream: Stream) -> None:
    keyed = stream.select("few", ["word", "at"]).key_by("word")
    found = result(keyed.join("self", keyed, window=seep.tumbling(6)))
    meant = pairs_where(lambda a, b: a["at"] // 6 == b["at"] // 6)
    assert Counter((row["word"], row["at"], row["at_right"]) for row in found) == meant


def test_pairs_have_no_event_time_until_they_are_given_one(stream: Stream) -> None:
    left, right = stream.key_by("word"), stream.select("right", ["word", "at"]).key_by("word")
    pairs = left.join("join", right, window=seep.tumbling(6))
    assert pairs.time is None
    later = pairs.select("later", {"word": "word", "at": pc.max_element_wise(pc.field("at"), pc.field("at_right"))})
    counted = later.event_time("at").key_by("word").window(seep.tumbling(6)).aggregate("count", n=seep.count())
    assert sum(row["n"] for row in result(counted)) == pairs_where(lambda a, b: a["at"] // 6 == b["at"] // 6).total()


def test_union(query: Query, stream: Stream) -> None:
    others = [{"word": "z", "n": n, "at": n} for n in range(5)]
    both = stream.key_by("word").union(query.source("others", script(*in_epochs(others), time="at")))
    assert (both.keys, both.time) == ((), "at")
    assert result(both) == ordered([*ROWS, *others])


def test_a_union_of_streams_with_one_key_has_it_too(stream: Stream) -> None:
    big, small = (
        stream.filter(name, test) for name, test in (("big", pc.field("n") > 4), ("small", pc.field("n") <= 4))
    )
    both = big.key_by("word").union(small.key_by("word"))
    counted = both.aggregate("count", emit="end", n=seep.count())
    assert [(row["word"], row["n"]) for row in result(counted)] == sorted(Counter(row["word"] for row in ROWS).items())


def test_a_stream_feeds_several_operators_and_sinks(stream: Stream) -> None:
    stream.sink("raw", seep.sinks.collect())
    stream.filter("big", pc.field("n") > 4).sink("big-rows", seep.sinks.collect())
    stream.key_by("word").aggregate("count", emit="end", n=seep.count()).sink("counts", seep.sinks.collect())
    tables = run(stream.query)
    assert {name: table.num_rows for name, table in tables.items()} == {
        "raw": len(ROWS),
        "big-rows": sum(row["n"] > 4 for row in ROWS),
        "counts": 3,
    }


# -- errors in functions -----------------------------------------------------------------------------------------------


def reciprocal(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"r": [840 // (n - 4) for n in batch["n"].to_pylist()]}


def test_a_failing_function_stops_the_run_and_shows_the_row(stream: Stream) -> None:
    with pytest.raises(
        seep.UserCodeFailed, match=r"instance divide\[\d\] failed in epoch 2: ZeroDivisionError"
    ) as failure:
        result(stream.map("divide", reciprocal, schema=pa.schema([("r", pa.int64())])))
    assert failure.value.rows == [ROWS[3]]


def test_failing_rows_go_to_the_dead_letters_and_the_rest_goes_on() -> None:
    query = seep.Query("test", on_error="dead-letters")
    stream = query.source("rows", script(*in_epochs(), time="at"))
    stream.map("divide", reciprocal, schema=pa.schema([("r", pa.int64())])).sink("out", seep.sinks.collect())
    tables = run(query)
    assert Counter(tables["out"]["r"].to_pylist()) == Counter(840 // (row["n"] - 4) for row in ROWS if row["n"] != 4)
    letters = tables["dead-letters"].to_pylist()
    assert len(letters) == 3
    assert {letter["operator"] for letter in letters} == {"divide"}
    assert letters[0]["row"] == '{"word": "c", "n": 4, "at": 3}'


def test_one_operator_may_have_dead_letters_while_others_stop(stream: Stream) -> None:
    divided = stream.map("divide", reciprocal, schema=pa.schema([("r", pa.int64())]), on_error="dead-letters")
    divided.map(
        "fail",
        lambda batch: {"r": [1 // int(r != 840) for r in batch["r"].to_pylist()]},
        pa.schema([("r", pa.int64())]),
    ).sink("out", seep.sinks.collect())
    with pytest.raises(seep.UserCodeFailed, match=r"fail\[\d\]"):
        run(stream.query)


def test_dead_letters_go_where_the_query_says() -> None:
    seen: list[pa.Table] = []
    letters = seep.sinks.callback(lambda _, table: seen.append(table))
    query = seep.Query("test", on_error="dead-letters", dead_letters=letters)
    stream = query.source("rows", script(*in_epochs(), time="at"))
    stream.each("fail", lambda row: {"n": 1 // (row["n"] - 4)}, pa.schema([("n", pa.int64())])).sink(
        "out", seep.sinks.discard()
    )
    program = query.compile()
    assert run(program)["dead-letters"].num_rows == sum(table.num_rows for table in seen) == 3


def test_no_dead_letters_without_code_that_could_fail() -> None:
    query = seep.Query("test", on_error="dead-letters")
    query.source("rows", script(*in_epochs(), time="at")).sink("out", seep.sinks.collect())
    assert set(run(query)) == {"out"}


# -- the program -------------------------------------------------------------------------------------------------------


def test_a_source_gets_as_many_slots_as_its_partitions_need() -> None:
    query = seep.Query("test", parallelism=4)
    table = pa.table({"n": list(range(100))})
    stream = query.source("five", seep.sources.memory(table, partitions=5))
    stream.sink("out", seep.sinks.collect())
    program = query.compile()
    assert program.graph.operators["five"].slot_bits == 3
    assert program.parallelism == {"five": 4, "out": 4}
    assert rows(run(program)["out"]) == rows(table)


def test_the_default_parallelism_is_cut_to_the_number_of_slots() -> None:
    query = seep.Query("test", parallelism=4)
    stream = query.source("one", script(*in_epochs(), time="at"))
    stream.key_by("word").aggregate("count", slot_bits=1, n=seep.count()).sink("out", seep.sinks.collect())
    assert query.compile(parallelism={"out": 2}).parallelism == {"one": 1, "count": 2, "out": 2}


def test_rates_and_epochs_reach_the_sources() -> None:
    query = seep.Query("test")
    for name in ("a", "b"):
        stream = query.source(name, script(*in_epochs(), time="at"), rate=5)
        stream.sink(f"{name}-out", seep.sinks.discard())
    given = query.compile(rate={"b": seep.Rate(7.0)}, epoch_seconds=0.02).sources
    assert [(given[n][1].rate, given[n][1].epoch_seconds) for n in "ab"] == [
        (seep.Rate(5.0), 0.02),
        (seep.Rate(7.0), 0.02),
    ]
    everywhere = query.compile(rate=9).sources
    assert {setting.rate for _, setting in everywhere.values()} == {seep.Rate(9.0)}


def test_rows_that_cannot_be_hashed_whole_are_spread_by_the_columns_that_can() -> None:
    batch = pa.record_batch({"n": list(range(20)), "tags": [["x"]] * 20})
    query = seep.Query("test", parallelism=3)
    query.source("rows", script(batch)).map("same", lambda b: b).sink("out", seep.sinks.collect())
    assert rows(run(query)["out"]) == rows(pa.Table.from_batches([batch]))


def test_a_program_travels_as_spark_sends_functions(stream: Stream) -> None:
    least = 3  # a function that holds on to something
    kept = stream.filter("big", lambda batch: pc.greater(batch["n"], least))
    kept.key_by("word").aggregate("count", emit="end", n=seep.count()).sink("out", seep.sinks.collect())
    program = stream.query.compile()
    arrived = cloudpickle.loads(cloudpickle.dumps(program))
    assert rows(run(arrived)["out"]) == rows(run(program)["out"])


def test_a_query_can_be_compiled_twice(stream: Stream) -> None:
    stream.key_by("word").aggregate("count", emit="end", n=seep.count()).sink("out", seep.sinks.collect())
    first, second = (run(stream.query, parallelism={"count": 1 + i}) for i in range(2))
    assert rows(first["out"]) == rows(second["out"])


# -- the package -------------------------------------------------------------------------------------------------------


def test_importing_seep_imports_nothing_heavy() -> None:
    code = "import sys, seep; print([m for m in ('pyarrow', 'numba', 'pyspark', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_is_there() -> None:
    for name in seep.__all__:
        assert getattr(seep, name) is not None
    assert set(seep.__all__) <= set(dir(seep))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'seep' has no attribute 'Qeury'"):
        seep.Qeury  # type: ignore[attr-defined]  # noqa: B018
