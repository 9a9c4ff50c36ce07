"""Pace: by a rate, rows come when they are due; without one, epochs grow as long as they are taken in time."""

from __future__ import annotations

import pytest

from seep.sources.pace import Adaptive, Paced, Portion
from seep.sources.position import Position
from seep.sources.rate import Profile, Rate


def at(rows: int, start: float = 100.0, shed: int = 0) -> Position:
    return Position(rows + shed, rows, shed, start=start)


def test_a_rate_gives_what_is_due_minus_what_was_read() -> None:
    assert Paced(Rate(100), 1, 1000).portions(1, 103.0, 1.0, [at(250)]) == [Portion(0, 50)]


def test_nothing_is_due_at_the_first_read() -> None:
    assert Paced(Rate(100), 1, 1000).portions(1, 103.0, 1.0, [Position(0)]) == [Portion(0, 0)]


def test_each_partition_has_an_equal_part_of_the_rate() -> None:
    pace = Paced(Rate(100), 4, 1000)
    assert pace.portions(1, 102.0, 0.5, [at(0), at(40)]) == [Portion(0, 50), Portion(0, 10)]


def test_a_source_that_is_behind_catches_up_by_at_most_the_rows_of_an_epoch() -> None:
    pace = Paced(Rate(100), 1, 150)
    assert pace.portions(1, 110.0, 1.0, [at(0)]) == [Portion(0, 150)]
    assert pace.portions(2, 110.0, 1.0, [at(900)]) == [Portion(0, 100)]


def test_an_instance_with_some_of_the_partitions_has_its_share_of_the_rows_of_an_epoch() -> None:
    assert Paced(Rate(1e6), 4, 400).portions(1, 110.0, 0.5, [at(0), at(0)]) == [Portion(0, 100)] * 2


def test_a_source_that_sheds_passes_over_what_no_epoch_can_hold() -> None:
    pace = Paced(Rate(100), 1, 150, shed=True)
    assert pace.portions(1, 110.0, 1.0, [at(0)]) == [Portion(850, 150)]
    assert pace.portions(2, 110.0, 1.0, [at(150, shed=850)]) == [Portion(0, 0)]


def test_the_profile_of_a_rate_is_followed() -> None:
    rate = Rate(1000, Profile.SPIKE, period=10)
    pace, read, by_second = Paced(rate, 1, 10_000), 0, []
    for second in range(1, 11):
        (portion,) = pace.portions(second, 100.0 + second, 1.0, [at(read)])
        read += portion.take
        by_second.append(portion.take)
    assert by_second == pytest.approx([200, 200, 200, 200, 600, 600, 200, 200, 200, 200], abs=1)


def taken(pace: Adaptive, intervals: list[float]) -> list[int]:
    """The rows of epochs that begin after one another at these intervals."""
    now, found = 0.0, []
    for epoch, interval in enumerate(intervals):
        now += interval
        found.append(pace.portions(epoch, now, 1.0, [at(0)])[0].take)
    return found


def test_epochs_that_come_in_time_grow_by_a_quarter_up_to_the_limit() -> None:
    rows = taken(Adaptive(0.05, 20_000), [0.05] * 8)
    assert rows[:3] == [8192, 10240, 12800]
    assert rows[-1] == 20_000


def test_epochs_that_come_late_shrink_by_a_quarter_down_to_the_least() -> None:
    rows = taken(Adaptive(0.05, 20_000), [0.2] * 40)
    assert rows[:3] == [8192, 6144, 4608]
    assert rows[-1] == 256


def test_epochs_that_come_a_little_late_stay_as_they_are() -> None:
    assert len(set(taken(Adaptive(0.05, 20_000), [0.065] * 5))) == 1


def test_an_epoch_that_is_read_in_pieces_counts_once() -> None:
    pace = Adaptive(0.05, 20_000)
    first = pace.portions(1, 0.0, 0.5, [at(0)])
    assert pace.portions(1, 5.0, 0.5, [at(0)]) == first
    assert pace.portions(2, 0.05, 0.5, [at(0)])[0].take == 5120


def test_an_instance_divides_its_share_over_the_partitions_that_are_left() -> None:
    assert Adaptive(0.05, 1 << 19).portions(1, 0.0, 0.5, [at(0)] * 4) == [Portion(0, 1024)] * 4


def test_every_partition_gets_at_least_a_row() -> None:
    assert Adaptive(0.05, 2).portions(1, 0.0, 1.0, [at(0)] * 8) == [Portion(0, 1)] * 8
