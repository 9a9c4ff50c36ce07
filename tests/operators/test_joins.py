"""Joins: every pair comes out once, however rows are cut into epochs and slots are divided; and state does not stay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.operators.definition import Definition, Input
from seep.operators.joins import IntervalJoin, UnboundedJoin, WindowJoin
from seep.operators.windows import Sliding, Tumbling
from tests.operators.instances import NAME, Instances, Row, bag

LEFT = Input(pa.schema([("k", pa.string()), ("t", pa.int64()), ("n", pa.int64())]), ("k",), "t")
RIGHT = Input(pa.schema([("n", pa.int64()), ("id", pa.string()), ("at", pa.int64())]), ("id",), "at")


def left(k: Any, t: int, n: int = 0) -> Row:
    return {"k": k, "t": t, "n": n}


def right(k: Any, t: int, n: int = 0) -> Row:
    return {"n": n, "id": k, "at": t}


def paired(one: Row, other: Row) -> Row:
    return {"k": one["k"], "t": one["t"], "n": one["n"], "n_right": other["n"], "at": other["at"]}


def by_hand(lefts: list[Row], rights: list[Row], meet: Callable[[int, int], bool]) -> list[Row]:
    return [
        paired(one, other)
        for one, other in product(lefts, rights)
        if one["k"] == other["id"] is not None and meet(one["t"], other["at"])
    ]


# --- every pair once --------------------------------------------------------------------------------------------------

EPOCHS = 5


class Story(NamedTuple):
    """Rows with the epoch each comes in, how far watermarks lag, and the slots that move after each epoch."""

    lefts: list[tuple[int, Row]]
    rights: list[tuple[int, Row]]
    lags: list[int]
    moves: list[tuple[SlotSet, int]]
    seed: int

    def epoch(self, epoch: int) -> tuple[list[Row], list[Row]]:
        return [row for at, row in self.lefts if at == epoch], [row for at, row in self.rights if at == epoch]

    def watermark(self, epoch: int) -> int:
        """Before the time of every row still to come."""
        times = [row["t"] for at, row in self.lefts if at > epoch] + [
            row["at"] for at, row in self.rights if at > epoch
        ]
        return min(times, default=40) - 1 - self.lags[epoch]


def rows_of(make: Callable[..., Row]) -> st.SearchStrategy[list[tuple[int, Row]]]:
    row = st.builds(make, st.sampled_from([*"abc", None]), st.integers(-20, 20), st.integers(0, 2))
    return st.lists(st.tuples(st.integers(0, EPOCHS - 1), row), max_size=15)


stories = st.builds(
    Story,
    rows_of(left),
    rows_of(right),
    st.lists(st.integers(0, 5), min_size=EPOCHS, max_size=EPOCHS),
    st.lists(st.tuples(st.sets(st.integers(0, 3)).map(SlotSet), st.integers(0, 1)), min_size=EPOCHS, max_size=EPOCHS),
    st.integers(0, 9),
)

JOINS: list[tuple[Definition, Callable[[int, int], bool]]] = [
    (UnboundedJoin(), lambda _l, _r: True),
    (WindowJoin(Tumbling(7)), lambda one, other: one // 7 == other // 7),
    (WindowJoin(Tumbling(5, offset=3)), lambda one, other: (one - 3) // 5 == (other - 3) // 5),
    (IntervalJoin(-3, 4), lambda one, other: one - 3 <= other <= one + 4),
    (IntervalJoin(2, 6), lambda one, other: one + 2 <= other <= one + 6),
    (IntervalJoin(-9, -9), lambda one, other: other == one - 9),
]


@pytest.mark.parametrize(("join", "meet"), JOINS)
@settings(max_examples=20)
@given(story=stories)
def test_every_pair_comes_once_whatever_the_epochs_and_slots(
    join: Definition, meet: Callable[[int, int], bool], story: Story
) -> None:
    check(join, meet, story)


@pytest.mark.parametrize(
    ("join", "meet"),
    [
        (UnboundedJoin(on_disk=True), lambda _l, _r: True),
        (WindowJoin(Tumbling(7), on_disk=True), lambda one, other: one // 7 == other // 7),
    ],
)
@settings(max_examples=1)
@given(story=stories)
def test_it_is_the_same_on_disk(join: Definition, meet: Callable[[int, int], bool], story: Story) -> None:
    check(join, meet, story)


def check(join: Definition, meet: Callable[[int, int], bool], story: Story) -> None:
    instances = Instances(join, [LEFT, RIGHT], count=2, seed=story.seed)
    out: list[Row] = []
    for epoch in range(EPOCHS):
        out += instances.epoch(*story.epoch(epoch), watermark=story.watermark(epoch))
        instances.move(*story.moves[epoch])
        if epoch == 2:
            instances.recover(story.seed % 2)
    out += instances.end()
    expected = by_hand([row for _, row in story.lefts], [row for _, row in story.rights], meet)
    assert bag(out) == bag(expected)
    assert sum(logic.counters["late"] for logic in instances.logics) == 0


def test_a_stream_can_be_joined_with_itself() -> None:
    instances = Instances(UnboundedJoin(), [LEFT, LEFT])
    rows = [left("a", 1, 10), left("a", 2, 20)]
    pairs = [(row["n"], row["n_right"]) for row in instances.epoch(rows, rows)]
    assert sorted(pairs) == [(10, 10), (10, 20), (20, 10), (20, 20)]


def test_a_pair_comes_in_the_epoch_of_the_later_of_its_rows() -> None:
    instances = Instances(WindowJoin(Tumbling(10)), [LEFT, RIGHT])
    assert instances.epoch([left("a", 1)], []) == []
    assert instances.epoch([], [right("a", 2)]) == [paired(left("a", 1), right("a", 2))]
    assert instances.epoch([left("a", 3)], []) == [paired(left("a", 3), right("a", 2))]
    assert instances.end() == []


# --- late rows and what is kept ---------------------------------------------------------------------------------------


def kept(instances: Instances) -> int:
    return sum(len(side.kept) for logic in instances.logics for side in logic._sides)


def test_a_window_keeps_its_rows_until_it_closes() -> None:
    instances = Instances(WindowJoin(Tumbling(10)), [LEFT, RIGHT])
    instances.epoch([left("a", 1), left("b", 19)], [right("a", 2)], watermark=8)
    assert kept(instances) == 3
    instances.epoch([], [], watermark=9)
    assert kept(instances) == 1
    instances.end()
    assert kept(instances) == 0


def test_rows_of_a_closed_window_are_dropped_and_counted() -> None:
    instances = Instances(WindowJoin(Tumbling(10)), [LEFT, RIGHT])
    instances.epoch([left("a", 1)], [], watermark=8)
    assert len(instances.epoch([], [right("a", 2)], watermark=9)) == 1
    assert instances.epoch([left("a", 3)], [right("a", 4)], watermark=12) == []
    assert instances.logics[0].counters["late"] == 2


def test_rows_that_come_with_the_watermark_that_closes_their_window_are_not_late() -> None:
    instances = Instances(WindowJoin(Tumbling(10)), [LEFT, RIGHT])
    assert len(instances.end([left("a", 1)], [right("a", 2)])) == 1


def test_lateness_keeps_a_window_open_for_longer() -> None:
    instances = Instances(WindowJoin(Tumbling(10, lateness=5)), [LEFT, RIGHT])
    instances.epoch([left("a", 1)], [], watermark=13)
    assert len(instances.epoch([], [right("a", 2)], watermark=14)) == 1
    assert instances.epoch([], [right("a", 3)]) == []


def test_late_rows_stay_late_where_their_slot_has_moved_to() -> None:
    instances = Instances(WindowJoin(Tumbling(10)), [LEFT, RIGHT], count=2)
    instances.epoch([], [], watermark=9)
    instances.move(SlotSet.full(2), 1)
    assert instances.epoch([left("a", 1)], [right("a", 2)]) == []
    assert [logic.counters["late"] for logic in instances.logics] == [0, 2]


def test_an_interval_keeps_rows_as_long_as_partners_can_come() -> None:
    instances = Instances(IntervalJoin(0, 9), [LEFT, RIGHT])
    instances.epoch([left("a", 0)], [right("b", 0)], watermark=5)
    assert len(instances.epoch([], [right("a", 9)], watermark=8)) == 1
    assert kept(instances) == 3
    instances.epoch([], [], watermark=9)
    assert kept(instances) == 1  # buckets go as a whole: a left row of time 9, in the same, meets rights until 18
    assert instances.epoch([left("a", 9)], [right("a", 9)]) == []
    assert instances.logics[0].counters["late"] == 2


def test_timestamps_take_durations_as_text() -> None:
    def stamped(given: Input, time: str) -> Input:
        at = given.schema.get_field_index(time)
        return given._replace(schema=given.schema.set(at, pa.field(time, pa.timestamp("ms"))))

    inputs = [stamped(LEFT, "t"), stamped(RIGHT, "at")]
    rows = [left("a", 1_000)], [right("a", 1_500), right("a", 2_500, 1)]
    assert [row["n_right"] for row in Instances(WindowJoin(Tumbling("1 s")), inputs).epoch(*rows)] == [0]
    assert [row["n_right"] for row in Instances(IntervalJoin("1 s", "2s"), inputs).epoch(*rows)] == [1]


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_are_the_key_then_the_left_then_the_right_with_a_suffix_on_a_clash() -> None:
    schema = UnboundedJoin().output(NAME, [LEFT, RIGHT])
    assert schema.names == ["k", "t", "n", "n_right", "at"]


def test_several_keys_of_other_names_join_by_position() -> None:
    one = Input(pa.schema([("x", pa.int64()), ("y", pa.string()), ("v", pa.int64())]), ("x", "y"))
    other = Input(pa.schema([("b", pa.string()), ("w", pa.float64()), ("a", pa.int64())]), ("a", "b"))
    rows = [{"x": 1, "y": "p", "v": 5}], [{"b": "p", "w": 0.5, "a": 1}, {"b": "q", "w": 1.5, "a": 1}]
    assert Instances(UnboundedJoin(), [one, other]).epoch(*rows) == [{"x": 1, "y": "p", "v": 5, "w": 0.5}]


def test_dictionary_encoded_columns_come_out_as_their_values() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    given = Input(pa.schema([("k", kind), ("v", kind)]), ("k",))
    instances = Instances(UnboundedJoin(), [given, given])
    for word in "xy":
        batch = pa.record_batch([pa.array(["a"]).cast(kind), pa.array([word]).cast(kind)], schema=given.schema)
        out = instances.epoch(batch, batch)
    assert bag(out) == bag({"k": "a", "v": v, "v_right": w} for v, w in ("xy", "yx", "yy"))


def test_keys_that_are_equal_come_out_the_same_whichever_side_was_first() -> None:
    given = Input(pa.schema([("k", pa.float64())]), ("k",))
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        instances = Instances(UnboundedJoin(), [given, given])
        instances.epoch([{"k": first}], [])
        assert [str(row["k"]) for row in instances.epoch([], [{"k": second}])] == ["0.0"]


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("join", "inputs", "message"),
    [
        (UnboundedJoin(), [LEFT], "joins two streams, and 1 are"),
        (UnboundedJoin(), [LEFT._replace(keys=()), RIGHT], "unkeyed state; call key_by on the left stream"),
        (UnboundedJoin(), [LEFT, RIGHT._replace(keys=("id", "n"))], "key both by as many columns"),
        (UnboundedJoin(), [LEFT, RIGHT._replace(keys=("n",))], "'k' of the left stream is string, and 'n' .* int64"),
        (WindowJoin(Tumbling(5)), [LEFT, RIGHT._replace(time=None)], "the right stream has no event time"),
        (WindowJoin(Tumbling("5 s")), [LEFT, RIGHT], "must be a plain number"),
        (WindowJoin(Sliding(4, 2)), [LEFT, RIGHT], "in tumbling windows"),  # type: ignore[arg-type]
        (WindowJoin(Tumbling(0)), [LEFT, RIGHT], "must be greater than zero"),
        (IntervalJoin(3, 4, lateness=-1), [LEFT, RIGHT], "cannot be negative"),
        (IntervalJoin(3, 2), [LEFT, RIGHT], "exchange lower and upper"),
        (
            IntervalJoin(0, 1),
            [LEFT, Input(pa.schema([("k", pa.string()), ("t", pa.timestamp("s"))]), ("k",), "t")],
            "the event times are int64 and timestamp",
        ),
        (
            UnboundedJoin(),
            [Input(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("v_right", pa.int64())]), ("k",))] * 2,
            "both sides have columns that would be called 'v_right'",
        ),
        (
            UnboundedJoin(),
            [Input(pa.schema([("k", pa.decimal256(5))]), ("k",))] * 2,
            "has type decimal256",
        ),
    ],
)
def test_streams_that_cannot_be_joined_are_refused_with_the_name(
    join: Definition, inputs: list[Input], message: str
) -> None:
    with pytest.raises(UserError, match=f"operator '{NAME}'.*{message}"):
        join.output(NAME, inputs)


def test_a_row_without_event_time_stops_the_run_with_the_name() -> None:
    with pytest.raises(UserError, match=f"operator '{NAME}'.*no event time"):
        Instances(IntervalJoin(0, 1), [LEFT, RIGHT]).epoch([{"k": "a", "t": None, "n": 1}], [])
