"""Processors written for Spark run as operators, and give what Spark's own tester says; wherever their slots are."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import types as spark
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.tws_tester import TwsTester

import seep
from primitives.slots import SlotSet
from seep.operators.custom import CustomOperator
from seep.operators.definition import Input
from seep.spark.processors.handle import Schemas
from tests.operators.instances import Instances, bag
from tests.spark.processors import OUTPUT, Visits

INSTANT = pa.timestamp("us", "UTC")
INPUT = Input(
    pa.schema([("user", pa.string()), ("page", pa.string()), ("at", pa.int64()), ("seen", INSTANT)]), ("user",), "at"
)
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _schemas_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark makes of the texts in `Visits`; that it can read them is seen in `test_spark_chaos`."""
    named = {"string": spark.StringType(), "bigint": spark.LongType(), "int": spark.IntegerType()}
    kinds = named | {"timestamp": spark.TimestampType()}

    def parsed(_self: Schemas, text: str) -> spark.StructType:
        fields = [field.split() for field in text.split(", ")]
        return spark.StructType([spark.StructField(name, kinds[kind]) for name, kind in fields])

    monkeypatch.setattr(Schemas, "_parsed", parsed)


def test_nodes_know_the_schemas_that_the_driver_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes have no Spark to read text with; here none of what comes after the query is checked has any."""
    definition = CustomOperator(seep.from_processor(Visits(), OUTPUT, time_mode="EventTime"))
    definition.output("visits", [INPUT])
    monkeypatch.undo()
    there = cloudpickle.loads(cloudpickle.dumps(definition))
    [found] = Instances(there, [INPUT]).epoch([row("a", "x", 1)])
    assert found["count"] == 1


def row(user: str, page: str, at: int) -> dict[str, Any]:
    return {"user": user, "page": page, "at": at, "seen": BEGIN + timedelta(milliseconds=at)}


def as_spark_has_it(given: dict[str, Any]) -> Row:
    return Row(**given | {"seen": given["seen"].astimezone().replace(tzinfo=None)})


def as_arrow_has_it(found: Row) -> dict[str, Any]:
    plain: dict[str, Any] = found.asDict()
    return plain | {"latest": plain["latest"].astimezone(UTC)}


def expected(tester: TwsTester, rows: list[dict[str, Any]], watermark: int) -> list[dict[str, Any]]:
    """Of an epoch, key by key; then the timers."""
    made: list[Row] = []
    for user in sorted({each["user"] for each in rows}):
        mine = sorted((each for each in rows if each["user"] == user), key=lambda each: (each["at"], each["page"]))
        made += tester.test(user, [as_spark_has_it(each) for each in mine])
    made += tester.setWatermark(watermark)
    return list(map(as_arrow_has_it, made))


epochs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(1, 40)), max_size=6),
        st.integers(1, 60),
        st.sets(st.integers(0, 3)).map(SlotSet),
    ),
    max_size=6,
)


@settings(max_examples=40)
@given(story=epochs, seed=st.integers(0, 9))
def test_a_processor_does_what_it_does_in_spark_also_when_slots_move(
    story: list[tuple[list[tuple[str, str, int]], int, SlotSet]], seed: int
) -> None:
    definition = CustomOperator(seep.from_processor(Visits(), OUTPUT, time_mode="EventTime"))
    instances = Instances(definition, [INPUT], count=2, seed=seed)
    tester = TwsTester(Visits(), timeMode="EventTime", eventTimeExtractor=lambda row: int(row.at))
    watermark = 0
    for given_rows, step, moving in [*story, ([], 1_000, SlotSet.empty())]:
        rows = [row(user, page, watermark + after) for user, page, after in given_rows]
        watermark += step
        assert bag(instances.epoch(rows, watermark=watermark)) == bag(expected(tester, rows, watermark))
        instances.move(moving, seed % 2)
        instances.recover(1 - seed % 2)


class Again(Visits):
    """Sets its timer again whenever it fires."""

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        self._handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 10)
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)


def test_when_the_input_has_ended_the_timers_that_are_left_fire_once() -> None:
    definition = CustomOperator(seep.from_processor(Again(), OUTPUT, time_mode="EventTime"))
    instances = Instances(definition, [INPUT])
    instances.epoch([row("a", "x", 10), row("b", "x", 10**12)], watermark=20)
    kinds = [found["kind"] for found in instances.end()]
    assert sorted(kinds) == [f"quiet at {10**12 + 50}", "quiet at 60"]


class Several(StatefulProcessor):
    """Nested values in its state, and a key of several columns."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", NESTED)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        before = self._seen.get()
        places = [*before[0], *(each.place for each in rows)] if before else [each.place for each in rows]
        assert all(place.x >= 0 for place in places), "structs in state come back as rows"
        self._seen.update((places, {key[1]: len(places)}))
        yield (*key, sum(place.x for place in places), self._seen.get()[1][key[1]])


PLACE = spark.StructType().add("x", "integer").add("y", "double")
NESTED = spark.StructType().add("places", spark.ArrayType(PLACE)).add("counts", spark.MapType(*[spark.LongType()] * 2))


def test_structs_in_state_and_keys_of_several_columns_come_through() -> None:
    place = pa.struct([("x", pa.int32()), ("y", pa.float64())])
    given_rows = Input(pa.schema([("a", pa.string()), ("b", pa.int64()), ("place", place)]), ("a", "b"))
    output = spark.StructType().add("a", "string").add("b", "long").add("sum", "long").add("n", "long")
    instances = Instances(CustomOperator(seep.from_processor(Several(), output)), [given_rows])
    one = {"a": "k", "b": 7, "place": {"x": 3, "y": 0.5}}
    for times in (1, 2, 3):
        assert instances.epoch([one]) == [{"a": "k", "b": 7, "sum": 3 * times, "n": times}]
        instances.recover(0)


def test_what_seep_cannot_do_alike_is_refused_with_what_to_do_instead() -> None:
    class WithInitialState(Visits):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            """Would never be called."""

    with pytest.raises(seep.UserError, match=r"WithInitialState has a handleInitialState\(\).*with union"):
        seep.from_processor(WithInitialState(), OUTPUT)
    with pytest.raises(seep.UserError, match=r"ProcessingTime.*use 'EventTime'"):
        seep.from_processor(Visits(), OUTPUT, time_mode="ProcessingTime")
    with pytest.raises(seep.UserError, match="it is 'None' or 'EventTime'"):
        seep.from_processor(Visits(), OUTPUT, time_mode="Sometime")

    class Forgetful(Several):
        def init(self, handle: StatefulProcessorHandle) -> None:
            handle.getValueState("seen", NESTED, ttlDurationMs=1_000)

    for processor, mode, message in (
        (Forgetful(), "None", "state 'seen' has a time to live of 1000 ms"),
        (Visits(), "EventTime", "needs an event time"),
    ):
        query = seep.Query("refused")
        source = query.source("rows", seep.sources.memory(INPUT.schema.empty_table()))
        operator = seep.from_processor(processor, OUTPUT, time_mode=mode)
        with pytest.raises(seep.UserError, match=message):
            source.key_by("user").apply("visits", operator)


def test_timers_need_a_time_mode() -> None:
    instances = Instances(CustomOperator(seep.from_processor(Visits(), OUTPUT)), [INPUT])
    with pytest.raises(seep.SeepError, match="time_mode='EventTime'"):
        instances.epoch([row("a", "x", 1)])


def test_rows_that_are_no_rows_of_the_output_are_refused() -> None:
    class Short(Several):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: ARG002
            yield Row(user="a")

    instances = Instances(CustomOperator(seep.from_processor(Short(), OUTPUT)), [INPUT])
    with pytest.raises(seep.SeepError, match="a row has no field 'kind'"):
        instances.epoch([row("a", "x", 1)])


def test_a_processor_of_frames_is_refused_where_there_is_no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(seep.UserError, match=r"needs pandas, .*pip install 'seep-streaming\[pandas\]'"):
        seep.from_processor(Visits(), OUTPUT, in_pandas=True)


def test_a_processor_of_frames_gets_and_gives_frames() -> None:
    """With pandas, which `seep` does without, and so do its tests where it is not there."""
    pandas = pytest.importorskip("pandas")

    class Frames(Visits):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: ARG002
            for frame in rows:
                count = (self._total.get() or (0, None))[0] + len(frame)
                self._total.update((np.int64(count), None))
                latest = frame["seen"].max()
                yield pandas.DataFrame(
                    {"latest": [latest], "user": [key[0]], "kind": ["rows"], "count": [count], "pages": [None]}
                )

    operator = seep.from_processor(Frames(), OUTPUT, in_pandas=True)
    instances = Instances(CustomOperator(operator), [INPUT])
    for times in (1, 2):
        found = instances.epoch([row("a", "x", 1), row("b", "x", 5), row("a", "x", 9)])
        assert bag(found) == bag(
            {
                "user": user,
                "kind": "rows",
                "count": n * times,
                "pages": None,
                "latest": BEGIN + timedelta(milliseconds=at),
            }
            for user, n, at in (("a", 2, 9), ("b", 1, 5))
        )
        instances.recover(0)


PAGE = Path(__file__).parents[2] / "docs" / "spark_migration.md"


def shown(name: str) -> Any:
    """A class of the page."""
    [code] = [code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL) if name in code]
    names: dict[str, Any] = {"seep": seep, "pa": pa, "np": np, "StatefulProcessor": StatefulProcessor, "Row": Row}
    exec(code.partition("\ncounts = ")[0], names)
    return names[name.removeprefix("class ").partition("(")[0]]


def test_the_classes_on_the_page_do_what_it_says() -> None:
    output = "user string, count bigint"
    for operator in (
        seep.from_processor(shown("class Visits(StatefulProcessor)")(), output, time_mode="EventTime"),
        shown("class Visits(seep.Operator)")(),
        shown("class Count(seep.Operator)")(),
    ):
        instances = Instances(CustomOperator(operator), [INPUT])
        instances.epoch([row("a", "x", 1), row("b", "x", 2)], watermark=0)
        found = instances.epoch([row("a", "x", 3), row("a", "x", 4)], watermark=3)
        assert found == [{"user": "a", "count": 3}]


def test_what_a_processor_changes_in_place_is_in_incremental_checkpoints() -> None:
    definition = CustomOperator(seep.from_processor(Visits(), OUTPUT, time_mode="EventTime"))
    instances = Instances(definition, [INPUT])
    all_slots = SlotSet(range(4))
    copy = definition.logic(instances.setting)
    for epoch, page in enumerate("xxyx", 1):
        state = instances.logics[0].state
        since = epoch - 1 if epoch > 1 else None
        instances.epoch([row("a", page, 10 * epoch), row("b", page, 10 * epoch)], watermark=0)
        copy.state.restore(state.snapshot(all_slots, since))
        state.mark(epoch)
    instances.logics[0], before = copy, instances.logics[0]
    found = instances.epoch([row("a", "z", 50)], watermark=0)
    instances.logics[0] = before
    assert found == instances.epoch([row("a", "z", 50)], watermark=0)
    assert "('x', 3)" in found[0]["pages"]
