"""Values: a mapping with slots, whose deltas add up to what it holds, and whose values come back as they were."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk, merge_chunks, read_chunk, write_chunk
from primitives.state.codec import pack, unpack
from primitives.state.container import State
from primitives.state.values import Values
from tests.primitives.two_instances import FULL, SLOT_BITS
from tests.primitives.values_machine import ValuesOfTwoInstances, make_values, restored, slot_of_word

patiently = settings(deadline=None)  # whichever example comes first compiles the hash

TestValuesOfTwoInstances = ValuesOfTwoInstances.TestCase
TestValuesOfTwoInstances.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


# --- as a mapping -----------------------------------------------------------------------------------------------------


def test_it_is_a_mapping() -> None:
    values = make_values()
    values.update(a=1, b=2)
    assert values == {"a": 1, "b": 2}
    assert "a" in values
    assert "c" not in values
    assert values.get("c", 7) == 7
    assert values.setdefault("c", 3) == 3
    assert values.pop("c") == 3
    del values["a"]
    assert len(values) == 1
    values.clear()
    assert not values


@pytest.mark.parametrize("operation", [Values.__getitem__, Values.__delitem__, Values.pop])
def test_a_key_that_is_not_there_is_a_key_error(operation: Any) -> None:
    with pytest.raises(KeyError, match="missing"):
        operation(make_values(), "missing")


def test_change_sets_what_a_function_makes_of_the_value() -> None:
    values = make_values()
    assert values.change("a", lambda count: count + 1, default=0) == 1
    assert values.change("a", lambda count: count + 1, default=0) == 2
    assert values["a"] == 2


def test_iteration_is_by_slot_and_key_whatever_came_first() -> None:
    forwards, backwards = make_values(), make_values()
    keys = [*"abcdefgh", None]
    for key in keys:
        forwards[key] = 0
    for key in reversed(keys):
        backwards[key] = 0
    assert list(forwards) == list(backwards) == [key for key, _ in forwards.scan()]
    assert [slot_of_word(key) for key in forwards] == sorted(slot_of_word(key) for key in keys)


def test_scanning_some_slots_gives_their_keys() -> None:
    values = make_values()
    values.update({word: word for word in "abcdefgh"})
    slots = SlotSet([0, 2])
    assert {key for key, _ in values.scan(slots)} == {word for word in "abcdefgh" if slot_of_word(word) in slots}


def test_keys_may_be_changed_while_iterating() -> None:
    values = make_values()
    values.update(dict.fromkeys("abcdefgh", 1))
    for word in values:
        values[word] += 1
    assert set(values.values()) == {2}


# --- keys -------------------------------------------------------------------------------------------------------------


def test_composite_keys_are_tuples() -> None:
    values = Values("links", keys={"source": pa.string(), "target": pa.int64()})
    values["a", 1] = "x"
    values[None, 2] = "y"
    other = Values("links", keys={"source": pa.string(), "target": pa.int64()})
    other.restore([values.snapshot(SlotSet.full(8))])
    assert dict(other.scan()) == {("a", 1): "x", (None, 2): "y"}


@pytest.mark.parametrize(
    ("kind", "written", "same"),
    [
        (pa.float64(), math.nan, -math.nan),
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), None, None),
        (pa.float32(), 0.1, float(np.float32(0.1))),
        (pa.int64(), 5, np.int32(5)),
        (pa.uint64(), 2**64 - 1, np.uint64(2**64 - 1)),
        (pa.string(), "a", np.str_("a")),
        (pa.binary(), b"a", np.bytes_(b"a")),
        (pa.date32(), date(2026, 1, 31), datetime(2026, 1, 31)),
        (pa.decimal128(5, 2), Decimal("1.5"), Decimal("1.50")),
        (pa.decimal128(38, 0), Decimal(7), 7),
        (pa.timestamp("us"), datetime(2026, 1, 31, 7), np.datetime64("2026-01-31T07", "us")),
        (
            pa.timestamp("ms", "UTC"),
            datetime(2026, 1, 31, tzinfo=UTC),
            datetime(2026, 1, 31, 1, tzinfo=timezone(timedelta(hours=1))),
        ),
    ],
)
def test_equal_keys_are_one_key_before_and_after_a_restore(kind: pa.DataType, written: Any, same: Any) -> None:
    values = Values("sums", keys={"key": kind})
    values[written] = 1
    values[same] = 2
    other = Values("sums", keys={"key": kind})
    other.restore([values.snapshot(SlotSet.full(8))])
    other[same] += 1
    assert list(values.values()) == [2]
    assert list(other.values()) == [3]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (pa.int64(), "a"),
        (pa.int64(), 1.5),
        (pa.int8(), 300),
        (pa.int64(), 2**63),
        (pa.string(), 7),
        (pa.string(), ("a",)),
        (pa.bool_(), 1),
        (pa.date32(), "2026-01-31"),
        (pa.decimal128(5, 2), Decimal("1.125")),
    ],
)
def test_a_key_of_the_wrong_type_is_refused_by_column(kind: pa.DataType, key: Any) -> None:
    with pytest.raises(UserError, match="key column 'id' of state 'sums'"):
        Values("sums", keys={"id": kind})[key] = 1


@pytest.mark.parametrize("key", ["a", ("a",), ("a", "b", "c"), ["a", "b"]])
def test_a_composite_key_that_is_no_tuple_of_its_columns_is_refused(key: Any) -> None:
    with pytest.raises((UserError, TypeError), match=r"is a tuple of source, target|unhashable"):
        Values("links", keys={"source": pa.string(), "target": pa.string()})[key] = 1


def test_a_key_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UserError, match="not valid Unicode"):
        make_values()["\ud800"] = 1


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.float16(), pa.string_view(), pa.timestamp("ns"), pa.decimal128(5, -2)]
)
def test_key_columns_of_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(UserError, match=r"key column 'id' of state 'sums' has type .*declare"):
        Values("sums", keys={"id": kind})


def test_a_container_without_key_columns_is_refused() -> None:
    with pytest.raises(UserError, match="at least one key column"):
        Values("sums", keys={})


def test_a_key_column_named_as_the_value_is_refused() -> None:
    with pytest.raises(UserError, match="this name is taken"):
        Values("sums", keys={"value": pa.int64()})


# --- values -----------------------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Europe/Paris"), timezone(timedelta(hours=-3, seconds=7))])),
    st.timedeltas(),
    st.decimals(allow_nan=False),
)
hashables = st.recursive(
    scalars, lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)), max_leaves=5
)
objects = st.recursive(
    st.one_of(hashables, st.sets(hashables, max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(hashables, inner, max_size=3)
    ),
    max_leaves=10,
)


def shape(value: Any) -> Any:
    """The types within a value, and what else == does not compare."""
    match value:
        case dict():
            return dict, sorted(repr(shape(item)) for item in value.items())
        case set() | frozenset():
            return type(value), sorted(repr(shape(element)) for element in value)
        case list() | tuple():
            return type(value), [shape(element) for element in value]
        case datetime():
            return type(value), type(value.tzinfo), value.fold
    return type(value), str(value) if isinstance(value, Decimal | float) else None


@given(objects)
@patiently
def test_what_is_packed_comes_back_with_the_same_types(value: Any) -> None:
    back = unpack(pack(value))
    assert back == value
    assert shape(back) == shape(value)


def test_the_fold_of_a_datetime_comes_back() -> None:
    second = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1)
    assert unpack(pack(second)).fold == 1


@pytest.mark.parametrize("value", [np.float32(1.5), np.int64(-3), np.bool_(True), np.datetime64("2026-01-31")])
def test_numpy_scalars_come_back_as_they_were(value: np.generic) -> None:
    back = unpack(pack(value))
    assert back == value
    assert back.dtype == value.dtype


def test_numpy_arrays_come_back_as_they_were_and_writable() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    back = unpack(pack(array))
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()
    back[0, 0] = 7


def test_equal_sets_are_equal_bytes() -> None:
    few, many = set(range(0, 80, 8)), set(range(0, 8000, 8))
    many.difference_update(set(many) - few)  # its table is still large, so its elements come in another order
    assert list(few) != list(many)
    assert pack(few) == pack(many)


class Custom:
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Custom(1), "Custom"),
        ({"inner": [Custom(1)]}, "Custom"),
        (Counter("ab"), "Counter"),
        (np.array([object()]), "ndarray"),
        ("\ud800", "surrogates"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named_with_its_container_and_key(value: Any, named: str) -> None:
    values = make_values()
    values.update(a=1, b=value)
    with pytest.raises(UserError, match=rf"state 'seen' cannot store the {type(value).__name__} of key 'b'.*{named}"):
        values.snapshot(FULL)
    del values["b"]
    assert restored(values.snapshot(FULL)) == {"a": 1}


def test_a_value_that_contains_itself_cannot_be_stored() -> None:
    values = make_values()
    values["a"] = []
    values["a"].append(values["a"])
    with pytest.raises(UserError, match="recursion"):
        values.snapshot(FULL)


def test_own_functions_encode_and_decode() -> None:
    def make() -> Values:
        return Values("own", {"id": pa.int64()}, encode=lambda custom: custom.number, decode=Custom)

    values, other = make(), make()
    values[1], values[2] = Custom(7), None
    other.restore([values.snapshot(SlotSet.full(8))])
    assert other[1].number == 7
    assert other[2] is None


def test_an_encode_that_returns_none_is_refused() -> None:
    values = Values("own", {"id": pa.int64()}, encode=lambda _: None, decode=Custom)
    values[1] = 5
    with pytest.raises(UserError, match="encode returned None"):
        values.snapshot(SlotSet.full(8))


def test_encode_without_decode_is_refused() -> None:
    with pytest.raises(UserError, match="both encode and decode"):
        Values("own", {"id": pa.int64()}, encode=str)


def test_a_declared_type_is_the_type_of_the_column() -> None:
    values = Values("totals", {"id": pa.int64()}, value=pa.list_(pa.int32()))
    values[1], values[2] = [1, 2], None
    chunk = values.snapshot(SlotSet.full(8))
    assert chunk.rows.schema.field("value").type == pa.list_(pa.int32())
    other = Values("totals", {"id": pa.int64()}, value=pa.list_(pa.int32()))
    other.restore([chunk])
    assert dict(other.scan()) == {1: [1, 2], 2: None}


@pytest.mark.parametrize("value", ["x", 1.5, 2**40])
def test_a_value_that_is_not_of_the_declared_type_is_named(value: Any) -> None:
    values = Values("totals", {"id": pa.int64()}, value=pa.int32())
    values.update({1: 1, 2: value})
    with pytest.raises(UserError, match=f"state 'totals' cannot store the {type(value).__name__} of key 2 as int32"):
        values.snapshot(SlotSet.full(8))


def test_a_damaged_value_is_reported() -> None:
    values = make_values()
    values["a"] = [1]
    chunk = values.snapshot(FULL)
    rows = chunk.rows.set_column(1, "value", pa.array([b"\xc7\x01\x63\x00"], pa.large_binary()))
    with pytest.raises(EnvironmentFault, match="state 'seen' is damaged"):
        make_values().restore([Chunk("seen", 0, SLOT_BITS, FULL, ("word",), ("word",), rows, chunk.deleted)])


# --- change tracking --------------------------------------------------------------------------------------------------


def changed_after(value: Any, look: Any) -> int:
    """How many changes it counts as to look at a value."""
    values = make_values()
    values["a"] = value
    values.mark(1)
    look(values)
    return values.changed(1)


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, bytearray(b"a"), ([],), np.arange(2), Custom(1)])
def test_to_get_what_can_change_in_place_counts_as_a_change(value: Any) -> None:
    assert changed_after(value, lambda values: values["a"]) == 1
    assert changed_after(value, lambda values: values.get("a")) == 1
    assert changed_after(value, lambda values: values.setdefault("a", 0)) == 1
    assert changed_after(value, lambda values: list(values.items())) == 1


@pytest.mark.parametrize("value", [1, "a", None, 1.5, (1, ("a",)), frozenset({1}), Decimal(1), np.int64(1), date.max])
def test_to_get_what_cannot_change_is_no_change(value: Any) -> None:
    assert changed_after(value, lambda values: (values["a"], values.get("a"), list(values.items()))) == 0


def test_to_look_only_is_no_change() -> None:
    assert changed_after([1], lambda values: (values.peek("a"), list(values.scan()), "a" in values, list(values))) == 0


def test_a_function_that_fails_after_changing_a_value_in_place_is_not_missed() -> None:
    def fail(value: list[int]) -> Any:
        value.append(1)
        raise RuntimeError

    values = make_values()
    values["a"] = []
    values.mark(1)
    with pytest.raises(RuntimeError):
        values.change("a", fail)
    assert values.snapshot(FULL, 1).rows.column("word").to_pylist() == ["a"]


def test_a_key_deleted_elsewhere_does_not_come_back_with_its_slot() -> None:
    here, there = make_values(), make_values()
    here.update(dict.fromkeys("abcdefgh", 1))
    base = here.snapshot(FULL)
    here.mark(1)
    slots = SlotSet([slot_of_word("a")])
    there.restore([here.snapshot(slots)])
    here.drop(slots)
    del there["a"]
    here.restore([there.snapshot(slots)])
    delta = here.snapshot(FULL, 1)
    assert delta.replaced == slots
    assert "a" not in restored(base, delta)
    assert restored(base, delta) == restored(merge_chunks([base, delta])) == dict(here.scan())


def test_a_delta_of_some_slots_names_all_replaced_ones_and_carries_only_those_asked_for() -> None:
    values = make_values()
    values.update(dict.fromkeys("abcdefgh", 1))
    values.mark(1)
    values.drop(SlotSet([3]))
    values.restore([values.snapshot(SlotSet([2]))])
    delta = values.snapshot(SlotSet([1]), 1)
    assert delta.replaced == SlotSet([2, 3])
    assert not len(delta.rows)


def test_to_mark_the_last_epoch_again_keeps_its_deltas() -> None:
    values = make_values()
    values.mark(1)
    values["a"] = 1
    values.mark(1)
    assert values.marks == (1,)
    assert values.changed(1) == 1


def test_to_mark_an_earlier_epoch_is_refused() -> None:
    values = make_values()
    values.mark(5)
    with pytest.raises(InternalError, match=r"marked at epoch 5, and 4 is before"):
        values.mark(4)


@pytest.mark.parametrize("ask", [lambda values: values.snapshot(FULL, 4), lambda values: values.changed(4)])
def test_what_changed_since_an_epoch_without_mark_is_refused(ask: Any) -> None:
    values = make_values()
    for epoch in (4, 5):
        values.mark(epoch)
    values.release(5)
    with pytest.raises(InternalError, match=r"no mark at epoch 4, only at \[5\]"):
        ask(values)


def test_without_marks_nothing_is_recorded() -> None:
    values = make_values()
    values.mark(1)
    values["a"] = 1
    values.release(2)
    values["b"] = 1
    values.mark(3)
    assert values.changed(3) == 0


# --- restoring --------------------------------------------------------------------------------------------------------


def test_it_is_a_state() -> None:
    state: State = make_values()
    assert (state.name, state.slot_bits, state.marks) == ("seen", SLOT_BITS, ())


def test_a_chunk_comes_back_through_bytes() -> None:
    values = make_values()
    values.update(a=(1, {2}), b=None)
    assert restored(read_chunk(write_chunk(values.snapshot(FULL)))) == {"a": (1, {2}), "b": None}


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (Values("other", {"word": pa.string()}, slot_bits=SLOT_BITS), InternalError, "has name 'seen'"),
        (Values("seen", {"word": pa.string()}, slot_bits=3), InternalError, "has slot_bits 2"),
        (Values("seen", {"term": pa.string()}, slot_bits=SLOT_BITS), InternalError, r"has keys \('word',\)"),
        (Values("seen", {"word": pa.string()}, slot_bits=SLOT_BITS, version=1), UserError, "has version 0"),
        (Values("seen", {"word": pa.int64()}, slot_bits=SLOT_BITS), UserError, "'word' of state 'seen' is string, but"),
        (Values("seen", {"word": pa.string()}, slot_bits=SLOT_BITS, value=pa.int8()), UserError, "column 'value'"),
    ],
)
def test_a_chunk_of_other_state_is_refused(other: Values, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_values().restore([other.snapshot(SlotSet.empty())])


def test_size_follows_the_rows_in_the_slots() -> None:
    values = Values("seen", keys={"word": pa.string()})
    for number in range(1000):
        values[f"word {number:05}"] = "x" * 100
    full, half = values.size(), values.size(SlotSet.range(0, 127))
    assert abs(full - values.snapshot(SlotSet.full(8)).nbytes) < 0.1 * full
    assert 0.4 * full < half < 0.6 * full
    assert make_values().size() == 0


def test_to_drop_one_of_many_slots_leaves_the_others() -> None:
    values = make_values()
    values.update(dict.fromkeys("abcdefgh", 1))
    values.drop(SlotSet([1]))
    assert set(values) == {word for word in "abcdefgh" if slot_of_word(word) != 1}
