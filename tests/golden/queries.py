"""Queries that keep state of every kind: what is stored of them is the golden state of a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyspark.sql import Row
from pyspark.sql import types as spark
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

import seep
from primitives.slots import SlotSet
from seep.testing import script

WORDS = ("tea", "cup", "sun", "sea", "oak", "elm", "ant", "owl", "ice", "fog", "", "é")
START = datetime(2026, 3, 1, tzinfo=UTC)
#: Batches of every script, and how many of them are read at least before the first and the second savepoint.
BATCHES, FIRST, SECOND = 14, 3, 6


def batch(number: int) -> pa.RecordBatch:
    """The rows of one epoch: a minute of event time."""
    numbers = range(number * 6, number * 6 + 6)
    return pa.record_batch(
        {
            "word": [WORDS[(n * n + number) % len(WORDS)] for n in numbers],
            "user": pa.array([n % 3 for n in numbers], pa.int32()),
            "n": [n * 37 % 101 for n in numbers],
            "price": [n * 0.25 for n in numbers],
            "cost": pa.array([Decimal(n * 31 % 997) / 100 for n in numbers], pa.decimal128(10, 2)),
            "at": pa.array(
                [START + timedelta(minutes=number, seconds=7 * (n % 6)) for n in numbers], pa.timestamp("us", "UTC")
            ),
        }
    )


def _rows(query: seep.Query) -> seep.Stream:
    return query.source("rows", script(*map(batch, range(BATCHES)), time="at"))


# --- operators of users: every container, every type ------------------------------------------------------------------

#: A value of each type that msgpack, with our extensions, knows.
OBJECTS: tuple[Any, ...] = (
    None,
    True,
    -7,
    2**70,
    -(2**70),
    1.5,
    "text",
    b"bytes",
    [1, [2]],
    {"a": 1, 2: "b"},
    (1, "two"),
    {3, 1, 2},
    frozenset({"x"}),
    datetime(2026, 3, 1, 12, 30, 15, 7),
    datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    date(2026, 1, 31),
    timedelta(days=-1, microseconds=5),
    Decimal("12.3400"),
    np.int16(-3),
    np.float32(0.5),
    np.arange(6, dtype=np.uint16).reshape(2, 3),
    np.array(["2026-03-01", "NaT"], "M8[s]"),
    np.array(["ab", "c"]),
)

#: A column of each type that a frame takes, with the value of a row.
FRAME_COLUMNS: Mapping[str, tuple[pa.DataType, Any]] = {
    "i8": (pa.int8(), lambda n: n - 50),
    "i16": (pa.int16(), lambda n: -n),
    "i32": (pa.int32(), lambda n: n * 1000),
    "i64": (pa.int64(), lambda n: n << 40),
    "u8": (pa.uint8(), lambda n: n),
    "u16": (pa.uint16(), lambda n: n + 300),
    "u32": (pa.uint32(), lambda n: n + 2**31),
    "u64": (pa.uint64(), lambda n: n + 2**63),
    "f32": (pa.float32(), lambda n: n / 2),
    "f64": (pa.float64(), lambda n: n / 3),
    "bool": (pa.bool_(), lambda n: n % 2 == 0),
    "day": (pa.date32(), lambda n: date(2026, 1, 1) + timedelta(days=n)),
    "time": (pa.time64("us"), lambda n: (datetime.min + timedelta(seconds=n)).time()),
    "seconds": (pa.timestamp("s"), lambda n: datetime(2026, 1, 1) + timedelta(seconds=n)),
    "instant": (pa.timestamp("ms", "UTC"), lambda n: START + timedelta(milliseconds=n)),
    "length": (pa.duration("us"), lambda n: timedelta(microseconds=n)),
    "cost": (pa.decimal128(12, 3), lambda n: Decimal(n) / 8),
    "text": (pa.string(), lambda n: None if n % 5 == 0 else f"text {n}"),
    "large": (pa.large_string(), lambda n: "é" * (n % 4)),
    "raw": (pa.binary(), lambda n: bytes([n])),
    "raw_large": (pa.large_binary(), lambda n: bytes([n, 0])),
}

#: The same for a bag of rows, which takes any type of Arrow's.
ROW_COLUMNS: Mapping[str, tuple[pa.DataType, Any]] = {
    "list": (pa.list_(pa.int32()), lambda n: [n, None][: n % 3]),
    "struct": (pa.struct({"x": pa.int8(), "y": pa.string()}), lambda n: {"x": n % 100, "y": "z"}),
    "map": (pa.map_(pa.string(), pa.int64()), lambda n: [("n", n)]),
    "half": (pa.float16(), lambda n: np.float16(n)),
    "wide": (pa.decimal256(50, 1), lambda n: Decimal(n) / 2),
    "fixed": (pa.binary(3), lambda n: b"%03d" % n),
    "text": (pa.string(), lambda n: None if n % 7 == 0 else f"row {n}"),
    "bool": (pa.bool_(), lambda n: None if n % 4 == 0 else n % 3 == 0),
}


def _columns(declared: Mapping[str, tuple[pa.DataType, Any]], numbers: Sequence[int]) -> dict[str, pa.Array]:
    return {name: pa.array([make(n) for n in numbers], kind) for name, (kind, make) in declared.items()}


class Everything(seep.Operator):
    """Keeps each row in a container of each kind, by word and user."""

    def open(self, context: seep.Context) -> None:
        frame = {name: kind for name, (kind, _) in FRAME_COLUMNS.items()}
        self.objects = context.values("objects")
        self.lists = context.values("lists", pa.list_(pa.int64()))
        self.encoded = context.values("encoded", pa.string(), encode=str, decode=int)
        self.spilling_objects = context.values("spilling objects", spill=True)
        self.frame = context.frame("frame", frame, defaults={"i8": None})
        self.spilling_frame = context.frame("spilling frame", {"n": pa.int64(), "text": pa.string()}, spill=True)
        self.disk = context.disk("disk", frame, memory=1 << 20)
        self.rows = context.rows("rows", {name: kind for name, (kind, _) in ROW_COLUMNS.items()})
        self.timers = context.timers("timers")
        self.typed_timers = context.timers("typed timers", pa.float64())

    def output(self, inputs: Sequence[Any]) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        rows = inputs.in_sequence()
        numbers, keys = rows["n"].to_pylist(), rows.select(["word", "user"])
        self.frame.put(keys, **_columns(FRAME_COLUMNS, numbers))
        self.disk.put(keys, **_columns(FRAME_COLUMNS, numbers))
        self.spilling_frame.put(keys, n=numbers, text=[f"spilled {n}" for n in numbers])
        self.rows.add(pa.record_batch({"word": rows["word"], "user": rows["user"], **_columns(ROW_COLUMNS, numbers)}))
        self.typed_timers.schedule_batch(numbers, keys.columns, [n / 4 for n in numbers])
        for n, key in zip(numbers, zip(*keys.to_pydict().values(), strict=True), strict=True):
            self._keep(n, key)
        for gone in [keys.slice(at, 1) for at, n in enumerate(numbers) if n % 11 == 0]:
            self.frame.delete(gone)
            self.disk.delete(gone)
        return rows

    def on_notify(self, due: pa.RecordBatch, inputs: seep.Inputs) -> None:
        """Notifications come at the end of the input, and only clear themselves away."""

    def _keep(self, n: int, key: Any) -> None:
        self.objects[key] = OBJECTS[n % len(OBJECTS)]
        self.spilling_objects[key] = {"n": n}
        self.lists[key] = [*self.lists.get(key, []), n]
        self.encoded[key] = n
        self.timers.schedule(n, key, ("due", n))
        self.notify(10**18 + n, key, n)
        if n % 13 == 0:
            del self.objects[key]
            self.timers.cancel(n, key)


class Own(seep.Operator):
    """Keeps its state itself: how many rows each slot has had."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def output(self, inputs: Sequence[Any]) -> pa.Schema:
        return inputs[0].schema

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        for slot in inputs.slots:
            self.counts[slot] = self.counts.get(slot, 0) + len(inputs[0])
        return inputs[0]

    def get_processing_state(self, slots: SlotSet) -> dict[int, int]:
        return {slot: count for slot, count in self.counts.items() if slot in slots}

    def set_processing_state(self, state: Mapping[int, int]) -> None:
        self.counts.update(state)

    def drop_processing_state(self, slots: SlotSet) -> None:
        self.counts = {slot: count for slot, count in self.counts.items() if slot not in slots}


class Numbered(seep.StatelessOperator):
    """Keeps what belongs to no slot: how many rows it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def output(self, inputs: Sequence[Any]) -> pa.Schema:  # noqa: ARG002
        return pa.schema([("seen", pa.int64())])

    def process(self, inputs: seep.Inputs) -> pa.RecordBatch:
        self.seen += len(inputs[0])
        return pa.record_batch({"seen": [self.seen]})

    def get_extra(self) -> bytes:
        return b"%d" % self.seen

    def set_extra(self, extras: Sequence[bytes]) -> None:
        self.seen = sum(map(int, extras))


class Visits(StatefulProcessor):
    """A processor as for Spark, with state of each kind that it offers, and timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        number = spark.StructType([spark.StructField("n", spark.LongType())])
        self._handle = handle
        self._total = handle.getValueState("total", number)
        self._pages = handle.getMapState("pages", spark.StructType([spark.StructField("p", spark.LongType())]), number)
        self._recent = handle.getListState("recent", number)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002
        total = self._total.get()[0] if self._total.exists() else 0
        for row in rows:
            total += row.n
            self._pages.updateValue((row.n % 3,), (row.n,))
            self._recent.appendValue((row.n,))
            self._handle.registerTimer(int(START.timestamp() * 1000) + 60_000 * (row.n % 9))
        self._total.update((total,))
        yield Row(word=key[0], n=total)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: ARG002
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002
    ) -> Iterator[Row]:
        yield Row(word=key[0], n=-len(list(self._recent.get())))

    def close(self) -> None: ...


def containers() -> seep.Query:
    """Every container that a user's operator can have."""
    query = seep.Query("containers", slot_bits=3)
    rows, collect = _rows(query), seep.sinks.collect
    keyed = rows.key_by("word", "user")
    keyed.apply("everything", Everything, parallelism=2).filter("none", pc.field("n") < 0).sink("nothing", collect())
    keyed.apply("own", Own).aggregate("rows-of-own", emit="end", n=seep.count()).sink("own-out", collect())
    rows.apply("numbered", Numbered).sink("numbered-out", collect())
    return query


# --- operators of ours ------------------------------------------------------------------------------------------------


def _merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {**b, "n": a["n"] + b["n"]}


def _step(state: list[int] | None, row: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    state = [*(state or []), row["n"]]
    return state, {"word": row["word"], "sum": sum(state)}


def operators() -> seep.Query:
    """Every operator with state that a query can have."""
    query = seep.Query("operators", slot_bits=2)
    rows = _rows(query)
    keyed = rows.key_by("word")
    _aggregates(keyed)
    _joins(keyed)
    made = {
        "reduce": keyed.reduce("reduce", _merged),
        "state-machine": keyed.state_machine(
            "state-machine", _step, pa.schema([("word", pa.string()), ("sum", pa.int64())])
        ),
        "highest-rows": keyed.window(seep.tumbling("4 min")).highest("highest-rows", "price"),
        "highest-keys": keyed.window(seep.sliding("4 min", "2 min")).highest("highest-keys", n=seep.count()),
        "processor": keyed.apply(
            "processor",
            seep.from_processor(
                Visits(),
                spark.StructType(
                    [spark.StructField("word", spark.StringType()), spark.StructField("n", spark.LongType())]
                ),
                time_mode="EventTime",
            ),
        ),
    }
    for name, stream in made.items():
        stream.sink(f"{name}-out", seep.sinks.collect())
    return query


def _aggregates(keyed: seep.Stream) -> None:
    every = {
        "n": seep.count(),
        "total": seep.sum("n"),
        "mean": seep.mean("price"),
        "low": seep.min("at"),
        "high": seep.max("price"),
        "first": seep.first("n"),
        "last": seep.last("n"),
        "cost": seep.sum("cost"),
        "wide": seep.sum("n", overflow="widen"),
        "nulls": seep.sum("n", overflow="null"),
        "wraps": seep.sum("n", overflow="wrap"),
    }
    plain = {name: every[name] for name in ("n", "total", "cost")}
    made = {
        "totals": keyed.aggregate("totals", **every),
        "totals-at-end": keyed.aggregate("totals-at-end", emit="end", **plain),
        "totals-on-disk": keyed.aggregate("totals-on-disk", on_disk=True, **plain),
        "tumbling": keyed.window(seep.tumbling("4 min", lateness="1 min")).aggregate("tumbling", **every),
        "sliding": keyed.window(seep.sliding("4 min", "2 min")).aggregate("sliding", **plain),
        "sessions": keyed.window(seep.session("90 s")).aggregate("sessions", **plain),
    }
    for name, stream in made.items():
        stream.sink(f"{name}-out", seep.sinks.collect())


def _joins(keyed: seep.Stream) -> None:
    left = keyed.select("left", {"word": "word", "n": "n", "at": "at"}).key_by("word")
    right = (
        keyed.filter("few", pc.field("n") > 60).select("right", {"word": "word", "m": "n", "at": "at"}).key_by("word")
    )
    window = seep.tumbling("3 min")
    made = {
        "window-join": left.join("window-join", right, window=window),
        "window-join-on-disk": left.join("window-join-on-disk", right, window=window, on_disk=True),
        "interval-join": left.join("interval-join", right, between=("-1 min", "2 min")),
        "session-join": left.join("session-join", right, window=seep.session("50 s")),
        "unbounded-join": left.join("unbounded-join", right),
        "unbounded-join-on-disk": left.join("unbounded-join-on-disk", right, on_disk=True),
    }
    for name, stream in made.items():
        stream.sink(f"{name}-out", seep.sinks.collect())


def small(name: str) -> seep.Query:
    """A query with little state, for what is the same for all state."""
    query = seep.Query(name, slot_bits=1)
    _rows(query).key_by("word").aggregate("totals", n=seep.count(), cost=seep.sum("cost")).sink(
        "out", seep.sinks.collect()
    )
    return query


# --- sources and sinks of files ---------------------------------------------------------------------------------------


def write_inputs(folder: Path) -> None:
    """Files for the sources of `files`."""
    folder.mkdir(parents=True)
    rows = pa.Table.from_batches(map(batch, range(5))).select(["word", "n", "at"])
    pq.write_table(rows, folder / "rows.parquet", row_group_size=16)
    pacsv.write_csv(rows.select(["word", "n"]), folder / "rows.csv")
    lines = [
        f'{{"word": "{word}", "n": {n}}}\n'
        for word, n in zip(*rows.select(["word", "n"]).to_pydict().values(), strict=True)
    ]
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")


def _generated(partition: int, first: int, count: int) -> dict[str, Any]:
    return {"n": [100 * partition + number for number in range(first, first + count)]}


def files(folder: Path) -> seep.Query:
    """Sources and sinks of each kind of file, a spool for Spark, and sources of memory."""
    query = seep.Query("files", slot_bits=1)
    sources, sinks = seep.sources, seep.sinks
    query.source("parquet", sources.parquet(folder / "inputs" / "rows.parquet", time="at")).sink(
        "to-parquet", sinks.parquet(folder / "outputs" / "parquet", roll=1)
    )
    query.source("csv", sources.csv(folder / "inputs" / "rows.csv")).sink(
        "to-csv", sinks.csv(folder / "outputs" / "csv", roll=1)
    )
    query.source("json", sources.json_lines(folder / "inputs" / "rows.jsonl")).sink(
        "to-json", sinks.json_lines(folder / "outputs" / "json", roll=1)
    )
    query.source(
        "generator", sources.generator(_generated, pa.schema([("n", pa.int64())]), partitions=2, rows=40)
    ).sink("to-spark", sinks.spark(folder / "outputs" / "spark"))
    query.source("memory", sources.memory([batch(0), batch(1), batch(2)])).sink("memory-out", sinks.collect())
    return query
