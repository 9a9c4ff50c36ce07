"""Pace: by a rate, rows come when they are due; without one, epochs grow as long as they are taken in time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import pytest

from seep.rows.position import Position
from seep.rows.rate import Profile, Rate
from seep.sources.pace import Adaptive, Paced, ReadPortion


def at(rows: int, start: float = 100.0, shed: int = 0) -> Position:
    return Position(rows + shed, rows, shed, start=start)


def test_a_rate_gives_what_is_due_minus_what_was_read() -> None:
    assert Paced(Rate(100), 1, 1000).portions(1, 103.0, 1.0, [at(250)]) == [ReadPortion(0, 50)]


def test_nothing_is_due_at_the_first_read() -> None:
    assert Paced(Rate(100), 1, 1000).portions(1, 103.0, 1.0, [Position(0)]) == [ReadPortion(0, 0)]


def test_each_partition_has_an_equal_part_of_the_rate() -> None:
    pace = Paced(Rate(100), 4, 1000)
    assert pace.portions(1, 102.0, 0.5, [at(0), at(40)]) == [ReadPortion(0, 50), ReadPortion(0, 10)]


def test_a_source_that_is_behind_catches_up_by_at_most_the_rows_of_an_epoch() -> None:
    pace = Paced(Rate(100), 1, 150)
    assert pace.portions(1, 110.0, 1.0, [at(0)]) == [ReadPortion(0, 150)]
    assert pace.portions(2, 110.0, 1.0, [at(900)]) == [ReadPortion(0, 100)]


def test_an_instance_with_some_of_the_partitions_has_its_share_of_the_rows_of_an_epoch() -> None:
    assert Paced(Rate(1e6), 4, 400).portions(1, 110.0, 0.5, [at(0), at(0)]) == [ReadPortion(0, 100)] * 2


def test_a_source_that_sheds_passes_over_what_no_epoch_can_hold() -> None:
    pace = Paced(Rate(100), 1, 150, shed=True)
    assert pace.portions(1, 110.0, 1.0, [at(0)]) == [ReadPortion(850, 150)]
    assert pace.portions(2, 110.0, 1.0, [at(150, shed=850)]) == [ReadPortion(0, 0)]


def test_the_profile_of_a_rate_is_followed() -> None:
    rate = Rate(1000, Profile.SPIKE, period=10)
    pace, read, by_second = Paced(rate, 1, 10_000), 0, []
    for second in range(1, 11):
        (portion,) = pace.portions(second, 100.0 + second, 1.0, [at(read)])
        read += portion.take
        by_second.append(portion.take)
    assert by_second == pytest.approx([200, 200, 200, 200, 600, 600, 200, 200, 200, 200], abs=1)


class SlowQuery:
    """A query that takes so many rows per second, in turn, and commits epochs a while after it has taken them.

    Ticks come when they are due and the window is open, as the manager gives them.
    """

    def __init__(
        self,
        pace: Adaptive,
        speed: float,
        *,
        epoch: float = 0.05,
        window: int = 16,
        transit: float = 0.0,
        roll: int = 1,
    ) -> None:
        self.pace, self.speed = pace, speed
        self._epoch, self._window, self._transit, self._roll = epoch, window, transit, roll
        self.now = self._free = 0.0
        self.rows: list[int] = []  #: of each epoch
        self.committed_at: list[float] = []
        self.in_flight: list[tuple[int, int]] = []  #: epochs, and rows, at each tick

    def run(self, seconds: float, there: Callable[[float], float] = lambda _: math.inf) -> None:
        """For so long; `there` says how many rows there are to be read at a time."""
        end = self.now + seconds
        while self.now < end:
            self._tick(there)

    def _tick(self, there: Callable[[float], float]) -> None:
        committed = self._committed()
        while len(self.rows) + 1 - committed > self._window:
            self.now += 0.001
            committed = self._committed()
        self.pace.committed(committed)
        (portion,) = self.pace.portions(len(self.rows) + 1, self.now, 1.0, [at(0)])
        took = min(portion.take, there(self.now))
        self.pace.took(int(took), 1.0, 2 * took >= portion.take)
        self._free = max(self._free, self.now) + took / self.speed
        self.rows.append(int(took))
        self.committed_at.append(self._free + self._transit)
        self.in_flight.append((len(self.rows) - committed, sum(self.rows[committed:])))
        self.now += self._epoch

    def _committed(self) -> int:
        done = sum(moment <= self.now for moment in self.committed_at)
        return done - done % self._roll

    def throughput(self, seconds: float) -> float:
        """Of the last seconds."""
        since = self.now - seconds
        passed = [(when, rows) for when, rows in zip(self.committed_at, self.rows, strict=True)]
        return sum(rows for when, rows in passed if since < when <= self.now) / seconds


def test_nothing_grows_before_a_commit_has_shown_that_it_may() -> None:
    query = SlowQuery(Adaptive(0.05, 1 << 19), 1e6, transit=60.0, window=1000)
    query.run(10.0)
    assert set(query.rows) == {1024}


def test_epochs_double_as_they_are_committed_in_time_up_to_the_limit() -> None:
    query = SlowQuery(Adaptive(0.05, 20_000), 1e9)
    query.run(1.0)
    assert list(dict.fromkeys(query.rows)) == [1024, 2048, 4096, 8192, 16_384, 20_000]


@pytest.mark.parametrize("speed", [6_000, 52_000, 1_000_000, 9_000_000])
@pytest.mark.parametrize("roll", [1, 10])
@pytest.mark.parametrize("transit", [0.005, 0.2])
def test_a_query_is_never_buried_and_never_idle(speed: float, roll: int, transit: float) -> None:
    query = SlowQuery(Adaptive(0.05, 1 << 19), speed, roll=roll, transit=transit)
    query.run(60.0)
    assert max(epochs for epochs, _ in query.in_flight) <= 16
    assert max(rows for _, rows in query.in_flight) <= max(4 * speed, 16 * 1024), "never more than it takes in 4 s"
    assert query.throughput(30.0) >= 0.95 * speed
    assert statistics.median(rows for _, rows in query.in_flight) <= 2 * speed


def test_short_epochs_fill_a_fast_query_too() -> None:
    query = SlowQuery(Adaptive(0.002, 1 << 19), 2_000_000, epoch=0.002, transit=0.008)
    query.run(4.0)
    assert query.throughput(2.0) >= 0.95 * 2_000_000


def test_a_query_that_becomes_slower_is_followed_and_one_that_becomes_faster_too() -> None:
    query = SlowQuery(Adaptive(0.05, 1 << 19), 1_000_000)
    query.run(10.0)
    query.speed = 50_000
    query.run(30.0)
    assert statistics.median(rows for _, rows in query.in_flight[-50:]) <= 2 * 50_000
    query.speed = 1_000_000
    query.run(10.0)
    assert query.throughput(4.0) >= 0.95 * 1_000_000


def test_a_source_that_has_little_to_read_does_not_grow_its_epochs() -> None:
    query = SlowQuery(Adaptive(0.05, 1 << 19), 1e6)
    query.run(30.0, there=lambda _: 100)
    query.run(0.05)
    assert query.rows[-1] <= 1024, "so what comes at once then does not bury the query"


def test_reading_that_takes_longer_than_an_epoch_is_done_in_smaller_ones() -> None:
    pace, now, rows = Adaptive(0.05, 20_000), 0.0, []
    for epoch in range(1, 40):
        pace.committed(epoch - 1)
        (portion,) = pace.portions(epoch, now, 1.0, [at(0)])
        pace.took(portion.take, 1.0, True)
        rows.append(portion.take)
        now += 0.2
    assert rows[:3] == [1024, 768, 576]
    assert rows[-1] == 256


def test_an_epoch_that_is_read_in_pieces_counts_once() -> None:
    whole, pieces = Adaptive(0.05, 20_000), Adaptive(0.05, 20_000)
    for epoch in range(1, 6):
        now = epoch * 0.05
        for pace, shares in ((whole, [1.0]), (pieces, [0.5, 0.25, 0.25])):
            pace.committed(epoch - 1)
            taken = 0
            for share in shares:
                (portion,) = pace.portions(epoch, now, share, [at(0)])
                pace.took(portion.take, share, True)
                taken += portion.take
            assert taken == 1024 * 2 ** max(epoch - 1, 0)


def test_an_instance_divides_its_share_over_the_partitions_that_are_left() -> None:
    assert Adaptive(0.05, 1 << 19).portions(1, 0.0, 0.5, [at(0)] * 4) == [ReadPortion(0, 128)] * 4


def test_every_partition_gets_at_least_a_row() -> None:
    assert Adaptive(0.05, 2).portions(1, 0.0, 1.0, [at(0)] * 8) == [ReadPortion(0, 1)] * 8
