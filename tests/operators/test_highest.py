"""The highest of each window, against plain Python, whatever the cuts, and whatever happens meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from primitives.errors import UserError
from seep.operators.windows import Window
from seep.testing import BackUp, Kill, Scale, run, script

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])

Row = tuple[int, int, int]
Story = Sequence[Any]

steps = st.one_of(st.integers(0, 4), st.just(200))
rows = st.lists(st.tuples(st.integers(0, 5), steps, st.integers(0, 4)), min_size=1, max_size=120)
starts = st.sampled_from([0, -50, 1_000_000])
windows = st.sampled_from([(10, 10), (12, 4), (10, 3), (7, 5), (60, 1)])


def timed(steps: list[Row], start: int) -> list[Row]:
    made, at = [], start
    for key, step, value in steps:
        at += step
        made.append((key, at, value))
    return made


def batches(given: list[Row], parts: int) -> list[pa.RecordBatch]:
    cuts = [len(given) * part // parts for part in range(parts + 1)]
    return [
        pa.RecordBatch.from_pylist([dict(zip("ktv", row, strict=True)) for row in given[a:b]], SCHEMA)
        for a, b in pairwise(cuts)
    ]


def found(story: Story, window: Window, parallelism: int = 1, seed: int | None = None, **asked: Any) -> list[Any]:
    query = seep.Query("highest")
    stream = query.source("rows", script(*story, time="t")).key_by("k").window(window)
    stream.highest("top", parallelism=parallelism, **asked).sink("out", seep.sinks.collect())
    return sorted(tuple(row.values()) for row in run(query, seed=seed)["out"].to_pylist())


def keys_of_highest(given: list[Row], size: int, slide: int) -> list[tuple[int, int, int, int]]:
    """Key, window and count."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for key, at, _ in given:
        start = at // slide * slide
        while start > at - size:
            counts[start][key] += 1
            start -= slide
    return sorted(
        (key, start, start + size, n)
        for start, count in counts.items()
        for key, n in count.items()
        if n == max(count.values())
    )


def rows_of_highest(given: list[Row], size: int) -> list[tuple[int, ...]]:
    best: dict[int, int] = {}
    for _, at, value in given:
        best[at // size] = max(best.get(at // size, 0), value)
    chosen = [row for row in given if row[2] == best[row[1] // size]]
    return sorted((at // size * size, at // size * size + size, key, at, value) for key, at, value in chosen)


def troubled(parts: list[pa.RecordBatch]) -> list[Any]:
    return [
        *parts[:3],
        Kill("top-parts"),
        *parts[3:5],
        Scale("top-parts", 3),
        BackUp(),
        *parts[5:7],
        Kill("top"),
        Scale("top-parts", 2),
        *parts[7:],
    ]


@settings(max_examples=10, deadline=None)
@given(given=rows, start=starts, window=windows, parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_keys_with_the_highest_count(
    given: list[Row], start: int, window: tuple[int, int], parallelism: int, seed: int
) -> None:
    made, sliding = timed(given, start), seep.sliding(*window)
    expected = keys_of_highest(made, *window)
    assert found(batches(made, 8), sliding, parallelism, seed, n=seep.count()) == expected
    assert found(troubled(batches(made, 10)), sliding, 1, seed, n=seep.count()) == expected


@settings(max_examples=6, deadline=None)
@given(given=rows, start=starts, size=st.sampled_from([1, 10, 300]), seed=st.integers(0, 99))
def test_the_rows_with_the_highest_value(given: list[Row], start: int, size: int, seed: int) -> None:
    made = timed(given, start)
    expected = rows_of_highest(made, size)
    assert found(batches(made, 5), seep.tumbling(size), 2, seed, column="v") == expected
    assert found(troubled(batches(made, 10)), seep.tumbling(size), 1, seed, column="v") == expected


def test_sums_may_be_negative_and_keys_stay_while_they_are_in_the_window() -> None:
    given = [(1, 0, -5), (2, 1, -7), (1, 2, 5), (3, 30, -1)]
    expected = [(1, 0, 10, 0), (3, 30, 40, -1)]
    assert found(batches(given, 2), seep.tumbling(10), n=seep.sum("v")) == expected


def test_a_row_that_is_late_for_some_windows_counts_in_the_others() -> None:
    given = [(1, 12, 0), (1, 13, 0), (2, 25, 0), (2, 13, 0), (2, 14, 0), (2, 30, 0)]
    story = [batch for row in given for batch in batches([row], 1)]
    windows = found(story, seep.sliding(20, 10), n=seep.count())
    assert windows == [(1, 0, 20, 2), (2, 10, 30, 3), (2, 20, 40, 1), (2, 30, 50, 1)] or windows == [
        (1, 0, 20, 2),
        (2, 10, 30, 3),
        (2, 20, 40, 2),
        (2, 30, 50, 1),
    ]


def test_nulls_are_never_the_highest() -> None:
    batch = pa.RecordBatch.from_pylist([{"k": 1, "t": 1, "v": None}, {"k": 2, "t": 2, "v": -3}], SCHEMA)
    assert found([batch], seep.tumbling(10), column="v") == [(0, 10, 2, 2, -3)]


@pytest.mark.parametrize(
    ("window", "asked", "words"),
    [
        (seep.tumbling(10), {}, "a column or one aggregate"),
        (seep.tumbling(10), {"column": "v", "n": seep.count()}, "a column or one aggregate"),
        (seep.sliding(10, 5), {"column": "v"}, "tumbling windows"),
        (seep.session(5), {"n": seep.count()}, "tumbling or sliding"),
        (seep.tumbling(10), {"column": "x"}, "column 'x'"),
        (seep.tumbling(10), {"n": seep.mean("v")}, "counts and sums of integers"),
    ],
)
def test_what_has_no_highest_is_refused(window: Window, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        found(batches([(1, 1, 1)], 1), window, **asked)
