"""Histograms of how long things took, and latencies over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.record.histogram import Histogram
from seep.record.latencies import LatencyRing

times = st.lists(st.floats(1e-6, 3_000), min_size=1, max_size=200)


@given(times=times, cut=st.integers(0, 200))
def test_percentiles_are_right_to_two_percent_however_times_come_in(times: list[float], cut: int) -> None:
    histogram = Histogram()
    for part in (times[:cut], times[cut:]):
        histogram.add(np.array(part))
    assert (histogram.count, histogram.longest) == (len(times), max(times))
    exact = np.percentile(times, [50, 95, 99, 100], method="inverted_cdf")
    assert [histogram.percentile(share) for share in (0.5, 0.95, 0.99, 1.0)] == pytest.approx(exact, rel=0.021)


def test_what_is_written_has_all_that_was_counted() -> None:
    histogram = Histogram()
    histogram.add(np.array([0.001, 0.001, 2.0, 0.0]))
    buckets = histogram.to_json()
    assert [count for _, count in buckets] == [1, 2, 1]
    assert [end for end, _ in buckets][1:] == pytest.approx([0.001, 2.0], rel=0.021)
    assert Histogram().percentile(0.5) == 0.0


def test_a_timeline_has_latencies_by_quarters_of_a_second() -> None:
    ring = LatencyRing()
    for at, latency in [(0.0, 0.1), (0.1, 0.3), (1.1, 0.5)]:
        ring.add(at, [latency])
    first, second = ring.timeline()
    assert (first["at"], first["epochs"], first["max"]) == (0.0, 2, 0.3)
    assert (second["at"], second["epochs"], second["p50"]) == (1.0, 1, 0.5)


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30), st.integers(0, 60))
def test_a_ring_of_latencies_has_the_newest_in_the_order_of_time(
    most: int, parts: list[tuple[int, int]], since: int
) -> None:
    ring, heard, at = LatencyRing(most), [], 0
    for pause, count in parts:
        at += pause
        latencies = [float(len(heard) + number) for number in range(count)]
        ring.add(float(at), latencies)
        heard += [(at, latency) for latency in latencies]
    kept = heard[-most:]
    assert ring.since(-1.0).tolist() == [latency for _, latency in kept]
    assert ring.since(float(since)).tolist() == [latency for when, latency in kept if when > since]
    assert ring.newest(3).tolist() == [latency for _, latency in kept][-3:]
    assert sum(each["epochs"] for each in ring.timeline()) == len(kept)
