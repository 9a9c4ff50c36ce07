"""Rings and series: what they keep of a long run, and that it is the right part."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from seep.record.ring import Ring
from seep.record.series import LEVELS, CoarseningSeries, SeriesLevel


@given(st.integers(1, 10), st.lists(st.integers(1, 20)))
def test_a_ring_keeps_the_newest_that_fit_and_counts_all(most: int, sizes: list[int]) -> None:
    ring = Ring[int](most, lambda size: size)
    for size in sizes:
        ring.append(size)
    kept = list(ring)
    assert kept == sizes[len(sizes) - len(kept) :]
    assert sum(kept) <= most or len(kept) == 1
    assert ring.total == len(sizes) == ring.dropped + len(ring)
    left_out = sizes[: len(sizes) - len(kept)]
    assert not left_out or sum(kept) + left_out[-1] > most, "and no fewer than fit"
    found = [ring.numbered(number) for number in range(-1, len(sizes) + 1)]
    assert found == [None, *(None for _ in left_out), *kept, None]


def by_time(times: list[float], levels: tuple[SeriesLevel, ...] = LEVELS) -> list[float]:
    series = CoarseningSeries[float](levels)
    for at in times:
        series.append(at, at)
    return list(series)


@given(st.lists(st.floats(0.1, 50.0), max_size=300), st.floats(5.0, 50.0))
def test_a_series_keeps_the_first_item_and_all_of_the_recent_past_in_order(pauses: list[float], span: float) -> None:
    times = list(itertools.accumulate(pauses))
    kept = by_time(times, (SeriesLevel(0.0, span), SeriesLevel(20.0, 200.0)))
    assert kept == sorted(set(kept))
    assert kept[:1] == times[:1]
    assert [at for at in kept if times[-1] - at <= span] == [at for at in times if times[-1] - at <= span]
    assert all(at in times for at in kept)


@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=400))
def test_of_an_older_stretch_no_two_items_are_closer_than_its_level_says(pauses: list[float]) -> None:
    times = list(itertools.accumulate(pauses))
    kept = by_time(times, (SeriesLevel(0.0, 10.0), SeriesLevel(20.0, 10_000.0)))
    older = [at for at in kept[1:] if at < times[-1] - 10.0]
    assert all(later - earlier >= 20.0 for earlier, later in itertools.pairwise(older))
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert max(gaps, default=0.0) <= 20.0 + 2 * max(pauses), "and none is left out for longer than that"


def test_a_month_by_half_seconds_is_some_thousands_of_items_that_reach_back_to_its_beginning() -> None:
    series, day = CoarseningSeries[float](), 86_400.0
    for number in range(30 * 24 * 60):  # by the minute until the last hour
        series.append(number * 60.0, number * 60.0)
    for number in range(7_200):
        series.append(30 * day + number / 2, 30 * day + number / 2)
    kept = list(series)
    end = kept[-1]
    assert len(kept) < 6_000
    assert kept[0] == 0.0
    assert sum(at > end - 300.0 for at in kept) == 600, "by half a second"
    assert sum(end - 3_600.0 < at <= end - 300.0 for at in kept) >= 3_300 // 10 - 1, "by ten seconds"
    assert sum(end - day < at <= end - 7_200.0 for at in kept) >= 1_300, "by the minute"
    assert sum(at <= end - day for at in kept) >= 28 * 24, "by the hour"
