"""Compares all answers of a live run with the reference, which processes the traffic of one expressway only.

The other expressways have the same traffic with higher ids, and nothing on one expressway affects another. So their
right answers are those of the first one, with higher ids. Only the tolls of earlier days differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lrb.data.history import history_of
from lrb.data.writing import OUTPUTS, Output
from lrb.generator import Recording
from lrb.query.answers import outputs
from lrb.schema import TupleKind
from lrb.validation import reference
from lrb.validation.reference import Tuple

#: Rows of an output's lines, without type and Emit.
Lines = NDArray[np.int64]

#: The most wrong lines that are shown of an output.
_SHOWN = 5
_ROWS = 1 << 14


def wrong_answers(rows: pa.Table, recording: Recording, xways: int, history: Path | None = None) -> list[str]:
    """Returns a description of each wrong output; empty if all answers are there and right."""
    played = pa.Table.from_batches([recording.play(0, recording.seconds, range(1))])
    right = reference.answers(_tuples(played))
    first: tuple[Sequence[tuple[int, ...]], ...] = right.tolls, right.alerts, right.balances
    expected = [_spread(output, lines, recording, xways) for output, lines in zip(OUTPUTS, first, strict=False)]
    expected.append(_spent(played, recording, xways, history))
    found = map(_lines, OUTPUTS, outputs(rows))
    return [line for each in map(_compared, OUTPUTS, expected, found) for line in each]


def _tuples(table: pa.Table) -> Iterator[Tuple]:
    for batch in table.to_batches(max_chunksize=_ROWS):
        yield from map(Tuple._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _columns(output: Output) -> list[str]:
    return [name for name in output.printed if name != "emit"]


def _spread(output: Output, answers: Sequence[tuple[int, ...]], recording: Recording, xways: int) -> Lines:
    """Returns the answers of expressway 0 for all expressways."""
    kept = [at for at, name in enumerate(output.printed) if name != "emit"]
    lines = np.array(answers, np.int64).reshape(len(answers), len(output.printed))[:, kept]
    shifts = {"vid": recording.vehicles, "qid": recording.queries}
    shift = np.array([shifts.get(name, 0) for name in _columns(output)])
    spread: Lines = np.concatenate([lines + xway * shift for xway in range(xways)])
    return spread


def _spent(played: pa.Table, recording: Recording, xways: int, history: Path | None) -> Lines:
    """Returns the right answers to expenditure queries."""
    queries = played.filter(pc.equal(played["type"], int(TupleKind.EXPENDITURE)))
    vid, day, asked, qid, time = (
        queries[name].to_numpy().astype(np.int64) for name in ("vid", "day", "xway", "qid", "time")
    )
    table = history_of(history)
    lines = [
        np.stack([time, qid + x * recording.queries, table.tolls(vid + x * recording.vehicles, day, asked + x)], axis=1)
        for x in range(xways)
    ]
    return np.concatenate(lines)


def _lines(output: Output, table: pa.Table) -> Lines:
    return np.stack([table[name].to_numpy() for name in _columns(output)], axis=1)


def _compared(output: Output, expected: Lines, found: Lines) -> list[str]:
    if expected.shape == found.shape and np.array_equal(_in_order(expected), _in_order(found)):
        return []
    right, there = (Counter(map(tuple, lines.tolist())) for lines in (expected, found))
    missing, unexpected = right - there, there - right
    counts = f"{missing.total():,} of {len(expected):,} lines are missing, {unexpected.total():,} are not expected"
    names = ", ".join(_columns(output))
    return [
        f"{output.name}: {counts}",
        *(f"  missing: {line} ({names})" for line in sorted(missing)[:_SHOWN]),
        *(f"  not expected: {line} ({names})" for line in sorted(unexpected)[:_SHOWN]),
    ]


def _in_order(lines: Lines) -> Lines:
    ordered: Lines = lines[np.lexsort(lines.T)]
    return ordered
