"""The word-frequency query of the SEEP paper: sentence fragments, split into words, counted in windows of 30 s.

    lines -> splitter -> counter -> out

All data is computed from its position in the source, the event time too, so a count can be checked afterwards without
the engine: `recount` makes the same fragments again and counts them in plain Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.durations import micros

if TYPE_CHECKING:
    from seep.query.query import Query

FRAGMENT_BYTES = 140
WINDOW = "30 s"
ROWS_PER_SECOND = 20_000.0

#: Distinct words; the n-th is drawn with a probability in proportion to 1/n.
_VOCABULARY = 10_000
#: Distinct fragments; a row has one of these.
_POOL = 1 << 15
#: The step from one row's fragment to that of the next; odd, so that all are used before one is repeated.
_STEP = 0x9E37
#: The number of partitions of the source.
_PARTITIONS = 4
#: The event time of the first fragment, shortly before the end of a window, so that the first counts come soon.
_START = micros("25 s")
#: Fragments that are counted again at a time.
_BLOCK = 1 << 16

_TIME = pa.timestamp("us")
_FRAGMENTS = pa.schema([("at", _TIME), ("text", pa.string())])
_WORDS = pa.schema([("at", _TIME), ("word", pa.string())])

#: (microseconds at which the window starts, word or text) -> how often
Counts = Counter[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Fragments:
    """Makes the fragments of each partition, by position; all partitions have `rows_per_second` in event time."""

    rows_per_second: float = ROWS_PER_SECOND

    def __call__(self, partition: int, first: int, count: int) -> pa.RecordBatch:
        numbers = np.arange(first, first + count, dtype=np.int64) * _PARTITIONS + partition
        at = _START + (numbers * (1e6 / self.rows_per_second)).astype(np.int64)
        text = _fragments().take(pa.array(numbers % _POOL * _STEP % _POOL))
        return pa.record_batch([pa.array(at).view(_TIME), text], schema=_FRAGMENTS)


def wordcount(rows_per_second: float = ROWS_PER_SECOND, window: str = WINDOW) -> Query:
    """Makes the query; its sink `out` collects one row for each word and window."""
    import seep

    query = seep.Query("wordcount")
    lines = query.source(
        "lines", seep.sources.generator(Fragments(rows_per_second), _FRAGMENTS, partitions=_PARTITIONS, time="at")
    )
    words = lines.flat_map("splitter", split, _WORDS)
    counts = words.key_by("word").window(seep.tumbling(window)).aggregate("counter", n=seep.count())
    counts.sink("out", seep.sinks.collect())
    return query


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns one row for each word of each fragment.

    >>> fragments = pa.record_batch([pa.array([7], _TIME), pa.array(["to be or  not"])], schema=_FRAGMENTS)
    >>> split(fragments)["word"].to_pylist()
    ['to', 'be', 'or', 'not']
    """
    pieces = pc.ascii_split_whitespace(batch["text"])
    words = pa.record_batch([batch["at"].take(pc.list_parent_indices(pieces)), pc.list_flatten(pieces)], schema=_WORDS)
    return words.filter(pc.not_equal(words["word"], ""))


def recount(rows: Mapping[int, int], rows_per_second: float = ROWS_PER_SECOND, window: str = WINDOW) -> Counts:
    """Returns the right counts for `rows` fragments of each partition, computed without the engine."""
    length = micros(window)
    texts: Counts = Counter()
    for partition, end in rows.items():
        for first in range(0, end, _BLOCK):
            block = Fragments(rows_per_second)(partition, first, min(_BLOCK, end - first))
            times = block["at"].view(pa.int64()).to_pylist()
            texts.update(
                (time - time % length, text) for time, text in zip(times, block["text"].to_pylist(), strict=True)
            )
    counts: Counts = Counter()
    for (start, text), times_seen in texts.items():
        for word in text.split():
            counts[start, word] += times_seen
    return counts


def differences(found: pa.Table, expected: Counts) -> list[str]:
    """Returns a text for each wrong count in the sink, by window; none if every row is right."""
    starts = found["window_start"].combine_chunks().cast(_TIME).view(pa.int64()).to_pylist()
    rows = list(zip(starts, found["word"].to_pylist(), strict=True))
    twice = [key for key, times in Counter(rows).items() if times > 1]
    counts = dict(zip(rows, found["n"].to_pylist(), strict=True))
    wrong = sorted(key for key in counts.keys() | expected.keys() if counts.get(key) != expected.get(key))
    return [_in_words(key, "is there more than once") for key in sorted(twice)] + [
        _in_words(key, f"is {_count(counts.get(key))}, and should be {_count(expected.get(key))}") for key in wrong
    ]


def _in_words(key: tuple[int, str], what: str) -> str:
    start, word = key
    return f"the count of {word!r} in the window from {start / 1e6:g} s {what}"


def _count(n: Any) -> str:
    return "missing" if n is None else f"{n:,}"


@cache
def _fragments() -> pa.Array:
    """Returns the pool of fragments: as many whole words as fit, filled up with spaces."""
    words = _words()
    chances = 1 / np.arange(1, _VOCABULARY + 1)
    drawn = np.random.default_rng(2013).choice(_VOCABULARY, (_POOL, FRAGMENT_BYTES // 3 + 1), p=chances / chances.sum())
    lengths = np.array([len(word) + 1 for word in words])
    fits = (np.cumsum(lengths[drawn], axis=1) <= FRAGMENT_BYTES + 1).sum(axis=1)
    kept = drawn[np.arange(drawn.shape[1]) < fits[:, None]]
    lists = pa.ListArray.from_arrays(
        np.concatenate([[0], np.cumsum(fits)]).astype(np.int32), pa.array(words).take(kept)
    )
    return pc.ascii_rpad(pc.binary_join(lists, " "), FRAGMENT_BYTES)


@cache
def _words() -> list[str]:
    """Returns the vocabulary, from `ba` on: frequent words are shorter."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    words: list[str] = list(syllables)
    for stem in words:  # grows while it is read: words of one syllable, then of two, …
        if len(words) >= _VOCABULARY:
            break
        words.extend(stem + syllable for syllable in syllables)
    return words[:_VOCABULARY]
