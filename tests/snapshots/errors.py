"""Calls that users get wrong, with the error that each of them ends in. None of them needs Spark."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import seep
from policies.balance.registry import make_balancer
from policies.balance.settings import BalanceSettings
from policies.migration.move_stream import move_stream
from policies.scaling.registry import make_policy
from policies.scaling.settings import ScalingSettings
from primitives.errors import EnvironmentFault, SeepError, UserError
from primitives.slots import SlotSet
from seep import sinks, sources
from seep.config.files import read_policy
from seep.inspection.stored import Stored
from seep.running.chaos import parse_chaos
from seep.storage.catalogue import Catalogue
from seep.storage.location import open_store
from seep.testing import BackUp, InProcess, Kill, Pause, Restart, Savepoint, Scale, script
from tests.storage import manifests

WORDS = pa.record_batch({"word": ["a"], "n": [1], "at": pa.array([0], pa.timestamp("us"))})
NUMBERS = pa.record_batch({"word": ["a"], "tick": [7]})


class Scene:
    """What the calls below are made on."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.query = seep.Query("test")
        self.words = self.query.source("words", sources.memory(WORDS, time="at"))
        self.keyed = self.words.key_by("word")

    def source(self, definition: Any, name: str = "more") -> seep.Stream:
        return self.query.source(name, definition)

    def numbers(self) -> seep.Stream:
        return self.source(sources.memory(NUMBERS, time="tick"), "numbers")

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.place / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def compiled(self, definition: Any) -> None:
        """A query of one source, as it is checked before a run."""
        query = seep.Query("one")
        query.source("more", definition).sink("out", sinks.discard())
        query.compile()

    def in_process(self, *items: Any) -> InProcess:
        query = seep.Query("scripted")
        query.source("lines", script(*items)).key_by("word").aggregate("counter", n=seep.count()).sink(
            "out", sinks.collect()
        )
        return InProcess(query)

    def opened(self, use: Callable[[seep.Context], object]) -> None:
        """An operator that asks its context for something."""
        self.keyed.apply("x", _Opening(use))

    def policy(self, text: str) -> None:
        read_policy(self.file("policy.yaml", text))

    def catalogue(self) -> Catalogue[manifests.Info]:
        return manifests.catalogue(open_store(f"memory://{self.place.name}"))


class _Opening(seep.Operator):
    def __init__(self, use: Callable[[seep.Context], object]) -> None:
        self._use = use

    def open(self, context: seep.Context) -> None:
        self._use(context)

    def output(self, inputs: Any) -> pa.Schema:
        return inputs[0].schema


class _Silent(seep.Operator):
    def process(self, inputs: seep.Inputs) -> Any:
        return inputs[0]


class _Half(_Silent):
    def output(self, inputs: Any) -> pa.Schema:
        return inputs[0].schema

    def get_processing_state(self, slots: Any) -> dict[int, int]:  # noqa: ARG002
        return {}


class _Elsewhere(_Silent):
    """Writes under a key of which no row came."""

    def output(self, inputs: Any) -> pa.Schema:
        return inputs[0].schema

    def open(self, context: seep.Context) -> None:
        self.counts = context.values("counts")

    def process(self, inputs: seep.Inputs) -> Any:
        self.counts["another"] = 1
        return inputs[0]


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


INT = pa.int64()
#: What a call ends in that does not end as it should.
NONE, NOT_OURS = "[no error]", "[not an error of seep]"
Call = Callable[[Scene], object]

QUERIES: dict[str, Call] = {
    "two operators of one name": lambda s: (s.words.map("a", same), s.words.filter("a", pc.field("n") > 0)),
    "a name with a space": lambda s: s.words.map("a b", same),
    "a forgotten name": lambda s: s.words.map(same, "split"),  # type: ignore[arg-type]
    "the name of the dead letters": lambda s: s.words.sink("dead-letters", sinks.collect()),
    "a query without a source": lambda _: seep.Query("empty").compile(),
    "a query without a sink": lambda s: (s.words.map("a", same), s.query.compile()),
    "a stream that nobody reads": lambda s: (
        s.words.map("lost", same),
        s.words.sink("o", sinks.collect()),
        s.query.compile(),
    ),
    "a path as a source": lambda s: s.query.source("x", "/data"),  # type: ignore[arg-type]
    "a path as a sink": lambda s: s.words.sink("x", "/data"),  # type: ignore[arg-type]
    "a number as an operator": lambda s: s.words.apply("x", 5),  # type: ignore[arg-type]
    "a function as an operator": lambda s: s.words.apply("x", same),  # type: ignore[arg-type]
    "a dictionary as an operator": lambda s: s.words.apply("x", dict),  # type: ignore[arg-type]
    "a text as a window": lambda s: s.keyed.window("30 s"),  # type: ignore[arg-type]
    "a text as an aggregate": lambda s: s.keyed.aggregate("x", n="count"),  # type: ignore[arg-type]
    "no aggregate": lambda s: s.keyed.aggregate("x"),
    "an option that no operator has": lambda s: s.words.map("x", same, paralellism=2),  # type: ignore[call-arg]
    "a parallelism of nought": lambda s: s.words.map("x", same, parallelism=0),
    "more instances than slots": lambda s: (
        s.keyed.aggregate("x", n=seep.count(), slot_bits=1, parallelism=4).sink("o", sinks.collect()),
        s.query.compile(),
    ),
    "a parallelism for nobody": lambda s: (s.words.sink("o", sinks.collect()), s.query.compile(parallelism={"x": 2})),
    "a rate for nobody": lambda s: (s.words.sink("o", sinks.collect()), s.query.compile(rate={"x": 2})),
    "epochs of no length": lambda s: (s.words.sink("o", sinks.collect()), s.query.compile(epoch_seconds=0)),
    "another way to treat errors": lambda _: seep.Query("q", on_error="ignore"),  # type: ignore[arg-type]
    "too many slots": lambda _: seep.Query("q", slot_bits=30),
    "an alias of itself": lambda s: s.keyed.aggregate("x", n=seep.count(), aliases=["x"]),
    "aliases that are a text": lambda s: s.keyed.aggregate("x", n=seep.count(), aliases="old"),
    "an alias in use": lambda s: (
        s.keyed.aggregate("x", n=seep.count(), aliases=["words"]).sink("o", sinks.collect()),
        s.query.compile(),
    ),
    "streams of two queries": lambda s: _two_queries(s),
    "a stream that is a text": lambda s: s.keyed.join("x", "words"),  # type: ignore[arg-type]
    "an operator that cannot travel": lambda s: (
        s.words.map("x", _with_a_lock()).sink("o", sinks.collect()),
        s.query.compile(),
    ),
    "an unknown key": lambda s: s.words.key_by("wrod"),
    "no key": lambda s: s.words.key_by(),
    "a key named twice": lambda s: s.words.key_by("word", "word"),
    "a key that is a list": lambda s: s.source(sources.memory(pa.record_batch({"tags": [["a"]]}))).key_by("tags"),
    "state without a key": lambda s: s.words.aggregate("x", n=seep.count()),
    "keys of different types": lambda s: s.keyed.join("x", s.numbers().key_by("tick")),
    "an unknown column in an expression": lambda s: s.words.filter("x", pc.field("m") > 3),
    "an unknown column in a selection": lambda s: s.words.select("x", ["word", "m"]),
    "a selection of nothing": lambda s: s.words.select("x", []),
    "a filter that is no condition": lambda s: s.words.filter("x", pc.field("n") + 1),
    "two columns of one name": lambda s: s.words.map("x", same, schema=pa.schema([("a", INT), ("a", INT)])),
    "a function that takes no empty batch": lambda s: s.words.map("x", lambda batch: {"first": [batch["word"][0]]}),
    "a function that returns a number": lambda s: s.words.map("x", lambda _: 5),
    "a function whose types do not show": lambda s: s.words.map("x", lambda _: {"a": []}),
    "a union of different columns": lambda s: s.words.union(s.words.select("few", ["word", "at"])),
    "a union of a stream with itself": lambda s: s.words.union(s.words),
    "a union with another event time": lambda s: s.words.union(s.source(sources.memory(WORDS))),
    "event times that cannot be compared": lambda s: s.keyed.join("x", s.numbers().key_by("word")),
    "an event time without watermarks": lambda s: s.source(sources.memory(NUMBERS)).event_time("tick"),
    "an operator without columns": lambda s: s.keyed.apply("x", _Silent),
}

OPERATORS: dict[str, Call] = {
    "a window without event time": lambda s: (
        s.source(sources.memory(NUMBERS)).key_by("word").window(seep.tumbling("1 s")).aggregate("x", n=seep.count())
    ),
    "the first without event time": lambda s: (
        s.source(sources.memory(NUMBERS)).key_by("word").aggregate("x", n=seep.first("tick"))
    ),
    "a window without a unit": lambda s: s.keyed.window(seep.tumbling(30)).aggregate("x", n=seep.count()),
    "a window with a unit over integers": lambda s: (
        s.numbers().key_by("word").window(seep.tumbling("1 s")).aggregate("x", n=seep.count())
    ),
    "a window of no length": lambda s: s.keyed.window(seep.tumbling("0 s")).aggregate("x", n=seep.count()),
    "a window that leaves rows out": lambda s: s.keyed.window(seep.sliding("1 s", "2 s")).aggregate(
        "x", n=seep.count()
    ),
    "a negative lateness": lambda s: s.keyed.window(seep.session("1 s", lateness="-1 s")).aggregate(
        "x", n=seep.count()
    ),
    "a length of time that is none": lambda s: s.keyed.window(seep.tumbling("soon")).aggregate("x", n=seep.count()),
    "a sum of text": lambda s: s.words.key_by("n").aggregate("x", s=seep.sum("word")),
    "a sum of an unknown column": lambda s: s.keyed.aggregate("x", s=seep.sum("m")),
    "a sum with an unknown overflow": lambda _: seep.sum("n", overflow="ignore"),  # type: ignore[arg-type]
    "an aggregate called as its key": lambda s: s.keyed.aggregate("x", word=seep.count()),
    "rows that come out at another time": lambda s: s.keyed.aggregate("x", emit="never", n=seep.count()),  # type: ignore[arg-type]
    "the highest of nothing": lambda s: s.keyed.window(seep.tumbling("1 s")).highest("x"),
    "the highest rows of sliding windows": lambda s: s.keyed.window(seep.sliding("2 s", "1 s")).highest("x", "n"),
    "the highest keys of sessions": lambda s: s.keyed.window(seep.session("1 s")).highest("x", n=seep.count()),
    "the highest mean": lambda s: s.keyed.window(seep.tumbling("1 s")).highest("x", n=seep.mean("n")),
    "the highest text": lambda s: s.keyed.window(seep.tumbling("1 s")).highest("x", "word"),
    "a left join": lambda s: s.keyed.join("x", s.keyed, how="left"),  # type: ignore[call-arg]
    "an inner join that says so": lambda s: s.keyed.join("x", s.keyed, how="inner"),  # type: ignore[call-arg]
    "a join with an unknown option": lambda s: s.keyed.join("x", s.keyed, on="word"),  # type: ignore[call-arg]
    "a join by window and distance": lambda s: s.keyed.join(
        "x", s.keyed, window=seep.tumbling("1 s"), between=("0 s", "1 s")
    ),
    "a lateness without a distance": lambda s: s.keyed.join("x", s.keyed, lateness="1 s"),
    "a join of sessions on disk": lambda s: s.keyed.join("x", s.keyed, window=seep.session("1 s"), on_disk=True),
    "a join in sliding windows": lambda s: s.keyed.join("x", s.keyed, window=seep.sliding("2 s", "1 s")),  # type: ignore[arg-type]
    "a join by a distance that is none": lambda s: s.keyed.join("x", s.keyed, between=("2 s", "1 s")),
    "half of a state of its own": lambda s: s.keyed.apply("x", _Half),
    "a map that returns too few rows": lambda s: seep.testing.preview(
        s.words.map("x", lambda batch: batch.slice(0, 0), schema=WORDS.schema)
    ),
    "a column of another type": lambda s: seep.testing.preview(
        s.words.map("x", lambda b: {"n": ["a"] * len(b)}, schema=pa.schema([("n", INT)]))
    ),
    "a column that is missing": lambda s: seep.testing.preview(
        s.words.map("x", lambda b: {"m": [1] * len(b)}, schema=pa.schema([("n", INT)]))
    ),
    "user code that fails": lambda s: seep.testing.preview(
        s.words.each("x", lambda row: 1 // (row["n"] - 1), pa.schema([("n", INT)]))
    ),
    "a fold that returns no pair": lambda s: seep.testing.preview(
        s.keyed.state_machine("x", lambda *_: 5, WORDS.schema)
    ),
    "state under the key of another": lambda s: seep.testing.preview(s.keyed.apply("x", _Elsewhere)),
    "an attribute that changes": lambda s: seep.testing.preview(s.keyed.apply("x", _Changing)),
    "a sum beyond its type": lambda s: seep.testing.preview(
        s.source(sources.memory(_too_much())).key_by("k").aggregate("x", s=seep.sum("n"))
    ),
}

STATE: dict[str, Call] = {
    "a container without a key": lambda s: s.words.apply("x", _Opening(lambda c: c.values("a"))),
    "two containers of one name": lambda s: s.opened(lambda c: (c.values("a"), c.rows("a", {"n": INT}))),
    "a column of lists in a frame": lambda s: s.opened(lambda c: c.frame("a", {"n": pa.list_(INT)})),
    "a column called as its key": lambda s: s.opened(lambda c: c.frame("a", {"word": INT})),
    "a default of no column": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}, defaults={"m": 1})),
    "a default of another type": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}, defaults={"n": "x"})),
    "aliases of a container that are a text": lambda s: s.opened(lambda c: c.values("a", aliases="old")),
    "aliases of a column that are a text": lambda _: seep.column(INT, aliases="old"),
    "encode without decode": lambda s: s.opened(lambda c: c.values("a", encode=str)),
    "a value that cannot be stored": lambda s: s.opened(lambda c: _unstorable(c.values("a"))),
    "a timer at no time": lambda s: s.opened(lambda c: c.timers("a").schedule("soon", "k")),  # type: ignore[arg-type]
    "times that are text": lambda s: s.opened(lambda c: c.timers("a").schedule_batch(["soon"], [["k"]])),
    "times that are null": lambda s: s.opened(lambda c: c.timers("a").schedule_batch([None], [["k"]])),
    "more times than values": lambda s: s.opened(
        lambda c: c.timers("a", INT).schedule_batch([1, 2], [["k", "l"]], [1])
    ),
    "a key of another type": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}).put([1.5], n=1)),
    "a key of two columns for one": lambda s: s.words.key_by("word", "n").apply(
        "x", _Opening(lambda c: c.values("a")["k"])
    ),
    "columns of different lengths": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}).put(["k", "l"], n=[1])),
    "an unknown value column": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}).put(["k"], m=1)),
    "a value of another type": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}).put(["k"], n=["x"])),
    "to add to text": lambda s: s.opened(lambda c: c.frame("a", {"t": pa.string()}).add(["k"], t="x")),
    "to add to 32 bits": lambda s: s.opened(lambda c: c.frame("a", {"n": pa.int32()}).add(["k"], n=1)),
    "a sum in a frame beyond its type": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}).add(["k", "k"], n=2**62)),
    "a row that is there already": lambda s: s.opened(
        lambda c: [c.frame("a", {}).append(pa.record_batch({"word": ["k", "k"]}))]
    ),
    "a row that is not there": lambda s: s.opened(lambda c: c.frame("a", {"n": INT}).take([5])),
    "rows without a column": lambda s: s.opened(lambda c: c.rows("a", {"m": INT}).add(WORDS)),
    "rows with a column of another type": lambda s: s.opened(lambda c: c.rows("a", {"n": pa.int8()}).add(WORDS)),
    "a column of rows that is taken": lambda s: s.opened(lambda c: c.rows("a", {"_seq": INT})),
}

SOURCES: dict[str, Call] = {
    "no files": lambda s: s.source(sources.parquet(s.place / "*.parquet")),
    "an address as a path": lambda _: sources.csv("s3://bucket/rows.csv"),
    "text that is no Parquet": lambda s: s.source(sources.parquet(s.file("rows.parquet", "text"))),
    "a column that the file lacks": lambda s: s.source(sources.parquet(_parquet(s), columns=["m"])),
    "a time column that the file lacks": lambda s: s.source(sources.parquet(_parquet(s), time="when")),
    "a time column that is text": lambda s: s.source(sources.parquet(_parquet(s), time="word")),
    "a time column of JSON that is text": lambda s: s.source(
        sources.json_lines(s.file("a.jsonl", '{"at": "2026-01-31T12:00:00.25Z", "n": 1}\n'), time="at")
    ),
    "JSON that is none": lambda s: seep.testing.preview(
        s.source(sources.json_lines(s.file("a.jsonl", '{"n": 1}\n{"n": \n'), schema=pa.schema([("n", INT)])))
    ),
    "JSON without columns that can be told": lambda s: s.source(sources.json_lines(s.file("a.jsonl", "[1]\n"))),
    "CSV without a column": lambda s: _columns_of(s, "word,n\na,1\n", pa.schema([("m", INT)])),
    "CSV with a row too short": lambda s: seep.testing.preview(s.source(sources.csv(s.file("a.csv", "w,n\na,1\nb\n")))),
    "CSV with a value of another type": lambda s: seep.testing.preview(
        s.source(
            sources.csv(s.file("a.csv", "word,n\na,1\nb,x\n"), schema=pa.schema([("word", pa.string()), ("n", INT)]))
        )
    ),
    "CSV that is not UTF-8": lambda s: s.source(sources.csv(s.file("a.csv", b"w\xf6rter,n\n1,2\n"))),
    "a delimiter of two characters": lambda s: sources.csv(s.file("a.csv", "a,b\n"), delimiter="::"),
    "disorder without a time": lambda s: s.compiled(sources.memory(WORDS, out_of_order="1 s")),
    "negative disorder": lambda s: s.compiled(sources.memory(WORDS, time="at", out_of_order="-1 s")),
    "no batch": lambda _: sources.memory([]),
    "batches that differ": lambda _: sources.memory([WORDS, NUMBERS]),
    "no partitions": lambda _: sources.generator(lambda *_: {}, pa.schema([("n", INT)]), partitions=0),
    "fewer rows than none": lambda _: sources.generator(lambda *_: {}, pa.schema([("n", INT)]), rows=-1),
    "a stamp that is no column": lambda s: s.compiled(
        sources.generator(lambda *_: {}, pa.schema([("n", INT)]), stamp="at")
    ),
    "a generator that fails": lambda s: seep.testing.preview(
        s.source(sources.generator(lambda *_: 1 // 0, pa.schema([("n", INT)]), rows=3))
    ),
    "a generator that returns too few": lambda s: seep.testing.preview(
        s.source(sources.generator(lambda *_: {"n": [1]}, pa.schema([("n", INT)]), rows=3))
    ),
    "a rate below nought": lambda s: s.query.source("x", sources.memory(WORDS), rate=-1),
    "a profile of no rate": lambda _: seep.Rate(0),
    "null event times": lambda s: seep.testing.preview(
        s.source(sources.memory(pa.record_batch({"at": pa.array([None], INT)}), time="at"))
    ),
}

SINKS: dict[str, Call] = {
    "a roll of nought": lambda s: sinks.parquet(s.place, roll=0),
    "to overwrite and append": lambda s: sinks.parquet(s.place, overwrite=True, append=True),
    "a directory that is a file": lambda s: _checked(s, sinks.parquet(s.file("taken", ""))),
    "files that no sink wrote": lambda s: (s.file("readme.txt", ""), _checked(s, sinks.parquet(s.place))),
    "the output of an earlier run": lambda s: (_written(s), _checked(s, sinks.parquet(s.place / "out"))),
    "other columns than before": lambda s: (
        _written(s),
        _checked(s, sinks.csv(s.place / "out", append=True), pa.schema([("m", INT)])),
    ),
    "lists as CSV": lambda s: _checked(s, sinks.csv(s.place / "out"), pa.schema([("n", pa.list_(INT))])),
    "to read what nobody wrote": lambda s: sinks.read(s.place),
    "a callback that is no function": lambda _: sinks.callback(5),  # type: ignore[arg-type]
    "a callback that fails": lambda s: (
        s.words.sink("out", sinks.callback(lambda *_: 1 // 0)),
        seep.testing.run(s.query),
    ),
}

SETTINGS: dict[str, Call] = {
    "an unknown section": lambda s: s.policy("vms: 3\n"),
    "an unknown field": lambda s: s.policy("run: {epock: 1s}\n"),
    "a field of another type": lambda s: s.policy("run: {window: many}\n"),
    "a number that is too small": lambda s: s.policy("run: {window: 0}\n"),
    "a time that is none": lambda s: s.policy("run: {epoch: soon}\n"),
    "a size that is none": lambda s: s.policy("storage: {cache: large}\n"),
    "an unknown codec": lambda s: s.policy("storage: {codec: gzip}\n"),
    "a section that is a number": lambda s: s.policy("storage: 5\n"),
    "a file that is a list": lambda s: s.policy("- 1\n"),
    "no YAML": lambda s: s.policy("run: {epoch: [1\n"),
    "a field given twice": lambda s: s.policy("run: {window: 16}\nrun: {window: 17}\n"),
    "no UTF-8": lambda s: read_policy(s.file("policy.yaml", b"run: {epoch: \xff}")),
    "a file that is not there": lambda s: read_policy(s.place / "policy.yaml"),
    "a file for another command": lambda s: s.policy("provider: ec2\nregion: eu-west-1\n"),
}

STORAGE: dict[str, Call] = {
    "an unknown kind of location": lambda _: open_store("ftp://host/dir"),
    "a location without a bucket": lambda _: open_store("s3://"),
    "a file on another machine": lambda _: open_store("file://machine/dir"),
    "a key that leads out": lambda s: open_store(str(s.place)).put("../out", [b""]),
    "to keep nothing": lambda s: s.catalogue().clean(0),
    "to dispose of what is not there": lambda s: s.catalogue().dispose([7]),
    "a query that is not there": lambda s: Stored.open(str(s.place), "orders"),
    "a checkpoint that is none": lambda s: Stored.open(str(s.place), "orders", "yesterday"),
    "a value that is not there": lambda s: open_store(str(s.place)).get("orders/1"),
    "a run that was taken over": lambda s: _fenced(s),
}

CHAOS: dict[str, Call] = {
    "no strike": lambda _: parse_chaos("kill"),
    "an unknown act": lambda _: parse_chaos("explode:counter@5s"),
    "no time": lambda _: parse_chaos("kill:counter@soon"),
    "a time before the beginning": lambda _: parse_chaos("kill:counter@-5s"),
    "no number of instances": lambda _: parse_chaos("scale:counter@5s"),
    "to continue what was not stopped": lambda _: parse_chaos("cont:counter@5s"),
}

POLICIES: dict[str, Call] = {
    "an unknown policy": lambda _: make_policy(ScalingSettings(policy="clever")),
    "a policy that cannot be imported": lambda _: make_policy(ScalingSettings(policy="no.such.module:Clever")),
    "a policy that decides nothing": lambda _: make_policy(ScalingSettings(policy=f"{__name__}:Scene")),
    "an unknown setting of a policy": lambda _: make_policy(_scaling(stepp=3)),
    "a missing setting of a policy": lambda _: make_policy(ScalingSettings(policy="latency")),
    "an unknown balancer": lambda _: make_balancer(BalanceSettings(balancer="clever")),
    "moves in a file of another kind": lambda s: move_stream(s.file("moves.txt", ""), 8),
    "moves without a column": lambda s: move_stream(s.file("moves.csv", "slot,instance\n1,2\n"), 8),
    "moves to no slot": lambda s: move_stream(s.file("moves.csv", "epoch,slot,instance\n1,999,2\n"), 8),
    "moves of text": lambda s: move_stream(s.file("moves.csv", "epoch,slot,instance\n1,one,2\n"), 8),
    "moves of one slot at a time": lambda s: move_stream(s.file("m.csv", "epoch,slot,instance\n1,2,3\n1,2,4\n"), 8),
}

TESTING: dict[str, Call] = {
    "an empty script": lambda _: script(),
    "a script of different columns": lambda _: script(WORDS, NUMBERS),
    "a script of numbers": lambda _: script(WORDS, 5),  # type: ignore[arg-type]
    "to kill nobody": lambda s: s.in_process(WORDS).kill("nobody"),
    "to scale nobody": lambda s: s.in_process(WORDS).scale("nobody", 2),
    "to drain nobody": lambda s: s.in_process(WORDS).drain("nobody"),
    "to restart with nobody": lambda s: s.in_process(WORDS).restart({"nobody": 2}),
    "progress of nothing": lambda s: s.in_process(WORDS).progress(7),
    "a target that is none": lambda s: s.in_process(WORDS).migrate("counter", "everywhere"),  # type: ignore[arg-type]
    "slots that are not there": lambda s: s.in_process(WORDS).migrate("counter", {0: [999]}),
    "an unknown strategy": lambda s: s.in_process(WORDS).migrate("counter", 2, strategy="magic"),
    "to balance nobody": lambda s: s.in_process(WORDS).balance("nobody"),
    "a query without end": lambda _: _endless().run(3),
    "to kill an instance that is not there": lambda s: s.in_process(WORDS, Pause(2), WORDS, Kill("counter", 7)).run(),
    "a cue for nobody": lambda s: s.in_process(
        WORDS, Scale("nobody", 2), WORDS, BackUp(), Savepoint(), Restart(), WORDS
    ).run(),
}

CALLS = {
    "queries": QUERIES,
    "operators": OPERATORS,
    "state": STATE,
    "sources": SOURCES,
    "sinks": SINKS,
    "settings": SETTINGS,
    "storage": STORAGE,
    "chaos": CHAOS,
    "policies": POLICIES,
    "testing": TESTING,
}


def _ones(partition: int, first: int, count: int) -> dict[str, list[int]]:  # noqa: ARG001
    return {"n": [1] * count}


def _scaling(**settings: Any) -> ScalingSettings:
    return ScalingSettings(policy="cpu-threshold", settings=settings)


def _endless() -> InProcess:
    query = seep.Query("endless")
    query.source("ones", sources.generator(_ones, pa.schema([("n", INT)]))).sink("out", sinks.discard())
    return InProcess(query)


def _unstorable(values: Any) -> None:
    values["k"] = object()
    values.snapshot(SlotSet.full(values.slot_bits))


def _columns_of(scene: Scene, text: str, schema: pa.Schema) -> None:
    seep.testing.preview(scene.source(sources.csv(scene.file("a.csv", text), schema=schema)))


def _two_queries(scene: Scene) -> None:
    other = seep.Query("other").source("words", sources.memory(WORDS, time="at"))
    scene.keyed.join("x", other.key_by("word"))


def _with_a_lock() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    lock = threading.Lock()

    def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    return locked


def _too_much() -> pa.RecordBatch:
    return pa.record_batch({"k": ["a", "a"], "n": [2**62, 2**62]})


class _Changing(seep.Operator):
    count = 0

    def output(self, inputs: Any) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: seep.Inputs) -> Any:
        self.count += 1
        return inputs[0]


def _parquet(scene: Scene) -> Path:
    pq.write_table(pa.Table.from_batches([WORDS]), path := scene.place / "rows.parquet")
    return path


def _checked(scene: Scene, sink: Any, schema: pa.Schema = WORDS.schema) -> None:  # noqa: ARG001
    sink.check("out", schema)


def _written(scene: Scene) -> None:
    scene.words.sink("out", sinks.csv(scene.place / "out"))
    seep.testing.run(scene.query)


def _fenced(scene: Scene) -> None:
    catalogue = scene.catalogue()
    first = catalogue.enter("monday")
    catalogue.enter("tuesday")
    first.begin()


def texts(place: Path) -> Iterator[tuple[str, str]]:
    """The title of each call, and the error that it ends in: of what kind, and its text."""
    for group, calls in CALLS.items():
        for number, (title, call) in enumerate(calls.items()):
            (folder := place / f"{group}-{number}").mkdir()
            yield f"{group}: {title}", _error_of(call, folder)


def _error_of(call: Call, place: Path) -> str:
    try:
        call(Scene(place))
    except SeepError as reason:
        kind = (
            "user"
            if isinstance(reason, UserError)
            else "environment"
            if isinstance(reason, EnvironmentFault)
            else "internal"
        )
        return _plain(f"[{kind}] {reason}", place)
    except Exception as reason:
        return _plain(f"{NOT_OURS} {type(reason).__name__}: {reason}", place)
    return NONE


def _plain(text: str, place: Path) -> str:
    """Without what differs from one run, or one edit of this file, to the next."""
    text = re.sub(r"line \d+ of \S+/errors\.py", "line N of errors.py", text.replace(str(place), "PLACE"))
    return re.sub(r" at 0x[0-9a-f]+", " at 0x…", text)
