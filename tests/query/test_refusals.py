"""What is wrong with a query is said before anything starts, with the operator's name and what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seep
from seep.query.query import Query
from seep.query.stream import Stream

WORDS = pa.record_batch({"word": ["a"], "n": [1], "at": pa.array([0], pa.timestamp("us"))})
NUMBERS = pa.record_batch({"word": ["a"], "tick": [7]})


@pytest.fixture
def query() -> Query:
    return seep.Query("test")


@pytest.fixture
def words(query: Query) -> Stream:
    return query.source("words", seep.sources.memory(WORDS, time="at"))


@pytest.fixture
def numbers(query: Query) -> Stream:
    return query.source("numbers", seep.sources.memory(NUMBERS, time="tick"))


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def refused(match: str) -> Any:
    return pytest.raises(seep.UserError, match=match)


def to_sink(stream: Stream, name: str = "out") -> None:
    stream.sink(name, seep.sinks.collect())


# -- names and ends ----------------------------------------------------------------------------------------------------


def test_two_operators_of_one_name(words: Stream) -> None:
    words.map("split", same)
    with refused("query 'test' already has an operator 'split'; names must differ"):
        words.filter("split", pc.field("n") > 0)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a[0]", "-x", ".x", "wörter"])
def test_a_name_that_could_not_stand_in_a_path_or_option(words: Stream, name: str) -> None:
    with refused("cannot be the name of an operator; use letters, digits"):
        words.map(name, same)


def test_a_forgotten_name(words: Stream) -> None:
    with refused("an operator's name comes first and is text"):
        words.map(same, "split")  # type: ignore[arg-type]


def test_the_name_of_the_dead_letters_is_taken(words: Stream) -> None:
    with refused(r"the name 'dead-letters' is for the query's own sink; say seep.Query\(…, dead_letters=…\)"):
        to_sink(words, "dead-letters")


def test_no_source(query: Query) -> None:
    with refused("query 'test' has no source; begin with query.source"):
        query.compile()


def test_no_sink(query: Query, words: Stream) -> None:
    words.map("split", same)
    with refused("query 'test' has no sink; end a stream with stream.sink"):
        query.compile()


def test_a_stream_that_nobody_reads(query: Query, words: Stream) -> None:
    words.map("lost", same)
    to_sink(words)
    with refused("nothing reads the stream of 'lost'; end it with .sink"):
        query.compile()


def test_a_source_that_nobody_reads(query: Query, words: Stream, numbers: Stream) -> None:  # noqa: ARG001
    to_sink(words)
    with refused("nothing reads the stream of 'numbers'"):
        query.compile()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, _: q.source("x", "/data"), "source 'x': '/data' is not a source; use one of seep.sources"),
        (lambda _, w: w.sink("x", "/data"), "sink 'x': '/data' is not a sink; use one of seep.sinks"),
        (lambda _, w: w.apply("x", same), "operator 'x': <function same .* makes no operator"),
        (lambda _, w: w.apply("x", dict), "operator 'x': {} is not an operator; make an object of a subclass"),
        (lambda _, w: w.apply("x", 5), "operator 'x': 5 is not an operator; give it a subclass of seep.Operator"),
        (lambda _, w: w.key_by("word").window("30 s"), "'30 s' is not a window; write seep.tumbling"),
        (
            lambda _, w: w.key_by("word").aggregate("x", n="count"),
            "column 'n' is to be 'count', which is not an aggregate",
        ),
        (lambda _, w: w.key_by("word").aggregate("x"), "operator 'x' has nothing to work out; name columns"),
    ],
)
def test_things_of_another_kind(query: Query, words: Stream, call: Callable[..., Any], message: str) -> None:
    with refused(message):
        call(query, words)


# -- columns -----------------------------------------------------------------------------------------------------------


def test_an_unknown_key_column(words: Stream) -> None:
    with refused("key_by: the stream of 'words' has no column 'wrod'; it has word, n, at"):
        words.key_by("wrod")


def test_no_key_column_at_all(words: Stream) -> None:
    with refused("key_by on the stream of 'words' needs at least one column; it has word, n, at"):
        words.key_by()


def test_a_key_column_named_twice(words: Stream) -> None:
    with refused("names a column twice: word, word"):
        words.key_by("word", "word")


def test_a_key_that_cannot_be_hashed(query: Query) -> None:
    lists = query.source("lists", seep.sources.memory(pa.record_batch({"tags": [["a"]]})))
    with refused("column 'tags' of the stream of 'lists' is a list<.*>, which cannot be a key; cast it"):
        lists.key_by("tags")


def test_an_unknown_column_in_an_expression(words: Stream) -> None:
    with refused("operator 'big' uses column 'm', which its input lacks"):
        words.filter("big", pc.field("m") > 3)


def test_an_unknown_column_in_a_selection(words: Stream) -> None:
    with refused("operator 'few' uses column 'm', which its input lacks"):
        words.select("few", ["word", "m"])


def test_an_unknown_column_in_an_aggregate(words: Stream) -> None:
    with refused("operator 'total' uses column 'm', which its input lacks"):
        words.key_by("word").aggregate("total", s=seep.sum("m"))


def test_a_column_that_does_not_fit_an_aggregate(words: Stream) -> None:
    with refused(r"operator 'total': sum\(word\) needs integers, floats or decimal128, and column 'word' is string"):
        words.key_by("n").aggregate("total", s=seep.sum("word"))


def test_two_columns_of_one_name(words: Stream) -> None:
    with refused("operator 'twice' puts out several columns called a; rename them"):
        words.map("twice", same, schema=pa.schema([("a", pa.int64()), ("a", pa.int64())]))


def test_a_function_whose_columns_cannot_be_found(words: Stream) -> None:
    with refused("operator 'first': its function fails for an empty batch, .*pass schema="):
        words.map("first", lambda batch: {"first": [batch["word"][0]]})


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda s, _: s.aggregate("x", n=seep.count()),
        lambda s, _: s.window(seep.tumbling("1 s")).aggregate("x", n=seep.count()),
        lambda s, _: s.reduce("x", max),
        lambda s, _: s.state_machine("x", divmod, schema=pa.schema([("n", pa.int64())])),
        lambda s, other: s.join("x", other.key_by("word")),
        lambda s, other: other.key_by("word").join("x", s),
    ],
)
def test_state_without_a_key(words: Stream, use: Callable[[Stream, Stream], Any]) -> None:
    other = words.map("other", same)
    with refused("operator 'x' keeps state by key, and the stream of 'words' has no key; write key_by"):
        use(words, other)


def test_a_key_that_was_lost_on_the_way(words: Stream) -> None:
    unkeyed = words.key_by("word").select("only-n", ["n"])
    with refused("operator 'count' keeps state by key, and the stream of 'only-n' has no key"):
        unkeyed.aggregate("count", n=seep.count())


def test_keys_of_different_types(words: Stream, query: Query) -> None:
    names = query.source("names", seep.sources.memory(pa.record_batch({"id": [1], "name": ["x"]})))
    with refused(
        r"operator 'j' needs keys of the same types on all its streams, and has 'words' by word \(string\) and 'names' "
        r"by id \(int64\); cast the key columns before key_by"
    ):
        words.key_by("word").join("j", names.key_by("id"))


def test_keys_of_different_numbers_of_columns(words: Stream) -> None:
    other = words.map("other", same)
    with refused("operator 'j' needs keys of the same types on all its streams"):
        words.key_by("word", "n").join("j", other.key_by("word"))


# -- event time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.key_by("word").window(seep.tumbling("1 s")).aggregate("x", n=seep.count()),
        lambda s: s.key_by("word").window(seep.session("1 s")).aggregate("x", n=seep.count()),
        lambda s: s.key_by("word").join("x", s.map("other", same).key_by("word"), window=seep.tumbling("1 s")),
        lambda s: s.key_by("word").join("x", s.map("other", same).key_by("word"), between=("0 s", "1 s")),
        lambda s: s.key_by("word").aggregate("x", first=seep.first("n")),
    ],
)
def test_event_time_where_there_is_none(words: Stream, use: Callable[[Stream], Any]) -> None:
    timeless = words.select("timeless", ["word", "n"])
    assert timeless.time is None
    with refused("operator 'x'.* (has no event time|goes by event time)"):
        use(timeless)


def test_a_source_whose_time_column_is_not_there(query: Query) -> None:
    with refused("operator 'x' has no column 'when' to take the event time from, only word, n, at"):
        query.source("x", seep.sources.memory(WORDS, time="when"))


def test_a_source_whose_time_column_is_text(query: Query) -> None:
    with refused("operator 'x': column 'word' is a string and cannot be the event time; cast it"):
        query.source("x", seep.sources.memory(WORDS, time="word"))


def test_times_that_are_text_in_a_file_of_json_become_times_by_the_schema_that_the_error_asks_for(
    query: Query, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"at": "2026-01-31T12:00:00.25Z", "n": 1}\n')
    with refused(r"'x': column 'at' is a string.*give schema=pa.schema\(\[\('at', pa.timestamp\('us', 'UTC'\)\)"):
        query.source("x", seep.sources.json_lines(path, time="at"))
    with refused(r"column 'at' is a string .* make it an integer or a timestamp in schema="):
        query.source("x", seep.sources.json_lines(path, time="at", schema=pa.schema([("at", pa.string())])))
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    rows = query.source("x", seep.sources.json_lines(path, time="at", schema=schema))
    assert seep.testing.preview(rows)["at"].cast(pa.int64()).to_pylist() == [1769860800250000]


def test_an_operator_that_does_not_say_what_it_puts_out(words: Stream) -> None:
    class Silent(seep.Operator):
        def process(self, inputs: seep.Inputs) -> Any:
            return inputs[0]

    with refused(r"operator 'x': Silent does not say which columns .* output\(self, inputs\) that returns a pyarrow"):
        words.key_by("word").apply("x", Silent)


def test_integers_and_timestamps_that_meet_in_one_operator(words: Stream, numbers: Stream) -> None:
    with refused(
        "operator 'j' reads streams whose event times cannot be compared: timestamps behind 'words' and integers "
        "behind 'numbers'; use timestamps in all sources, or integers in all"
    ):
        words.key_by("word").join("j", numbers.key_by("word"))


def test_they_meet_even_when_the_columns_are_gone(words: Stream, numbers: Stream) -> None:
    """The watermarks go on."""
    with refused("operator 'union' reads streams whose event times cannot be compared"):
        words.select("a", ["word"]).union(numbers.select("b", ["word"]))


def test_an_event_time_that_no_watermark_goes_with(query: Query, words: Stream) -> None:
    untimed = query.source("untimed", seep.sources.memory(NUMBERS))
    with refused("'untimed' has no watermarks, as no source has an event time; column 'tick'"):
        untimed.event_time("tick")
    with refused(r"'words' has watermarks in timestamps; column 'n' \(int64\) cannot be its event time"):
        words.event_time("n")


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (lambda: seep.tumbling(30), "30 needs a unit, as the event time is a timestamp"),
        (lambda: seep.tumbling("0 s"), "must be greater than zero"),
        (lambda: seep.sliding("1 s", "2 s"), "leave rows out"),
        (lambda: seep.session("1 s", lateness="-1 s"), "cannot be negative"),
        (lambda: seep.tumbling("soon"), "'soon' is no length of time"),
    ],
)
def test_a_window_that_makes_no_sense(words: Stream, window: Callable[[], Any], message: str) -> None:
    with refused(f"operator 'x'.*{message}"):
        words.key_by("word").window(window()).aggregate("x", n=seep.count())


# -- several streams ---------------------------------------------------------------------------------------------------


def test_a_union_of_different_columns(words: Stream) -> None:
    other = words.select("other", {"word": "word", "n": pc.field("n").cast("float64"), "at": "at"})
    with refused(
        r"streams of 'words' and 'other' cannot be united, as their columns differ: n \(int64\) and n \(double\); make"
    ):
        words.union(other)


def test_a_union_with_a_column_more(words: Stream) -> None:
    with refused(r"columns differ: at \(timestamp\[us\]\) and none"):
        words.union(words.select("other", ["word", "n"]))


def test_a_union_with_nulls_where_the_other_has_none(query: Query) -> None:
    strict, loose = (pa.schema([pa.field("n", pa.int64(), nullable=nullable)]) for nullable in (False, True))
    a = query.source("a", seep.sources.memory(pa.record_batch({"n": [1]}, schema=strict)))
    b = query.source("b", seep.sources.memory(pa.record_batch({"n": [1]}, schema=loose)))
    with refused(r"columns differ: n \(int64, never null\) and n \(int64\)"):
        a.union(b)


def test_a_union_with_another_event_time(query: Query, words: Stream) -> None:
    untimed = query.source("untimed", seep.sources.memory(WORDS))
    with refused(
        r"'words' \(event time: at\) and 'untimed' \(event time: None\) cannot be united; name the same column"
    ):
        words.union(untimed)


def test_a_union_of_a_stream_with_itself(words: Stream) -> None:
    other = words.map("other", same)
    with refused("the stream of 'words' is twice in a union"):
        words.union(other, words)


def test_streams_of_two_queries(words: Stream) -> None:
    elsewhere = seep.Query("elsewhere").source("s", seep.sources.memory(WORDS, time="at"))
    with refused(r"operator 'union' would read streams of several queries \(elsewhere, test\)"):
        words.union(elsewhere)
    with refused("operator 'j' would read streams of several queries"):
        words.key_by("word").join("j", elsewhere.key_by("word"))


def test_a_join_with_what_is_no_stream(words: Stream) -> None:
    with refused("operator 'j' reads streams, not 'numbers'; give it a stream of the query"):
        words.key_by("word").join("j", "numbers")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"window": seep.tumbling("1 s"), "between": ("0 s", "1 s")}, "give window= or between=, not both"),
        ({"lateness": "1 s"}, "lateness= goes with between="),
        (
            {"window": seep.sliding("2 s", "1 s")},
            "streams are joined in tumbling windows, in sessions, or with between=",
        ),
        ({"between": ("0 s", "1 s"), "on_disk": True}, "on_disk= is for joins in tumbling windows"),
        ({"window": seep.session("2 s"), "on_disk": True}, "on_disk= is for joins in tumbling windows"),
        ({"between": ("2 s", "1 s")}, "exchange lower and upper"),
        (
            {"how": "left"},
            "joins are inner, and how='left' is not offered; a join takes aliases, between, lateness, on_disk, "
            "parallelism, slot_bits, window. For rows without a partner, apply",
        ),
        ({"how": "inner"}, "joins are inner always; leave out"),
        (
            {"on": "word"},
            "no option 'on'; a join takes aliases, between, lateness, on_disk, parallelism",
        ),
    ],
)
def test_a_join_that_makes_no_sense(words: Stream, how: dict[str, Any], message: str) -> None:
    with refused(f"operator 'j'.*{message}"):
        words.key_by("word").join("j", words.map("other", same).key_by("word"), **how)


# -- options and arguments ---------------------------------------------------------------------------------------------


def test_an_unknown_option(words: Stream) -> None:
    with refused("operator 'x' has no option 'paralelism'; it takes aliases, on_error, parallelism, slot_bits"):
        words.map("x", same, paralelism=2)  # type: ignore[call-arg]


def test_on_error_where_no_code_of_the_user_runs(words: Stream) -> None:
    with refused("operator 'x' has no option 'on_error'; a join takes aliases, between, lateness"):
        words.key_by("word").join("x", words.map("y", same).key_by("word"), on_error="stop")  # type: ignore[call-arg]


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2"])
def test_a_parallelism_that_is_no_number_of_instances(words: Stream, parallelism: Any) -> None:
    with refused("parallelism is .*; choose a whole number from 1 on"):
        words.map("x", same, parallelism=parallelism)


def test_more_instances_than_slots(query: Query, words: Stream) -> None:
    to_sink(words.map("x", same, slot_bits=2))
    with refused(r"operator 'x': parallelism is 5; choose 1 to 4, as it has 4 slots \(or give it more slot_bits\)"):
        query.compile(parallelism={"x": 5})


def test_more_instances_of_a_source_than_partitions(query: Query) -> None:
    to_sink(query.source("s", seep.sources.memory(WORDS), parallelism=2))
    with refused(r"operator 's': parallelism is 2; choose 1 to 1, as it has 1 slots \(its partitions\)"):
        query.compile()


def test_parallelism_for_an_unknown_operator(query: Query, words: Stream) -> None:
    to_sink(words)
    with refused("parallelism is given for 'wrods', which query 'test' does not have; it has words, out"):
        query.compile(parallelism={"wrods": 2})


def test_several_instances_that_rows_cannot_be_spread_over(query: Query) -> None:
    lists = query.source("lists", seep.sources.memory(pa.record_batch({"tags": [["a"]]})))
    to_sink(lists.map("x", same, parallelism=2))
    with refused("operator 'x' cannot have 2 instances: no column of the stream of 'lists' can be hashed"):
        query.compile()


def test_slot_bits_out_of_range(words: Stream, query: Query) -> None:
    to_sink(words.map("x", same, slot_bits=21))
    with refused("operator 'x': slot_bits is 21; choose 0 to 20"):
        query.compile()
    with refused("slot_bits is 21"):
        seep.Query("q", slot_bits=21)


def test_an_unknown_policy_for_errors(words: Stream) -> None:
    with refused("operator 'x': on_error is 'ignore'; choose 'stop' or 'dead-letters'"):
        words.map("x", same, on_error="ignore")  # type: ignore[arg-type]
    with refused("query 'q': on_error is 'ignore'"):
        seep.Query("q", on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0, -5, "fast"])
def test_a_rate_that_is_none(query: Query, words: Stream, rate: Any) -> None:
    to_sink(words)
    with refused("the rate .* is not a number of rows per second above 0"):
        query.source("x", seep.sources.memory(WORDS), rate=rate)
    with refused("source 'words': the rate"):
        query.compile(rate=rate)


def test_a_rate_for_what_is_no_source(query: Query, words: Stream) -> None:
    to_sink(words)
    with refused("a rate is given for 'out', which is not a source; the sources are words"):
        query.compile(rate={"out": 5})


def test_epochs_without_length(query: Query, words: Stream) -> None:
    to_sink(words)
    with refused("epochs last 0 seconds; choose a number above 0"):
        query.compile(epoch_seconds=0)


# -- what only shows when the query is compiled ------------------------------------------------------------------------


def test_a_function_that_cannot_be_sent_to_a_node(query: Query, words: Stream) -> None:
    lock = threading.Lock()
    to_sink(words.filter("x", lambda batch: [lock.locked()] * len(batch)))
    with refused(
        "operator 'x' cannot be sent to the nodes: cannot pickle '_thread.lock' object; its functions must not"
    ):
        query.compile()


def test_sources_and_sinks_look_at_what_is_outside(query: Query) -> None:
    class Empty(type(seep.sources.memory(WORDS))):  # type: ignore[misc]
        def check_data(self) -> None:
            raise seep.UserError("no file matches")

    to_sink(query.source("files", Empty(pa.table(WORDS), None, 0, 1)))
    with refused("source 'files': no file matches"):
        query.compile()
