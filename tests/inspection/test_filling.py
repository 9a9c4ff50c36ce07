"""How full slots are, against a count in plain Python."""

from __future__ import annotations

from collections import Counter as Count

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from primitives.hashing import hash_key
from primitives.slots import slot_of
from seep.inspection import Stored, skew, stats
from tests.inspection.orders import QUERY, SLOT_BITS, WORDS, Counter, Stage


def test_rows_of_each_slot_are_those_whose_keys_it_has(stage: Stage) -> None:
    counter = Counter().see(*WORDS, *WORDS[:7])
    stage.take(counter)
    stage.take(counter.see("be"))
    expected = Count(slot_of(hash_key(word), SLOT_BITS) for word in [*WORDS, "be"])
    counts, pages, *_ = stats(Stored.open(stage.location, QUERY), "counter")
    assert dict(enumerate(counts.rows.tolist())) == {slot: expected[slot] for slot in range(1 << SLOT_BITS)}
    assert counts.rows.tolist() == pages.rows.tolist()
    assert (counts.deltas, counts.container) == (1, "counts")


def test_bytes_of_each_slot_are_those_of_its_values(stage: Stage) -> None:
    stage.take(Counter().see(*WORDS))
    (counts,) = stats(Stored.open(stage.location, QUERY), "counter", "counts")
    expected = Count[int]()
    for word in WORDS:
        expected[slot_of(hash_key(word), SLOT_BITS)] += len(word) + 4 + 8 + 8
    assert dict(enumerate(counts.nbytes.tolist())) == {slot: expected[slot] for slot in range(1 << SLOT_BITS)}
    assert counts.stored > counts.nbytes.sum() / 2


def test_the_fullest_slots_come_first_and_empty_ones_not_at_all(stage: Stage) -> None:
    stage.take(Counter().see(*["be"] * 9, "question"))
    bids = stats(Stored.open(stage.location, QUERY), "counter", "bids")[0]
    (most, rows, _), (_, one, _) = bids.largest()
    assert (most, rows, one) == (slot_of(hash_key("be"), SLOT_BITS), 9, 1)


@given(arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 1000)))
def test_gini_is_the_mean_difference_of_all_pairs_over_twice_the_mean(weights: np.ndarray) -> None:
    found = skew(weights)
    differences = np.abs(weights[:, None] - weights[None, :]).mean()
    expected = differences / (2 * weights.mean()) if weights.any() else 0.0
    assert np.isclose(found.gini, expected)
    assert sum(found.histogram.values()) == len(weights)
    assert found.histogram["empty"] == int((weights == 0).sum())


def test_nothing_at_all_is_spread_evenly() -> None:
    found = skew(np.zeros(4, np.int64))
    assert (found.gini, found.ratio) == (0.0, 1.0)
    even = skew(np.full(4, 3))
    assert (even.gini, even.ratio, even.histogram["up to the mean"]) == (0.0, 1.0, 4)
