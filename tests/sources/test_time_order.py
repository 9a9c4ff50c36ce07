"""Files with an event time: all of their partitions, wherever they are read, get through time together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.slots import SlotSet
from seep import sources
from seep.protocol.messages import MAX_WATERMARK
from seep.rows.position import MIN_WATERMARK, Position
from seep.rows.rate import Rate
from seep.sources.base import ReaderDefinition
from seep.sources.files import deal_out
from seep.sources.time_order import TakenRows, take_in_time_order
from tests.sources.stage import Driver, column, rows_of, setting

GROUPS, ROWS = 16, 400
ALL = GROUPS * ROWS
BITS = 4


def table(first: int, count: int, step: int = 1) -> pa.Table:
    return pa.table({"at": pa.array(range(first, first + count * step, step), pa.int64())})


@pytest.fixture(params=["parquet", "parquet without statistics", "csv"])
def ordered(request: pytest.FixtureRequest, tmp_path: Path) -> ReaderDefinition:
    """The times from 0 on, in as many row groups or files as partitions."""
    if request.param == "csv":
        for group in range(GROUPS):
            pacsv.write_csv(table(group * ROWS, ROWS), tmp_path / f"{group:02}.csv")
        return sources.csv(tmp_path, time="at")
    statistics = request.param == "parquet"
    pq.write_table(table(0, ALL), tmp_path / "all.parquet", row_group_size=ROWS, write_statistics=statistics)
    return sources.parquet(tmp_path, time="at")


def times(driver: Driver) -> list[int]:
    return column(driver.readings, "at")  # type: ignore[return-value]


# -- one instance ------------------------------------------------------------------------------------------------------


def test_the_watermark_follows_what_is_read_closely_all_the_way(ordered: ReaderDefinition) -> None:
    """Of a partition whose beginning is not known a row is read to know it."""
    driver = Driver(ordered, setting(BITS, max_rows=ROWS))
    count = 0
    while not (reading := driver.read()).exhausted:
        count += len(rows_of(reading))
        assert count - GROUPS - 1 <= reading.watermark <= count
    assert sorted(times(driver)) == list(range(ALL))


def test_row_groups_are_read_by_their_statistics_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    """No row of a later one is read before all of an earlier one are."""
    backwards = [table(group * ROWS, ROWS) for group in reversed(range(GROUPS))]
    with pq.ParquetWriter(tmp_path / "all.parquet", backwards[0].schema) as writer:
        for each in backwards:
            writer.write_table(each)
    driver = Driver(sources.parquet(tmp_path, time="at"), setting(BITS, max_rows=256))
    driver.read_all()
    epochs = [[row["at"] for row in rows_of(reading)] for reading in driver.readings if reading.outputs]
    assert all(max(before) < min(after) for before, after in pairwise(epochs))  # type: ignore[type-var]


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("ns"), pa.int32()])
def test_what_the_statistics_say_is_in_the_unit_of_the_watermark(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(
        pa.table({"at": pa.array([9, 7_000, 8_000], pa.int32()).cast(pa.int64()).cast(kind)}), tmp_path / "a.parquet"
    )
    definition = sources.parquet(tmp_path, time="at")
    earliest = definition.reader().earliest(0)
    assert earliest == {"s": 9_000_000, "ms": 9_000, "ns": 0}.get(getattr(kind, "unit", ""), 9)


def test_files_that_all_cover_the_same_time_are_read_side_by_side(tmp_path: Path) -> None:
    for file in range(4):
        pq.write_table(table(file, ROWS, step=4), tmp_path / f"{file}.parquet")
    driver = Driver(sources.parquet(tmp_path, time="at"), setting(2, max_rows=256))
    while not (reading := driver.read()).exhausted:
        assert max(times(driver)) - reading.watermark <= 2 * 4 * 256
    assert sorted(times(driver)) == list(range(4 * ROWS))


def test_more_files_than_partitions_are_dealt_out_so_that_each_partition_has_all_times(tmp_path: Path) -> None:
    for file in range(40):
        pacsv.write_csv(table(file * 10, 10), tmp_path / f"{file:02}.csv")
    driver = Driver(sources.csv(tmp_path, time="at", partitions=4), setting(2, max_rows=8))
    while not (reading := driver.read()).exhausted:
        assert max(times(driver)) - reading.watermark <= 50
    assert sorted(times(driver)) == list(range(400))


def test_without_a_time_partitions_are_read_side_by_side(tmp_path: Path) -> None:
    pq.write_table(table(0, ALL), tmp_path / "all.parquet", row_group_size=ROWS)
    reading = Driver(sources.parquet(tmp_path), setting(BITS, max_rows=GROUPS)).read()
    assert [row["at"] for row in rows_of(reading)] == list(range(0, ALL, ROWS))


# -- several instances -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "halves", [(SlotSet.range(0, 7), SlotSet.range(8, 15)), (SlotSet.range(0, 3), SlotSet.range(4, 15))]
)
def test_instances_get_through_time_together(ordered: ReaderDefinition, halves: tuple[SlotSet, SlotSet]) -> None:
    drivers = [Driver(ordered, setting(BITS, max_rows=ROWS)) for _ in halves]
    while True:
        read = [driver.read(half) for driver, half in zip(drivers, halves, strict=True)]
        if any(reading.exhausted for reading in read):
            break
        marks = [reading.watermark for reading in read if reading.watermark > MIN_WATERMARK]
        assert max(marks) - min(marks) <= 3 * ROWS
    for driver, half in zip(drivers, halves, strict=True):
        while not driver.read(half).exhausted:
            pass
    assert sorted(at for driver in drivers for at in times(driver)) == list(range(ALL))


@given(st.lists(st.integers(), max_size=40), st.integers(1, 20))
def test_dealing_out_loses_nothing_and_keeps_the_order_within_a_part(items: list[int], parts: int) -> None:
    dealt = deal_out(list(enumerate(items)), parts)
    assert len(dealt) == parts
    assert sorted(item for part in dealt for item in part) == list(enumerate(items))
    assert all(part == sorted(part) for part in dealt)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize("parts", [2, 4, 8, 64])
def test_any_half_of_the_partitions_has_every_other_item(parts: int) -> None:
    ahead = [part[0] for part in deal_out(range(parts), parts)]
    for half in (ahead[: parts // 2], ahead[parts // 2 :]):
        assert {later - earlier for earlier, later in pairwise(sorted(half))} <= {2}


# -- positions of earlier versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [5, GROUPS])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_run_goes_on_from_positions_of_a_version_that_read_neighbours_side_by_side(
    tmp_path: Path, kind: str, partitions: int
) -> None:
    make: Callable[..., Any] = getattr(sources, kind)
    for group in range(GROUPS):
        content = table((GROUPS - group) * ROWS, ROWS)
        _ = (
            pacsv.write_csv(content, tmp_path / f"{group:02}.csv")
            if kind == "csv"
            else pq.write_table(content, tmp_path / f"{group:02}.parquet")
        )
    before = Driver(make(tmp_path, partitions=partitions))
    before.logic._pace = sources.pace.Adaptive(0.05, 2_000)
    before.read()
    old = {slot: [_plain(p[0]), *p[1:]] for slot, p in before.readings[-1].positions.items()}
    after = Driver(make(tmp_path, partitions=partitions, time="at", out_of_order=ALL))
    after.logic.seek(old)
    after.read_all()
    assert sorted([*times(before), *times(after)]) == list(range(ROWS, (GROUPS + 1) * ROWS))
    assert times(after)


def _plain(offset: Any) -> Any:
    """An offset as earlier versions wrote it."""
    return offset[:3] if isinstance(offset, list) else offset


# -- rates -------------------------------------------------------------------------------------------------------------


def test_a_rate_is_that_of_all_partitions_together_though_one_is_read_after_the_other(
    ordered: ReaderDefinition,
) -> None:
    driver = Driver(ordered, setting(BITS, rate=Rate(1_000)))
    for epoch in range(60):
        driver.read()
        assert abs(len(times(driver)) - epoch * 100) <= GROUPS
        driver.clock.now += 0.1


def test_rows_that_a_rate_brings_came_to_be_when_they_were_due(ordered: ReaderDefinition) -> None:
    driver = Driver(ordered, setting(BITS, rate=Rate(1_000)))
    for _ in range(41):
        reading = driver.read()
        driver.clock.now += 0.1
    assert reading.created == pytest.approx(1_003.9, abs=0.05)


# -- the merge ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=6), st.integers(1, 200), st.integers(1, 9)
)
def test_no_partition_is_read_on_while_another_one_is_behind_it(times: list[list[int]], rows: int, block: int) -> None:
    """Whatever blocks a reader gives."""
    parts = {slot: sorted(each) for slot, each in enumerate(times)}
    reads: list[tuple[int, int]] = []

    def take(slot: int, position: Position, limit: int) -> TakenRows:
        end = min(position.rows + min(limit, block), len(parts[slot]))
        behind = [p.latest for other, p in now.items() if other != slot and not p.ended]
        assert not behind or position.latest <= min(behind)
        latest = max([position.latest, *parts[slot][position.rows : end]])
        after = position._replace(rows=end, latest=latest, ended=end == len(parts[slot]))
        reads.append((slot, end - position.rows))
        now[slot] = after
        return TakenRows([], position, after)

    now = {slot: Position(0) for slot in parts}
    taken = take_in_time_order(dict(now), rows, take)
    assert [each.after for each in taken] == list(now.values())
    assert sum(count for _, count in reads) == min(rows, sum(map(len, parts.values())))


def test_a_partition_without_rows_at_the_moment_does_not_hold_up_the_others() -> None:
    def take(slot: int, position: Position, limit: int) -> TakenRows:
        return TakenRows([], position, position._replace(rows=position.rows + (limit if slot else 0), latest=5))

    idle, other = take_in_time_order({0: Position(0, latest=1), 1: Position(0, latest=2)}, 1_000, take)
    assert (idle.after.rows, other.after.rows) == (0, 1_000)


def test_the_end_of_all_is_the_end_of_the_watermark(ordered: ReaderDefinition) -> None:
    assert Driver(ordered).read_all()[-1].watermark == MAX_WATERMARK
