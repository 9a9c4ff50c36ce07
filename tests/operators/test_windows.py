"""Windows: what comes out is what plain Python makes of the same rows, whatever epochs, slots and moves there are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.hashing import hash_key
from primitives.slots import SlotSet, slot_of
from seep.operators.aggregation import aggregates as agg
from seep.operators.aggregation.aggregates import Aggregate
from seep.operators.definition import Input
from seep.operators.windows import Session, Sliding, Tumbling, Window
from seep.protocol.logic import Piece
from seep.protocol.messages import MAX_WATERMARK
from tests.operators.instances import MIN_WATERMARK, Instances, Row, bag

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("x", pa.int64()), ("f", pa.float64())])
STREAM = Input(SCHEMA, ("k",), "t")
ALL = {
    "n": agg.count(),
    "known": agg.count("x"),
    "total": agg.sum("x"),
    "least": agg.min("x"),
    "most": agg.max("f"),
    "mean": agg.mean("f"),
    "first": agg.first("x"),
    "last": agg.last("f"),
}


def row(k: str | None, t: int, x: int | None = 0, f: float | None = 0.0) -> Row:
    return {"k": k, "t": t, "x": x, "f": f}


# --- by hand ----------------------------------------------------------------------------------------------------------


def values(rows: Iterable[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def aggregated(rows: list[Row]) -> Row:
    x, f = values(rows, "x"), values(rows, "f")
    return {
        "n": len(rows),
        "known": len(x),
        "total": sum(x) if x else None,
        "least": min(x, default=None),
        "most": max(f, default=None),
        "mean": sum(f) / len(f) if f else None,
        "first": min(((row["t"], row["x"]) for row in rows if row["x"] is not None), default=(0, None))[1],
        "last": max(((row["t"], row["f"]) for row in rows if row["f"] is not None), default=(0, None))[1],
    }


class OnAGrid:
    """All rows that were not late, by key and window."""

    def __init__(self, size: int, slide: int, offset: int, lateness: int) -> None:
        self.size, self.slide, self.offset, self.lateness = size, slide, offset, lateness
        self.windows: dict[tuple[str | None, int], list[Row]] = {}
        self.late = 0
        self.before = MIN_WATERMARK

    def starts(self, time: int) -> list[int]:
        return [s for s in range(time - self.size + 1, time + 1) if (s - self.offset) % self.slide == 0]

    def epoch(self, rows: list[Row], watermark: int) -> list[Row]:
        touched = set()
        for one in rows:
            windows = [(one["k"], start) for start in self.starts(one["t"])]
            if all(self.closes(start) + self.lateness <= self.before for _, start in windows):
                self.late += 1
                continue
            for window in windows:
                self.windows.setdefault(window, []).append(one)
                touched.add(window)
        closed = {w for w in self.windows if self.before < self.closes(w[1]) <= watermark}
        again = {w for w in touched if self.closes(w[1]) <= self.before < self.closes(w[1]) + self.lateness}
        self.before = watermark
        return [self.result(*window) for window in closed | again]

    def closes(self, start: int) -> int:
        return start + self.size - 1

    def result(self, key: str | None, start: int) -> Row:
        bounds = {"k": key, "window_start": start, "window_end": start + self.size}
        return {**bounds, **aggregated(self.windows[key, start])}


class InSessions:
    """Sessions as lists of rows."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap, self.lateness = gap, lateness
        self.sessions: list[list[Row]] = []
        self.late = 0
        self.before = MIN_WATERMARK

    def epoch(self, rows: list[Row], watermark: int) -> list[Row]:
        stored = {id(one) for session in self.sessions for one in session}
        for one in rows:
            near = [session for session in self.sessions if any(self.meet(one, other) for other in session)]
            self.sessions = [session for session in self.sessions if session not in near]
            self.sessions.append([one, *(other for session in near for other in session)])
        out, kept = [], []
        for session in self.sessions:
            is_new = all(id(one) not in stored for one in session)
            if is_new and self.closes(session) + self.lateness <= self.before:
                self.late += len(session)
                continue
            grew = any(id(one) not in stored for one in session)
            if self.closes(session) <= watermark and (grew or self.before < self.closes(session)):
                out.append(self.result(session))
            if self.closes(session) + self.lateness > watermark:
                kept.append(session)
        self.sessions, self.before = kept, watermark
        return out

    def meet(self, one: Row, other: Row) -> bool:
        return one["k"] == other["k"] and abs(one["t"] - other["t"]) < self.gap

    def closes(self, session: list[Row]) -> int:
        return max(values(session, "t")) + self.gap - 1

    def result(self, session: list[Row]) -> Row:
        bounds = {"window_start": min(values(session, "t")), "window_end": self.closes(session) + 1}
        return {"k": session[0]["k"], **bounds, **aggregated(session)}


# --- the same as by hand ----------------------------------------------------------------------------------------------

EPOCHS = 6


class Story(NamedTuple):
    """Rows with the epoch in which each comes, watermarks, and the slots that move after each epoch."""

    rows: list[tuple[int, Row]]
    watermarks: list[int]
    moves: list[tuple[SlotSet, int]]
    seed: int

    def epochs(self) -> list[tuple[list[Row], int]]:
        watermarks = [*sorted(self.watermarks), MAX_WATERMARK]
        return [([row for at, row in self.rows if at == epoch], watermarks[epoch]) for epoch in range(EPOCHS)]


rows = st.builds(
    row,
    st.sampled_from(["a", "b", None]),
    st.integers(-6, 16),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.sampled_from([-2.5, 0.0, 0.25, 3.5])),
)
latenesses = st.one_of(st.just(0), st.integers(1, 9), st.just(1000))
moves = st.tuples(st.sets(st.integers(0, 3)).map(SlotSet), st.integers(0, 1))
stories = st.builds(
    Story,
    st.lists(st.tuples(st.integers(0, EPOCHS - 1), rows), max_size=20),
    st.lists(st.integers(-10, 24), min_size=EPOCHS - 1, max_size=EPOCHS - 1),
    st.lists(moves, min_size=EPOCHS, max_size=EPOCHS),
    st.integers(0, 99),
)


def check(window: Window, by_hand: OnAGrid | InSessions, story: Story) -> None:
    instances = Instances(Aggregate(ALL, window), [STREAM], count=2, seed=story.seed)
    late = 0
    for (rows, watermark), (slots, target) in zip(story.epochs(), story.moves, strict=True):
        assert bag(instances.epoch(rows, watermark=watermark)) == bag(by_hand.epoch(rows, watermark))
        instances.move(slots, target)
        late += instances.logics[target].counters["late"]
        instances.recover(target)
    assert late + sum(logic.counters["late"] for logic in instances.logics) == by_hand.late
    assert instances.end([]) == []


@settings(max_examples=30)
@given(story=stories, size=st.integers(1, 9), offset=st.integers(-9, 9), lateness=latenesses)
def test_tumbling_windows(story: Story, size: int, offset: int, lateness: int) -> None:
    check(Tumbling(size, offset, lateness), OnAGrid(size, size, offset, lateness), story)


@settings(max_examples=30)
@given(
    story=stories,
    lengths=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    offset=st.integers(-9, 9),
    lateness=latenesses,
)
def test_sliding_windows(story: Story, lengths: tuple[int, int], offset: int, lateness: int) -> None:
    slide, size = sorted(lengths)
    check(Sliding(size, slide, offset, lateness), OnAGrid(size, slide, offset, lateness), story)


@settings(max_examples=30)
@given(story=stories, gap=st.integers(1, 5), lateness=latenesses)
def test_session_windows(story: Story, gap: int, lateness: int) -> None:
    check(Session(gap, lateness), InSessions(gap, lateness), story)


# --- one by one -------------------------------------------------------------------------------------------------------

COUNT = {"n": agg.count()}


def counts(window: Window, **options: Any) -> Instances:
    return Instances(Aggregate(COUNT, window), [STREAM], **options)


def shown(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


def test_a_window_comes_out_once_the_watermark_is_at_its_last_moment() -> None:
    instances = counts(Tumbling(10))
    assert instances.epoch([row("a", 0), row("a", 9)], watermark=8) == []
    assert shown(instances.epoch([], watermark=9)) == [("a", 0, 10, 2)]
    assert instances.epoch([], watermark=100) == []


def test_rows_that_come_with_the_watermark_that_passes_them_are_not_late() -> None:
    instances = counts(Tumbling(10))
    assert shown(instances.epoch([row("a", 5), row("a", 25)], watermark=50)) == [("a", 0, 10, 1), ("a", 20, 30, 1)]
    assert instances.logics[0].counters["late"] == 0


def test_a_late_row_updates_its_window_within_the_lateness_and_is_dropped_and_counted_after() -> None:
    instances = counts(Tumbling(10, lateness=5))
    assert shown(instances.epoch([row("a", 5)], watermark=12)) == [("a", 0, 10, 1)]
    assert shown(instances.epoch([row("a", 6), row("b", 7)], watermark=14)) == [("a", 0, 10, 2), ("b", 0, 10, 1)]
    assert instances.epoch([row("a", 8)], watermark=14) == []
    assert instances.logics[0].counters["late"] == 1
    assert instances.end([]) == []


def test_what_can_no_longer_change_is_not_kept() -> None:
    for window in (Tumbling(10, lateness=5), Sliding(20, 10, lateness=5), Session(10, lateness=5)):
        instances = counts(window)
        instances.epoch([row(key, time) for key in "abcd" for time in (1, 4, 13, 40)], watermark=14)
        kept = {chunk.name: len(chunk.rows) for chunk in instances.logics[0].state.snapshot(SlotSet.full(2))}
        assert kept.pop("progress") == 4
        assert all(kept.values())
        instances.epoch([], watermark=1000)
        left = {chunk.name: len(chunk.rows) for chunk in instances.logics[0].state.snapshot(SlotSet.full(2))}
        assert left == {"progress": 4, **dict.fromkeys(kept, 0)}


def test_a_key_with_rows_all_the_time_has_one_alarm() -> None:
    instances = counts(Session(100))
    for time in range(200):
        assert instances.epoch([row("a", time)], watermark=time - 1) == []
    (alarms,) = (c for c in instances.logics[0].state.snapshot(SlotSet.full(2)) if c.name == "alarms")
    assert len(alarms.rows) == 1
    assert shown(instances.end([])) == [("a", 0, 299, 200)]


def test_a_row_between_two_sessions_joins_them() -> None:
    instances = counts(Session(10))
    assert instances.epoch([row("a", 0), row("a", 15), row("b", 15)], watermark=-1) == []
    assert instances.epoch([row("a", 8)], watermark=7) == []
    assert shown(instances.end([])) == [("a", 0, 25, 3), ("b", 15, 25, 1)]


def test_a_row_within_a_long_session_does_not_shorten_it() -> None:
    instances = counts(Session(10))
    assert instances.epoch([row("a", time) for time in (0, 8, 16, 24)], watermark=-1) == []
    assert shown(instances.end([row("a", 3), row("a", 30)])) == [("a", 0, 40, 6)]


def test_sliding_windows_need_not_be_a_multiple_of_their_slide() -> None:
    assert shown(counts(Sliding(5, 3)).end([row("a", 4)])) == [("a", 0, 5, 1), ("a", 3, 8, 1)]


KINDS = [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns")]
WINDOWS = [Tumbling("10 s"), Sliding(timedelta(seconds=10), "10 s"), Session("4 s")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
def test_bounds_are_of_the_type_of_the_event_time(kind: pa.TimestampType, window: Window) -> None:
    schema = pa.schema([("k", pa.string()), ("t", kind)])
    instances = Instances(Aggregate(COUNT, window), [Input(schema, ("k",), "t")])
    assert instances.setting.output.types == [pa.string(), kind, kind, pa.int64()]
    zone = UTC if kind.tz else None
    start = datetime(2026, 1, 31, 12, tzinfo=zone)
    (found,) = instances.end([{"k": "a", "t": start}, {"k": "a", "t": start + timedelta(seconds=3)}])
    length = timedelta(seconds=7 if isinstance(window, Session) else 10)
    assert (found["window_start"], found["window_end"], found["n"]) == (start, start + length, 2)


def test_narrow_integers_as_event_time_have_wide_bounds() -> None:
    stream = Input(pa.schema([("k", pa.int8()), ("t", pa.uint8())]), ("k",), "t")
    instances = Instances(Aggregate(COUNT, Sliding(100, 50)), [stream])
    assert shown(instances.end([{"k": 1, "t": 20}, {"k": 1, "t": 250}])) == [
        (1, -50, 50, 1),
        (1, 0, 100, 1),
        (1, 200, 300, 1),
        (1, 250, 350, 1),
    ]


@pytest.mark.parametrize("window", [Tumbling(10), Sliding(10, 5), Session(10)], ids=lambda w: type(w).__name__)
def test_keys_may_have_any_names_and_be_dictionaries(window: Window) -> None:
    kinds = [("time", pa.dictionary(pa.int32(), pa.string())), ("value", pa.int64()), ("seq", pa.int64())]
    stream = Input(pa.schema([("at", pa.int64()), *kinds]), ("time", "value", "seq"), "at")
    instances = Instances(Aggregate({"x": agg.count()}, window), [stream])
    found = instances.end([{"at": 7, "time": "a", "value": 1, "seq": None}])
    assert {(row["time"], row["value"], row["seq"], row["x"]) for row in found} == {("a", 1, None, 1)}
    assert instances.setting.output.field("time").type == pa.string()


def test_windows_by_the_bounds_of_other_windows_need_other_names() -> None:
    stream = Input(pa.schema([("window_start", pa.int64()), ("t", pa.int64())]), ("window_start",), "t")
    with pytest.raises(UserError, match=r"operator 'w' would put out two columns 'window_start', .* rename the key"):
        Aggregate(COUNT, Tumbling(10)).output("w", [stream])
    assert Aggregate({"window_end": agg.max("t")}).output("w", [stream]).names == ["window_start", "window_end"]


@pytest.mark.parametrize("window", [Tumbling(10), Sliding(10, 10), Session(7)], ids=lambda w: type(w).__name__)
def test_windows_of_slots_that_are_still_to_come_wait_for_them(window: Window) -> None:
    instances = counts(window)
    instances.epoch([row("a", 3)], watermark=0)
    (logic,) = instances.logics
    mine = SlotSet([slot_of(hash_key("a"), 2)])
    batch = pa.RecordBatch.from_pylist([row("a", 3)], SCHEMA)
    assert logic.process(Piece(2, {}, 50, SlotSet.full(2) - mine)) == {}
    (out,) = logic.process(Piece(2, {0: (batch,)}, 50, mine)).values()
    assert out["n"].to_pylist() == [2]


def test_an_instance_without_slots_puts_out_nothing() -> None:
    instances = counts(Tumbling(10), count=2)
    instances.move(SlotSet.full(2), 1)
    logic = instances.logics[0]
    assert logic.process(Piece(1, {}, MAX_WATERMARK, SlotSet.empty())) == {}
    assert shown(instances.end([row("a", 1)])) == [("a", 0, 10, 1)]


@pytest.mark.parametrize(
    ("window", "stream", "message"),
    [
        (Tumbling(10), STREAM._replace(keys=()), "operator 'w' keeps unkeyed state; call key_by"),
        (Tumbling(10), STREAM._replace(time=None), "operator 'w' has windows, and its input has no event time"),
        (Tumbling("10 s"), STREAM, "operator 'w': the length of time '10 s' must be a plain number"),
        (Tumbling(0), STREAM, "operator 'w': the size of a window is 0; it must be greater than zero"),
        (Sliding(10, -1), STREAM, "operator 'w': the slide of a window is -1; it must be greater than zero"),
        (Sliding(10, 11), STREAM, "operator 'w': windows of 10 that slide by 11 leave rows out"),
        (Session(0), STREAM, "operator 'w': the gap of a window is 0; it must be greater than zero"),
        (Session(5, lateness=-1), STREAM, "operator 'w': the lateness of a window is -1; it cannot be negative"),
        (Window(), STREAM, "operator 'w': .* is not a window; use Tumbling, Sliding or Session"),
        (
            Tumbling("1500 ms"),
            Input(pa.schema([("k", pa.string()), ("t", pa.timestamp("s"))]), ("k",), "t"),
            r"operator 'w': the size of a window is '1500 ms', finer than the event time, which is timestamp\[s\]",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused_before_the_run(window: Window, stream: Input, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Aggregate(COUNT, window).output("w", [stream])


@pytest.mark.parametrize("window", [Tumbling(10), Session(10)], ids=lambda w: type(w).__name__)
def test_a_row_without_event_time_is_refused(window: Window) -> None:
    with pytest.raises(UserError, match=r"operator 'operator': 1 of .* no event time \(null\)"):
        counts(window).epoch([{**row("a", 1), "t": None}])
