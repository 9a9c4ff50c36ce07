"""Windows: what comes out is what plain Python makes of the same rows, whatever epochs, slots and moves there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.operators import aggregates as agg
from seep.operators.aggregates import Aggregate
from seep.operators.definition import Input
from seep.operators.windows import Session, Sliding, Tumbling, Window
from seep.protocol.messages import MAX_WATERMARK
from tests.operators.instances import MIN_WATERMARK, NAME, Instances, Row, bag

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


@given(story=stories, size=st.integers(1, 9), offset=st.integers(-9, 9), lateness=latenesses)
def test_tumbling_windows(story: Story, size: int, offset: int, lateness: int) -> None:
    check(Tumbling(size, offset, lateness), OnAGrid(size, size, offset, lateness), story)


@given(
    story=stories,
    lengths=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    offset=st.integers(-9, 9),
    lateness=latenesses,
)
def test_sliding_windows(story: Story, lengths: tuple[int, int], offset: int, lateness: int) -> None:
    slide, size = sorted(lengths)
    check(Sliding(size, slide, offset, lateness), OnAGrid(size, slide, offset, lateness), story)


@given(story=stories, gap=st.integers(1, 5), lateness=latenesses)
def test_session_windows(story: Story, gap: int, lateness: int) -> None:
    check(Session(gap, lateness), InSessions(gap, lateness), story)
