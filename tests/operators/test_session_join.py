"""Joins in sessions that both sides make up, against plain Python, whatever the cuts and whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seep
from primitives.errors import UserError
from seep.testing import BackUp, Kill, Scale, run, script

LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64())])
RIGHT = pa.schema([("j", pa.int64()), ("u", pa.int64()), ("v", pa.int64())])

Row = tuple[int, int, int]
Pair = tuple[int, ...]

sides = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=60)


def timed(steps: list[tuple[int, int]]) -> list[Row]:
    made, at = [], 0
    for number, (key, step) in enumerate(steps):
        at += step
        made.append((key, at, number))
    return made


def batches(rows: Sequence[Row], schema: pa.Schema, parts: int = 10) -> list[pa.RecordBatch]:
    cuts = [len(rows) * part // parts for part in range(parts + 1)]
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return [pa.RecordBatch.from_pylist(dicts[a:b], schema) for a, b in pairwise(cuts)]


def found(left: Sequence[Any], right: Sequence[Any], gap: int, parallelism: int = 1, seed: int = 0) -> list[Pair]:
    query = seep.Query("sessions")
    lefts = query.source("left", script(*left, time="t")).key_by("k")
    rights = query.source("right", script(*right, time="u")).key_by("j")
    lefts.join("pairs", rights, window=seep.session(gap), parallelism=parallelism).sink("out", seep.sinks.collect())
    return sorted(tuple(row.values()) for row in run(query, seed=seed)["out"].to_pylist())


def expected(left: list[Row], right: list[Row], gap: int) -> list[Pair]:
    """Key, time and value of the left, those of the right, and the bounds."""
    every = sorted([(k, t, 0, v) for k, t, v in left] + [(k, t, 1, v) for k, t, v in right])
    sessions: list[list[tuple[int, int, int, int]]] = []
    for row in every:
        if sessions and sessions[-1][-1][0] == row[0] and row[1] - sessions[-1][-1][1] < gap:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    return sorted(
        (a[0], a[1], a[3], b[1], b[3], session[0][1], session[-1][1] + gap)
        for session in sessions
        for a in session
        for b in session
        if (a[2], b[2]) == (0, 1)
    )


@settings(max_examples=10, deadline=None)
@given(left=sides, right=sides, gap=st.sampled_from([1, 3, 10]), parallelism=st.integers(1, 3), seed=st.integers(0, 99))
def test_pairs_are_those_of_one_session(
    left: list[tuple[int, int]], right: list[tuple[int, int]], gap: int, parallelism: int, seed: int
) -> None:
    a, b = timed(left), timed(right)
    parts, others = batches(a, LEFT), batches(b, RIGHT)
    assert found(parts, others, gap, parallelism, seed) == expected(a, b, gap)
    story = [*parts[:4], Kill("pairs"), *parts[4:6], Scale("pairs", 3), BackUp(), *parts[6:8], Kill("pairs")]
    assert found([*story, Scale("pairs", 2), *parts[8:]], others, gap, 1, seed) == expected(a, b, gap)


def test_rows_without_a_key_meet_none() -> None:
    left = pa.RecordBatch.from_pylist([{"k": None, "t": 1, "v": 1}, {"k": 1, "t": 1, "v": 2}], LEFT)
    right = pa.RecordBatch.from_pylist([{"j": None, "u": 1, "v": 3}, {"j": 1, "u": 2, "v": 4}], RIGHT)
    assert found([left], [right], 5) == [(1, 1, 2, 2, 4, 1, 7)]


def test_a_row_whose_gap_has_passed_is_late() -> None:
    left = [batch for at in (0, 50, 3) for batch in batches([(1, at, at)], LEFT, 1)]
    right = [batch for at in (1, 51, 52) for batch in batches([(1, at, at)], RIGHT, 1)]
    assert found(left, right, 5) == [(1, 0, 0, 1, 1, 0, 6), (1, 50, 50, 51, 51, 50, 57), (1, 50, 50, 52, 52, 50, 57)]


def test_sessions_of_a_join_have_no_lateness() -> None:
    query = seep.Query("sessions")
    left = query.source("left", script(*batches([(1, 1, 1)], LEFT, 1), time="t")).key_by("k")
    right = query.source("right", script(*batches([(1, 1, 1)], RIGHT, 1), time="u")).key_by("j")
    with pytest.raises(UserError, match="have no lateness"):
        left.join("pairs", right, window=seep.session(5, lateness=1))
