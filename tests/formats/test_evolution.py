"""Stored state for changed code: resolved by Avro's rules, converted by the operator, or refused with both schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import assume, given
from hypothesis import strategies as st

from formats.blob import blob_schema, empty_chunk
from formats.evolution import (
    Evolution,
    Hint,
    HintedColumn,
    Migrate,
    check_containers,
    column,
    hints_of,
    resolve,
    types_of,
)
from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.frame import Frame
from primitives.state.values import Values

FULL = SlotSet.full(8)
KEYS = {"word": pa.string()}
OLD = {"n": pa.int32(), "note": pa.string()}

Columns = Mapping[str, pa.DataType | HintedColumn]


def frame(values: Columns, keys: Columns = KEYS, version: int = 0, **others: Any) -> Frame:
    return Frame("counts", types_of(keys), types_of(values), version=version, **others)


def stored(version: int = 0) -> Chunk:
    made = frame(OLD, version=version)
    made.put({"word": ["be", "to"]}, n=[7, 9], note=["x", None])
    return made.snapshot(FULL)


def loaded(
    chunks: list[Chunk], values: Columns, keys: Columns = KEYS, version: int = 0, migrate: Migrate | None = None
) -> list[dict[str, Any]]:
    """The rows of a frame of today that the chunks were restored into."""
    made = frame(values, keys, version)
    made.restore(resolve(chunks, made.snapshot(SlotSet.empty()), hints_of({**keys, **values}), migrate))
    return sorted(made.to_arrow().to_pylist(), key=repr)


# --- Avro's rules -----------------------------------------------------------------------------------------------------


def test_state_of_the_same_columns_is_handed_on_as_it_is() -> None:
    chunk = stored()
    assert resolve([chunk], frame(OLD).snapshot(SlotSet.empty())) == (chunk,)


def test_an_added_column_has_its_default() -> None:
    rows = loaded([stored()], {**OLD, "seen": column(pa.int64(), default=1), "page": column(pa.string(), default=None)})
    assert rows[0] == {"word": "be", "n": 7, "note": "x", "seen": 1, "page": None}


def test_a_removed_column_is_left_out() -> None:
    assert loaded([stored()], {"n": pa.int32()}) == [{"word": "be", "n": 7}, {"word": "to", "n": 9}]


def test_a_renamed_column_is_found_by_its_alias() -> None:
    rows = loaded([stored()], {"count": column(pa.int32(), aliases=["number", "n"]), "note": pa.string()})
    assert rows[0] == {"word": "be", "count": 7, "note": "x"}


def test_a_renamed_key_is_found_by_its_alias() -> None:
    assert loaded([stored()], {"n": pa.int32()}, {"text": column(pa.string(), aliases=["word"])})[0]["text"] == "be"


names = st.sampled_from("abcdef")


@given(
    st.lists(names, unique=True),
    st.lists(names, unique=True, min_size=1),
    st.dictionaries(names, names),
    st.sets(names),
)
def test_columns_are_found_where_avro_finds_fields(
    before: list[str], now: list[str], renamed: dict[str, str], defaults: set[str]
) -> None:
    aliases = {name: [renamed[name]] for name in now if name in renamed and name not in before}
    taken = [*now, *(alias for given_ in aliases.values() for alias in given_)]
    assume(len(taken) == len(set(taken)))  # no stored column could be two
    absent = Hint().default
    hints = {name: Hint(-1 if name in defaults else absent, tuple(aliases.get(name, ()))) for name in now}
    expected = resolved_by_fastavro(before, now, hints)
    old = frame(dict.fromkeys(before, pa.int64()))
    old.put({"word": ["be"]}, **{name: [at] for at, name in enumerate(before)})
    declared = frame(dict.fromkeys(now, pa.int64())).snapshot(SlotSet.empty())
    if expected is None:
        with pytest.raises(UserError, match="is not in the stored state"):
            resolve([old.snapshot(FULL)], declared, hints)
    else:
        (found,) = resolve([old.snapshot(FULL)], declared, hints)
        assert found.rows.drop_columns(["word"]).to_pylist() == [expected]


def resolved_by_fastavro(before: list[str], now: list[str], hints: Mapping[str, Hint]) -> dict[str, int] | None:
    """A record of numbers, read with another schema than it was written with; None if Avro has no way to."""
    written = [{"name": name, "type": "long"} for name in before]
    read: list[dict[str, Any]] = [{"name": name, "type": "long", "aliases": [*hints[name].aliases]} for name in now]
    for field in read:
        field |= {"default": -1} if hints[field["name"]].default == -1 else {}
    data = BytesIO()
    fastavro.schemaless_writer(data, record(written), {name: at for at, name in enumerate(before)})
    data.seek(0)
    try:
        found: Any = fastavro.schemaless_reader(data, record(written), record(read))
    except SchemaResolutionError:
        return None
    return dict(found)


def record(fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Rows", "fields": fields}


def test_a_column_that_could_be_either_of_two_is_refused() -> None:
    values = {"n": column(pa.string(), aliases=["note"])}
    with pytest.raises(UserError, match=r"column 'n' could be any of the stored \['n', 'note'\]; say which in migrate"):
        loaded([stored()], values)


def test_a_name_goes_before_an_alias() -> None:
    values = {"n": pa.int32(), "count": column(pa.int32(), default=0, aliases=["n"])}
    assert loaded([stored()], values)[0] == {"word": "be", "n": 7, "count": 0}


def test_columns_may_be_in_another_order() -> None:
    assert loaded([stored()], {"note": pa.string(), "n": pa.int32()})[1] == {"word": "to", "note": None, "n": 9}


def test_columns_with_names_that_avro_does_not_know_are_resolved() -> None:
    old = frame({"on page": pa.int64()})
    old.put({"word": ["be"]}, **{"on page": [3]})
    rows = loaded([old.snapshot(FULL)], {"page №": column(pa.int64(), aliases=["on page"])})
    assert rows == [{"word": "be", "page №": 3}]


def test_deltas_are_resolved_with_what_they_delete() -> None:
    old = frame(OLD)
    old.put({"word": ["be", "to"]}, n=[7, 9])
    base = old.snapshot(FULL)
    old.mark(1)
    old.delete({"word": ["to"]})
    old.put({"word": ["or"]}, n=[3])
    chunks = [base, old.snapshot(FULL, since=1)]
    rows = loaded(chunks, {"n": pa.int64()}, {"text": column(pa.string(), aliases=["word"])})
    assert rows == [{"text": "be", "n": 7}, {"text": "or", "n": 3}]


WIDENED: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.int8(), -7, pa.int64(), -7),
    (pa.uint32(), 2**32 - 1, pa.int64(), 2**32 - 1),
    (pa.int32(), 7, pa.float32(), 7.0),
    (pa.int64(), 2**53 + 1, pa.float64(), 2.0**53),  # rounded, as in Avro
    (pa.float32(), 0.5, pa.float64(), 0.5),
    (pa.string(), "ö", pa.large_string(), "ö"),
    (pa.string(), "ö", pa.binary(), "ö".encode()),
    (pa.binary(), "ö".encode(), pa.string(), "ö"),
]


@pytest.mark.parametrize(("old", "given_", "new", "expected"), WIDENED, ids=[f"{w[0]} to {w[2]}" for w in WIDENED])
def test_values_are_widened_as_in_avro(old: pa.DataType, given_: Any, new: pa.DataType, expected: Any) -> None:
    made = frame({"n": old})
    made.put({"word": ["be"]}, n=[given_])
    assert loaded([made.snapshot(FULL)], {"n": new}) == [{"word": "be", "n": expected}]


REFUSED = [
    (pa.int64(), pa.int32()),
    (pa.int32(), pa.uint64()),
    (pa.uint64(), pa.int64()),
    (pa.float64(), pa.float32()),
    (pa.float64(), pa.int64()),
    (pa.int64(), pa.string()),
    (pa.timestamp("us"), pa.timestamp("ms")),
    (pa.bool_(), pa.int64()),
    (pa.bool_(), pa.float64()),
]


@pytest.mark.parametrize(("old", "new"), REFUSED, ids=str)
def test_types_that_can_hold_less_or_something_else_are_refused(old: pa.DataType, new: pa.DataType) -> None:
    chunk = frame({"n": old}).snapshot(FULL)
    with pytest.raises(UserError, match=r"column 'n' was .*, which does not become .* by itself"):
        loaded([chunk], {"n": new})


def test_bytes_that_are_no_text_are_refused() -> None:
    made = frame({"n": pa.binary()})
    made.put({"word": ["be"]}, n=[b"\xff"])
    with pytest.raises(UserError, match="column 'n' does not become string"):
        loaded([made.snapshot(FULL)], {"n": pa.string()})


@given(st.lists(st.integers(-(2**31), 2**31 - 1), unique=True, max_size=10))
def test_keys_that_are_widened_stay_in_their_slots(ids: list[int]) -> None:
    old = frame({"n": pa.int64()}, {"id": pa.int32()})
    old.put({"id": pa.array(ids, pa.int32())}, n=1)
    chunk = old.snapshot(FULL)
    for kind in (pa.int64(), pa.float64()):
        declared = frame({"n": pa.int64()}, {"id": kind}).snapshot(SlotSet.empty())
        (found,) = resolve([chunk], declared)
        assert found.slots_of_rows().tolist() == chunk.slots_of_rows().tolist()


def test_a_key_that_would_be_rounded_is_refused() -> None:
    chunk = frame({}, {"id": pa.int64()}).snapshot(FULL)
    with pytest.raises(UserError, match="'id' was int64, which does not become double by itself"):
        loaded([chunk], {}, {"id": pa.float64()})


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_with_both_schemas_side_by_side() -> None:
    with pytest.raises(UserError) as refused:
        loaded([stored()], {"count": pa.int64()})
    assert str(refused.value).splitlines() == [
        "stored state 'counts' does not fit: column 'count' is not in the stored state; give it a default or an alias",
        "  stored, version 0  | declared, version 0",
        "  word: string (key) | word: string (key)",
        "  n: int32           | count: int64",
        "  note: string       |",
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"word": pa.string(), "page": column(pa.int64(), default=0)},
        {"text": column(pa.string(), default="")},
        {"note": pa.string()},
    ],
    ids=["added", "replaced", "another"],
)
def test_state_of_other_keys_is_refused(keys: Columns) -> None:
    with pytest.raises(UserError, match=r"rows were keyed by \['word'\], and are now by .*; convert them in migrate"):
        loaded([stored()], {"n": pa.int32()}, keys)


def test_state_whose_rows_are_told_apart_otherwise_is_refused() -> None:
    declared = frame({"n": pa.int32()}, subkeys={"note": pa.string()}).snapshot(SlotSet.empty())
    with pytest.raises(UserError, match=r"rows were told apart by \['word'\], and are now by \['word', 'note'\]"):
        resolve([stored()], declared)


def test_another_number_of_slots_is_refused() -> None:
    with pytest.raises(UserError, match=r"stored in 2\^8 slots, and the operator has 2\^4: .* set slot_bits to 8"):
        resolve([stored()], frame(OLD, slot_bits=4).snapshot(SlotSet.empty()))


def test_it_is_refused_before_anything_is_read() -> None:
    unread = empty_chunk(blob_schema(stored()))
    with pytest.raises(UserError, match="does not fit"):
        resolve([unread], frame({"count": pa.int64()}).snapshot(SlotSet.empty()))


def test_a_default_of_another_type_is_refused_where_it_is_declared() -> None:
    with pytest.raises(UserError, match="'none' cannot be the default of a column of type int64"):
        column(pa.int64(), default="none")


def test_a_single_alias_is_written_as_a_list() -> None:
    with pytest.raises(UserError, match=r"write \['n'\]"):
        column(pa.int64(), aliases="n")


# --- migrate_state ----------------------------------------------------------------------------------------------------


def doubled(version: int, chunk: Chunk) -> Chunk:
    assert version == 0
    twice = pc.multiply(chunk.rows.column("n").cast(pa.int64()), 2)
    rows = pa.record_batch({"word": chunk.rows.column("word"), "twice": twice})
    return replace(chunk, rows=rows)


def test_state_of_a_lower_version_is_converted_by_the_operator() -> None:
    rows = loaded([stored()], {"twice": pa.int64()}, version=1, migrate=doubled)
    assert rows == [{"word": "be", "twice": 14}, {"word": "to", "twice": 18}]


def test_what_the_operator_converted_is_still_resolved() -> None:
    rows = loaded([stored()], {"double": column(pa.float64(), aliases=["twice"])}, version=1, migrate=doubled)
    assert rows[0] == {"word": "be", "double": 14.0}


def test_the_operator_converts_base_and_deltas_at_once() -> None:
    values = Values("seen", {"word": pa.string()}, value=pa.int64())
    values["be"] = 1
    base = values.snapshot(FULL)
    values.mark(1)
    values["be"] = 2
    calls = []

    def migrate(_: int, chunk: Chunk) -> Chunk:
        calls.append(chunk.rows.to_pylist())
        return chunk

    now = Values("seen", {"word": pa.string()}, value=pa.int64(), version=2)
    now.restore(resolve([base, values.snapshot(FULL, since=1)], now.snapshot(SlotSet.empty()), migrate=migrate))
    assert calls == [[{"word": "be", "value": 2}]]
    assert dict(now) == {"be": 2}


def test_a_raised_version_without_a_conversion_is_refused() -> None:
    with pytest.raises(UserError, match="version was raised; give it a method migrate_state"):
        loaded([stored()], OLD, version=1)


def test_state_of_later_code_is_refused() -> None:
    with pytest.raises(UserError, match="stored by later code"):
        loaded([stored(version=4)], OLD, version=3, migrate=doubled)


def test_a_conversion_that_changes_keys_is_refused() -> None:
    def renamed(_: int, chunk: Chunk) -> Chunk:
        words = pa.array([f"{word}!" for word in chunk.rows.column("word").to_pylist()])
        rows = chunk.rows.set_column(0, "word", words)
        return replace(chunk, rows=rows, replaced=SlotSet.empty())

    partly = replace(stored(), replaced=SlotSet.empty())
    with pytest.raises(UserError, match="migrate_state has moved rows of state 'counts' from slots"):
        loaded([partly], OLD, version=1, migrate=renamed)


def test_a_conversion_that_returns_no_chunk_is_refused() -> None:
    with pytest.raises(UserError, match="migrate_state returned RecordBatch for state 'counts'; return a Chunk"):
        loaded([stored()], OLD, version=1, migrate=lambda _, chunk: chunk.rows)  # type: ignore[arg-type,return-value]


def test_an_error_of_the_conversion_names_the_state_and_its_version() -> None:
    def convert(version: int, chunk: Chunk) -> Chunk:
        raise LookupError(f"no seconds in {chunk.name} of {version}")

    with pytest.raises(UserError, match=r"migrate_state failed for state 'counts' of version 0 .*LookupError: no sec"):
        loaded([stored()], OLD, version=1, migrate=convert)


# --- all containers of an operator ------------------------------------------------------------------------------------


def other(name: str) -> Chunk:
    """A container without any rows, as one that is declared now."""
    return Frame(name, KEYS, OLD).snapshot(SlotSet.empty())


def test_each_container_is_adapted_by_its_own_hints() -> None:
    columns: Columns = {"count": column(pa.int32(), aliases=["n"])}
    declared = [frame(columns).snapshot(SlotSet.empty()), other("others")]
    twin = replace(stored(), name="others")
    counts, others = Evolution({"counts": hints_of(columns)}).adapted([twin, stored()], declared, FULL)
    assert counts.rows.to_pylist() == [{"word": row["word"], "count": row["n"]} for row in stored().rows.to_pylist()]
    assert others == twin


def test_a_container_of_which_nothing_is_stored_begins_empty() -> None:
    slots = SlotSet.range(3, 9)
    _, fresh = Evolution().adapted([stored()], [frame(OLD).snapshot(SlotSet.empty()), other("fresh")], slots)
    assert (fresh.name, fresh.replaced, len(fresh.rows)) == ("fresh", slots, 0)


def test_chunks_of_a_container_that_is_gone_are_left_out() -> None:
    assert [chunk.name for chunk in Evolution().adapted([stored()], [other("fresh")], FULL)] == ["fresh"]


def test_containers_that_are_gone_are_refused_with_both_schemas_unless_they_may_be_dropped() -> None:
    with pytest.raises(UserError, match="there is stored state 'counts', which is not declared") as refused:
        check_containers([stored(), other("kept")], [other("kept"), other("fresh")])
    left, right = zip(*(line.split("|") for line in str(refused.value).splitlines()[1:]), strict=True)
    assert [line.strip() for line in left if line.strip().startswith("'")] == [
        "'counts', version 0",
        "'kept', version 0",
    ]
    assert [line.strip() for line in right if line.strip().startswith("'")] == [
        "'kept', version 0",
        "'fresh', version 0",
    ]
    check_containers([stored()], [other("fresh")], allow_dropped=True)
