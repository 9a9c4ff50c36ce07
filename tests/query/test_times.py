"""Event time and durations: the units of users and the numbers inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.durations import micros
from primitives.errors import UserError
from seep.rows.times import event_times, is_event_time, length, times_column


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7us", 7),
        ("500ms", 500_000),
        ("30 s", 30_000_000),
        ("1.5 sec", 1_500_000),
        ("2 min", 120_000_000),
        ("2m", 120_000_000),
        ("1h", 3_600_000_000),
        ("1 d", 86_400_000_000),
        ("1h 30min", 5_400_000_000),
        ("  1H30Min ", 5_400_000_000),
        ("-5 s", -5_000_000),
        ("0 s", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, expected: int) -> None:
    assert micros(text) == expected


@pytest.mark.parametrize("text", ["", "-", "30", "s", "30 parsecs", "30 s x", "1..5 s", "0.5 us", "3 s, 4 ms"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"is no length of time in whole microseconds; .*'30 s'"):
        micros(text)


@given(st.timedeltas(timedelta(days=-1000), timedelta(days=1000)))
def test_a_timedelta_is_taken_to_the_microsecond(duration: timedelta) -> None:
    assert timedelta(microseconds=micros(duration)) == duration


def test_a_length_is_text_for_timestamps_and_a_number_for_integers() -> None:
    assert length("2 s", pa.timestamp("ms")) == 2_000_000
    assert length(timedelta(seconds=2), pa.timestamp("ns", "UTC")) == 2_000_000
    assert length(2, pa.int16()) == 2
    with pytest.raises(UserError, match="2 needs a unit, as the event time is a timestamp"):
        length(2, pa.timestamp("us"))
    with pytest.raises(UserError, match="'2 s' must be a plain number, as the event time is a int64"):
        length("2 s", pa.int64())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_every_unit_and_zone_are_microseconds(unit: str, zone: str | None) -> None:
    moment = datetime(2024, 5, 17, 12, 0, 5, tzinfo=UTC if zone else None)
    column = pa.array([moment], pa.timestamp(unit, zone))
    seconds = int(datetime(2024, 5, 17, 12, 0, 5, tzinfo=UTC).timestamp())
    assert event_times(column).tolist() == [seconds * 1_000_000]


def test_nanoseconds_are_cut_off_towards_the_past() -> None:
    column = pa.array([-1_001, -1_000, -1, 0, 999, 1_000], pa.timestamp("ns"))
    assert event_times(column).tolist() == [-2, -1, -1, 0, 0, 1]


def test_chunked_and_sliced_columns_count_from_their_own_beginning() -> None:
    column = pa.chunked_array([pa.array([1, 2, 3], pa.int8())[1:], pa.array([4], pa.int8())])
    assert event_times(column).tolist() == [2, 3, 4]
    assert event_times(pa.array([10, 20, 30], pa.timestamp("ms"))[2:]).tolist() == [30_000]


def test_a_row_without_event_time_is_refused() -> None:
    with pytest.raises(UserError, match="1 of 2 rows have no event time"):
        event_times(pa.array([1, None]))


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.date32(), pa.bool_()])
def test_other_types_cannot_be_the_event_time(kind: pa.DataType) -> None:
    assert not is_event_time(kind)
    with pytest.raises(UserError, match="cannot be the event time; use integers or timestamps"):
        event_times(pa.array([], kind))


@given(st.lists(st.integers(-(2**40), 2**40)))
def test_a_column_made_of_event_times_has_these_event_times(times: list[int]) -> None:
    numbers = np.array(times, np.int64)
    for kind in (pa.int64(), pa.timestamp("us"), pa.timestamp("ns", "UTC")):
        column = times_column(numbers, kind)
        assert column.type == kind
        assert event_times(column).tolist() == times
