"""The logic of sources: positions, watermarks, replay, moves between instances, pace and stamps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, UserError
from primitives.slots import SlotSet
from primitives.state.codec import pack, unpack
from seep import sources
from seep.protocol.messages import MAX_WATERMARK
from seep.rows.position import MIN_WATERMARK
from seep.rows.rate import Profile, Rate
from seep.sinks.formats import JSON_LINES
from seep.sources import logic as logic_module
from seep.sources.base import ReaderDefinition
from seep.sources.reader import Block, SourceReader
from tests.sources.stage import EDGE, Clock, Driver, column, rows_of, setting

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.int64())])
ROWS = 120
ALL_ROWS = [n + partition * 1000 for partition in range(2) for n in range(ROWS)]


def numbers(partition: int, first: int, count: int) -> pa.RecordBatch:
    n = np.arange(first, first + count)
    return pa.record_batch([n + partition * 1000, n * 3 + n % 4], schema=SCHEMA)


class Letters(SourceReader):
    """Offsets are text; a block has at most seven rows."""

    def start(self, partition: int) -> dict[str, Any]:
        return {"row": f"{partition}:0"}

    def read(self, partition: int, offset: dict[str, Any], limit: int) -> Block:
        first = int(offset["row"].split(":")[1])
        count = min(limit, 7, ROWS - first)
        return Block(numbers(partition, first, count), {"row": f"{partition}:{first + count}"}, first + count >= ROWS)


def of_kind(kind: str, home: Path) -> ReaderDefinition:
    """ALL_ROWS from every kind of source, in two or three partitions."""
    tables = [pa.Table.from_batches([numbers(partition, 0, ROWS)]) for partition in range(2)]
    options: dict[str, Any] = {"time": "at", "out_of_order": 5}
    for i, table in enumerate(tables):
        if kind == "parquet":
            pq.write_table(table, home / f"{i}.parquet", row_group_size=35)
        elif kind == "csv":
            pacsv.write_csv(table, home / f"{i}.csv")
        elif kind == "json_lines":
            (home / f"{i}.jsonl").write_bytes(b"\n" + b"".join(_json(table)) + b"\n")
    make: dict[str, Callable[[], ReaderDefinition]] = {
        "memory": lambda: sources.memory(tables, partitions=2, **options),
        "generator": lambda: sources.generator(numbers, SCHEMA, partitions=2, rows=ROWS, **options),
        "custom": lambda: sources.custom(Letters, SCHEMA, partitions=2, **options),
        "parquet": lambda: sources.parquet(home, partitions=3, **options),
        "csv": lambda: sources.csv(home, **options),
        "json_lines": lambda: sources.json_lines(home, schema=SCHEMA, **options),
    }
    return make[kind]()


def _json(table: pa.Table) -> list[bytes]:
    stream = pa.BufferOutputStream()
    JSON_LINES.write(table, stream)
    return [stream.getvalue().to_pybytes()]


KINDS = ["memory", "generator", "custom", "parquet", "csv", "json_lines"]


@pytest.fixture(scope="module", params=KINDS)
def definition(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ReaderDefinition:
    return of_kind(request.param, tmp_path_factory.mktemp(request.param))


# -- what is read -----------------------------------------------------------------------------------------------------


def test_every_row_is_read_once(definition: ReaderDefinition) -> None:
    assert sorted(column(Driver(definition).read_all(), "n")) == ALL_ROWS  # type: ignore[type-var]


def test_columns_are_exactly_those_declared(definition: ReaderDefinition) -> None:
    driver = Driver(definition)
    assert {each.outputs[EDGE].schema for each in driver.read_all() if each.outputs} == {definition.schema}


@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 160), min_size=1, max_size=8), st.integers(0, 8))
def test_rereading_recorded_epochs_gives_the_same_rows_and_watermarks(
    definition: ReaderDefinition, quotas: list[int], start: int
) -> None:
    first = Driver(definition)
    for quota in quotas:
        first.logic._pace = sources.pace.Adaptive(0.05, quota)
        first.read()
    start = min(start, len(quotas))
    again = Driver(definition, clock=Clock(5_000.0))
    if start:
        again.logic.seek(unpack(pack(dict(first.readings[start - 1].positions))))
    for epoch, reading in enumerate(first.readings[start:], start + 1):
        recorded = unpack(pack(dict(reading.positions)))
        assert again.logic.reread(epoch, again.slots, recorded) == reading


@hypothesis_settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(20, 200))
def test_partitions_go_on_where_they_were_when_they_move(
    definition: ReaderDefinition, owners: list[int], quota: int
) -> None:
    drivers = [Driver(definition), Driver(definition)]
    moving = SlotSet([1])
    home = drivers[0].slots - moving
    found: list[object] = []
    owner = 0
    for target in [*owners, *[owners[-1]] * 2 * ROWS]:
        if target != owner:
            chunks = drivers[owner].logic.state.snapshot(moving)
            drivers[owner].logic.state.drop(moving)
            drivers[target].logic.state.restore(chunks)
            owner = target
        for i, driver in enumerate(drivers):
            driver.logic._pace = sources.pace.Adaptive(0.05, quota)
            mine = (home if i == 0 else SlotSet.empty()) | (moving if i == owner else SlotSet.empty())
            found += column([driver.read(mine)], "n")
        if all(driver.readings[-1].exhausted for driver in drivers):
            break
    assert sorted(found) == ALL_ROWS  # type: ignore[type-var]


def test_state_of_one_epoch_read_in_two_pieces_is_that_of_one(definition: ReaderDefinition) -> None:
    whole, pieces = Driver(definition), Driver(definition)
    whole.logic._pace = pieces.logic._pace = sources.pace.Paced(Rate(1e9), definition.partitions, 1000)
    for slot in whole.slots:
        whole.logic.seek({slot: whole.logic._position(slot)._replace(start=1.0)})
        pieces.logic.seek({slot: whole.logic._position(slot)})
    reading = whole.read()
    parts = [pieces.logic.read(1, SlotSet([slot])) for slot in pieces.slots]
    assert {slot: p for part in parts for slot, p in part.positions.items()} == reading.positions


# -- watermarks -------------------------------------------------------------------------------------------------------


def generated(**options: Any) -> ReaderDefinition:
    return sources.generator(numbers, SCHEMA, **options)


def test_the_watermark_is_behind_the_latest_row_by_the_disorder() -> None:
    reading = Driver(generated(time="at", out_of_order=7), setting(max_rows=11)).read()
    latest = max(row["at"] for row in rows_of(reading))  # type: ignore[type-var]
    assert reading.watermark == latest - 7 - 1  # type: ignore[operator]


@hypothesis_settings(max_examples=30)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=10), st.data())
def test_no_later_row_is_at_or_before_a_watermark(quotas: list[int], data: st.DataObject) -> None:
    times = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=200))
    disorder = 30
    batch = pa.record_batch({"at": pa.array([i + t for i, t in enumerate(times)], pa.int64())})
    driver = Driver(sources.memory(batch, time="at", out_of_order=disorder, partitions=2))
    promised = MIN_WATERMARK
    for quota in [*quotas, *[50] * 10]:
        driver.logic._pace = sources.pace.Adaptive(0.05, quota)
        reading = driver.read()
        assert all(row["at"] > promised for row in rows_of(reading))  # type: ignore[operator]
        assert reading.watermark >= promised
        promised = reading.watermark
    assert promised == MAX_WATERMARK


def test_a_partition_at_its_end_does_not_hold_the_watermark_back() -> None:
    class Uneven(Letters):
        def read(self, partition: int, offset: Any, limit: int) -> Block:
            block = super().read(partition, offset, min(limit, 5))
            return block._replace(ended=True) if partition == 0 else block

    driver = Driver(sources.custom(Uneven, SCHEMA, partitions=2, time="at"))
    driver.read()
    assert driver.read().watermark == numbers(1, 0, 10)["at"].to_numpy().max() - 1


def test_a_reader_that_knows_what_is_to_come_says_the_watermark_itself() -> None:
    class Knowing(Letters):
        def read(self, partition: int, offset: Any, limit: int) -> Block:
            block = super().read(partition, offset, min(limit, 5))
            return block._replace(watermark=int(block.rows["n"][-1].as_py()) * 2)

    driver = Driver(sources.custom(Knowing, SCHEMA, time="at"))
    first, second = driver.read(), driver.read()
    assert (first.watermark, second.watermark) == (4 * 2 - 1, 9 * 2 - 1)
    again = driver.logic.reread(2, SlotSet.full(0), second.positions)
    assert again.watermark == second.watermark


def test_a_partition_that_has_not_been_read_holds_the_watermark_back() -> None:
    driver = Driver(generated(time="at", partitions=2), setting(1, rate=Rate(10)))
    assert driver.read().watermark == MIN_WATERMARK


def test_without_event_time_nothing_is_promised_until_the_end() -> None:
    driver = Driver(generated(rows=20), setting(max_rows=15))
    assert [reading.watermark for reading in driver.read_all()] == [MIN_WATERMARK, MAX_WATERMARK]


def test_slots_without_a_partition_are_at_their_end() -> None:
    driver = Driver(generated(partitions=3, time="at"))
    reading = driver.logic.read(1, SlotSet([3]))
    assert (reading.exhausted, reading.watermark, reading.outputs) == (True, MAX_WATERMARK, {})


def test_timestamps_count_in_microseconds() -> None:
    batch = pa.record_batch({"at": pa.array([1, 2], pa.timestamp("s"))})
    more = pa.record_batch({"at": pa.array([3], pa.timestamp("s"))})
    driver = Driver(sources.memory([batch, more], time="at", out_of_order="500 ms"), setting(max_rows=2))
    assert driver.read().watermark == 2_000_000 - 500_000 - 1


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_source_without_end_is_never_exhausted() -> None:
    driver = Driver(generated(), setting(max_rows=100))
    assert not any(driver.read().exhausted for _ in range(20))


def test_a_source_stops_at_the_time_it_is_told() -> None:
    driver = Driver(generated(), setting(until=1_001.0))
    assert not driver.read().exhausted
    driver.clock.now = 1_001.0
    assert driver.read() == driver.readings[-1]
    assert (driver.readings[-1].exhausted, driver.readings[-1].outputs) == (True, {})


def test_a_source_without_rows_is_exhausted_at_once() -> None:
    empty = sources.memory(pa.record_batch({"n": pa.array([], pa.int64())}))
    assert Driver(empty).read().exhausted


# -- rates and stamps -------------------------------------------------------------------------------------------------

STAMPED = pa.schema([("due", pa.int64()), *SCHEMA])


def stamped(**options: Any) -> ReaderDefinition:
    return sources.generator(numbers, STAMPED, stamp="due", **options)


def test_rows_are_stamped_with_the_time_they_were_due() -> None:
    driver = Driver(stamped(), setting(rate=Rate(100)))
    driver.read()
    driver.clock.now += 0.055
    assert [row["due"] for row in rows_of(driver.read())] == [1_000_010_000 + 10_000 * i for i in range(5)]


def test_the_rows_of_an_epoch_came_to_be_when_the_first_was_due() -> None:
    driver = Driver(generated(partitions=2), setting(1, rate=Rate(100)))
    driver.read()
    driver.clock.now += 3.0
    assert driver.read().created == pytest.approx(1_000.02)


def test_without_a_rate_rows_came_to_be_when_they_were_read() -> None:
    driver = Driver(stamped())
    reading = driver.read()
    assert (reading.created, set(column([reading], "due"))) == (1_000.0, {1_000_000_000})


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("shed", [False, True])
def test_stamps_and_shed_rows_are_the_same_when_read_again(profile: Profile, shed: bool) -> None:
    told = setting(1, rate=Rate(10_000, profile, period=3), max_rows=600)
    definition = stamped(partitions=2, time="due", shed=shed)
    first, again = Driver(definition, told), Driver(definition, told, Clock(9_000.0))
    for seconds in (0.01, 0.5, 0.02, 2.0, 0.05):
        first.read()
        first.clock.now += seconds
    for epoch, reading in enumerate(first.readings, 1):
        assert again.logic.reread(epoch, again.slots, reading.positions) == reading
    again.clock.now = first.clock.now
    assert again.read() == first.read()
    assert (first.logic.counters["shed"] > 0) == shed


def test_a_source_that_sheds_counts_what_it_passes_over() -> None:
    driver = Driver(generated(shed=True), setting(rate=Rate(1000), max_rows=100))
    driver.read()
    driver.clock.now += 1.0
    assert [row["n"] for row in rows_of(driver.read())] == list(range(900, 1000))
    assert driver.logic.counters == {"shed": 900}


def test_no_more_is_shed_than_there_is() -> None:
    driver = Driver(generated(shed=True, rows=950), setting(rate=Rate(1000), max_rows=100))
    driver.read()
    driver.clock.now += 10.0
    assert driver.read().exhausted
    assert driver.logic.counters == {"shed": 950}


def test_a_source_keeps_its_rate_after_a_recovery() -> None:
    told = setting(rate=Rate(1000))
    first, again = Driver(generated(), told), Driver(generated(), told, Clock(1_003.0))
    first.read()
    again.logic.seek(first.readings[-1].positions)
    assert [len(rows_of(again.read())) for _ in range(13)] == [250] * 12 + [0]  # what is due, a little at a time


# -- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [None, Rate(1e6)])
def test_epochs_are_bounded_in_bytes_by_what_rows_were_like_before(
    rate: Rate | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logic_module, "MAX_BYTES", 160_000)
    schema = pa.schema([("text", pa.string())])

    def wide(_: int, first: int, count: int) -> dict[str, object]:
        return {"text": ["x" * (1000 if first < 100_000 else 10)] * count}

    driver = Driver(sources.generator(wide, schema), setting(rate=rate))
    sizes: list[int] = []
    for epoch in range(1, 60):
        driver.logic.committed(epoch - 1)
        reading = driver.read()
        sizes.append(sum(batch.nbytes for batch in reading.outputs.values()))
        driver.clock.now += 0.05
    first = next(i for i, size in enumerate(sizes) if size)
    assert max(sizes[first + 1 :]) <= 160_000
    assert sizes[-1] > 100_000, "and it is made use of"


def test_rows_that_are_larger_than_an_epoch_may_be_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logic_module, "MAX_BYTES", 100)
    driver = Driver(generated(rows=1030))
    assert len(column(driver.read_all(), "n")) == 1030
    monkeypatch.setattr(logic_module, "MAX_BYTES", 1)
    driver = Driver(generated(rows=1030))
    assert [len(rows_of(reading)) for reading in driver.read_all()] == [1024, 1, 1, 1, 1, 1, 1]


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_data_that_has_changed_is_not_read_again_as_if_it_had_not() -> None:
    table = pa.table({"at": [1, 2, 3, 4]})
    reading = Driver(sources.memory(table, time="at")).read()
    for other in (pa.table({"at": [1, 2, 3]}), pa.table({"at": [1, 2, 9, 4]})):
        driver = Driver(sources.memory(other, time="at"))
        with pytest.raises(EnvironmentFault, match=r"source 'source'.*partition 0 is not there again"):
            driver.logic.reread(1, driver.slots, reading.positions)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *_: 1 / 0, r"partition 0 at 0: ZeroDivisionError"),
        (lambda p, first, count: numbers(p, first, count + 1), r"asked for 10 rows from row 0 .* returned 11"),
        (lambda _, __, count: {"n": range(count)}, r"'at'"),
        (lambda _, __, count: {"n": range(count), "at": [None] * count}, r"no event time"),
    ],
)
def test_a_generator_that_fails_is_named(function: Any, message: str) -> None:
    driver = Driver(sources.generator(function, SCHEMA, time="at"), setting(max_rows=10))
    with pytest.raises(UserError, match=message) as caught:
        driver.read()
    assert "'source'" in str(caught.value)


def test_a_reader_that_gives_too_much_is_named() -> None:
    class Greedy(Letters):
        def read(self, partition: int, offset: Any, limit: int) -> Block:
            return super().read(partition, offset, limit + 1)

    with pytest.raises(UserError, match="asked for at most 3 rows of partition 0, and gave 4"):
        Driver(sources.custom(Greedy, SCHEMA), setting(max_rows=3)).read()


def test_what_a_reader_cannot_reach_is_a_fault_of_the_surroundings() -> None:
    class Offline(Letters):
        def read(self, *_: Any) -> Block:
            raise ConnectionError("no route to host")

    with pytest.raises(EnvironmentFault, match="cannot read partition 0: no route"):
        Driver(sources.custom(Offline, SCHEMA)).read()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "when"}, "no column 'when' for time=; the columns are n, at"),
        ({"out_of_order": 5}, "without time="),
        ({"time": "at", "out_of_order": -1}, "negative"),
        ({"time": "at", "out_of_order": "5 s"}, "plain number"),
        ({"stamp": "due"}, "stamp='due' must name a column"),
    ],
)
def test_a_source_that_is_described_wrongly_is_refused_before_the_run(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        generated(**options).check("orders")
    assert str(caught.value).startswith("source 'orders'")


def test_a_time_column_of_another_type_is_refused() -> None:
    with pytest.raises(UserError, match="'at' is of type string"):
        sources.memory(pa.table({"at": ["now"]}), time="at").check("orders")


@pytest.mark.parametrize(
    "make",
    [
        lambda: generated(partitions=0),
        lambda: generated(rows=-1),
        lambda: sources.memory([]),
        lambda: sources.memory([pa.table({"a": [1]}), pa.table({"a": ["x"]})]),
    ],
)
def test_arguments_that_make_no_sense_are_refused_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(UserError):
        make()
