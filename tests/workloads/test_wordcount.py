"""The word count: data that is computed from its position, and the count that checks the engine's."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from seep.workloads.wordcount import FRAGMENT_BYTES, Counts, Fragments, differences, recount, split


@given(st.integers(0, 3), st.integers(0, 10**12), st.integers(1, 40), st.integers(0, 40))
def test_fragments_are_the_same_however_they_are_cut(partition: int, first: int, count: int, cut: int) -> None:
    cut = min(cut, count)
    fragments = Fragments()
    parts = [fragments(partition, first, cut), fragments(partition, first + cut, count - cut)]
    assert pa.concat_batches(parts).equals(fragments(partition, first, count))


def test_fragments_are_whole_words_in_140_bytes() -> None:
    texts = Fragments()(0, 0, 5_000)["text"]
    assert pc.unique(pc.binary_length(texts)).to_pylist() == [FRAGMENT_BYTES]
    words = {word for text in texts.to_pylist() for word in text.split()}
    assert all(word.isalpha() and len(word) % 2 == 0 for word in words)


def test_frequent_words_are_drawn_in_proportion_to_their_rank() -> None:
    words = Counter(word for text in Fragments()(0, 0, 30_000)["text"].to_pylist() for word in text.split())
    (_, first), (_, second), *_ = words.most_common()
    assert 1.9 < first / second < 2.1
    assert len(words) > 9_000


def test_event_time_goes_on_at_the_rate_over_all_partitions() -> None:
    fragments = Fragments(rows_per_second=1000.0)
    times = sorted(
        at for partition in range(4) for at in fragments(partition, 0, 250)["at"].cast(pa.int64()).to_pylist()
    )
    assert {b - a for a, b in itertools.pairwise(times)} == {1000}


def test_splitting_gives_every_word_the_time_of_its_fragment() -> None:
    batch = Fragments()(1, 0, 20)
    expected = [(row["at"], word) for row in batch.to_pylist() for word in row["text"].split()]
    assert [(row["at"], row["word"]) for row in split(batch).to_pylist()] == expected


def table(counts: Counts) -> pa.Table:
    keys = list(counts)
    starts = pa.array([start for start, _ in keys], pa.timestamp("us"))
    return pa.table({"word": [word for _, word in keys], "window_start": starts, "n": [counts[key] for key in keys]})


def test_recounting_counts_every_word_of_every_window() -> None:
    rate = 40.0  # 5 seconds, and so 200 fragments, are left of the first window
    rows = {0: 60, 1: 60, 3: 2}
    expected: Counts = Counter()
    for partition, end in rows.items():
        batch = Fragments(rate)(partition, 0, end)
        for at, text in zip(batch["at"].cast(pa.int64()).to_pylist(), batch["text"].to_pylist(), strict=True):
            for word in text.split():
                expected[at // 30_000_000 * 30_000_000, word] += 1
    assert recount(rows, rate) == expected
    assert {start for start, _ in expected} == {0, 30_000_000}


def test_equal_counts_have_no_differences() -> None:
    counts = recount({0: 100})
    assert differences(table(counts), counts) == []


def test_every_wrong_row_is_told() -> None:
    expected: Counts = Counter({(0, "a"): 3, (0, "b"): 1, (30_000_000, "a"): 2})
    found = table(Counter({(0, "a"): 4, (30_000_000, "a"): 2, (30_000_000, "c"): 1}))
    assert differences(found, expected) == [
        "the count of 'a' in the window from 0 s is 4, and should be 3",
        "the count of 'b' in the window from 0 s is missing, and should be 1",
        "the count of 'c' in the window from 30 s is 1, and should be missing",
    ]


def test_a_row_that_came_twice_is_wrong_even_if_its_count_is_right() -> None:
    counts: Counts = Counter({(0, "a"): 3})
    twice = pa.concat_tables([table(counts), table(counts)])
    assert differences(twice, counts) == ["the count of 'a' in the window from 0 s is there more than once"]
