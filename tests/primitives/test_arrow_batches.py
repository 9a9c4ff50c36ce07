"""ArrowBatches: each row goes to the owner of its key's slot, however batches are cut; and emissions spill as Arrow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.arrow_batches import ArrowBatches
from primitives.emission import EMISSIONS, Batches, Emission
from primitives.errors import UserError
from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from primitives.hashing import hash_key
from primitives.outbox import Outbox
from primitives.slots import SlotSet, slot_of
from primitives.spill import SpillStore, pack_batches, unpack_batches
from primitives.topology import Assignment

SLOT_BITS = 3
FULL = SlotSet.full(SLOT_BITS)

KEYED, BY_TWO, WHOLE_ROWS = Edge("src", "out", 0), Edge("src", "out", 1), Edge("src", "out", 2)
GRAPH = QueryGraph(
    [OperatorSpec("src", Kind.SOURCE), OperatorSpec("out", Kind.SINK, SLOT_BITS)],
    [KEYED, BY_TWO, WHOLE_ROWS],
)
KEYS = {KEYED: ["key"], BY_TWO: ["key", "word"], WHOLE_ROWS: []}
HASHED: dict[Edge, tuple[str, ...]] = {
    KEYED: ("key",),
    BY_TWO: ("key", "word"),
    WHOLE_ROWS: ("key", "word", "n"),
}

rows = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["a", "b", None]), st.integers(0, 3)))
edges = st.sampled_from([KEYED, BY_TWO, WHOLE_ROWS])
slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)
assignments = st.lists(st.integers(0, 3), min_size=1 << SLOT_BITS, max_size=1 << SLOT_BITS).map(Assignment)


def make_batches() -> ArrowBatches:
    return ArrowBatches(GRAPH, KEYS)


def batch_of(some: list[tuple[int, str | None, int]]) -> pa.RecordBatch:
    schema = pa.schema([("key", pa.int64()), ("word", pa.string()), ("n", pa.int64())])
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in some], schema)


def listed(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in batch.to_pylist()]


def slot_of_row(edge: Edge, row: dict[str, Any]) -> int:
    return slot_of(hash_key(*[row[column] for column in HASHED[edge]]), SLOT_BITS)


# --- routing ----------------------------------------------------------------------------------------------------------


def test_arrow_batches_are_batches() -> None:
    batches: Batches[pa.RecordBatch] = make_batches()
    assert batches.concat([batch_of([]), batch_of([(1, "a", 1)])]).num_rows == 1


@given(edges, rows, assignments)
def test_every_row_goes_to_the_owner_of_its_slot(edge: Edge, some: list[Any], assignment: Assignment) -> None:
    parts = make_batches().split(edge, batch_of(some), assignment)
    assert sum((Counter(listed(part)) for part in parts.values()), Counter()) == Counter(some)
    for owner, part in parts.items():
        assert part.num_rows
        assert {assignment.table[slot_of_row(edge, row)] for row in part.to_pylist()} == {owner}


@given(edges, rows, slot_sets)
def test_a_selection_has_the_rows_of_its_slots_in_order(edge: Edge, some: list[Any], slots: SlotSet) -> None:
    batch = batch_of(some)
    chosen = make_batches().select(edge, batch, slots)
    expected = [tuple(row.values()) for row in batch.to_pylist() if slot_of_row(edge, row) in slots]
    assert (listed(chosen) if chosen is not None else []) == expected


@given(edges, rows, assignments, slot_sets)
def test_a_batch_cut_otherwise_sends_each_row_the_same_way(
    edge: Edge, some: list[Any], assignment: Assignment, slots: SlotSet
) -> None:
    batches, whole = make_batches(), batch_of(some)
    pieces = [batches.select(edge, whole, part) for part in (slots, FULL - slots)]
    apart: Counter[Any] = Counter()
    for piece in filter(None, pieces):
        for owner, part in batches.split(edge, piece, assignment).items():
            apart.update((owner, row) for row in listed(part))
    at_once = {owner: listed(part) for owner, part in batches.split(edge, whole, assignment).items()}
    assert apart == Counter((owner, row) for owner, part in at_once.items() for row in part)


def test_rows_without_a_key_are_spread_over_the_receivers() -> None:
    batch = batch_of([(n, "a", 0) for n in range(1000)])
    parts = make_batches().split(WHOLE_ROWS, batch, Assignment.contiguous(4, SLOT_BITS))
    assert sorted(parts) == [0, 1, 2, 3]
    assert min(part.num_rows for part in parts.values()) > 150


def test_a_sole_owner_gets_the_very_same_batch() -> None:
    batch = batch_of([(1, "a", 1), (2, "b", 2)])
    parts = make_batches().split(KEYED, batch, Assignment([5] * 8))
    assert list(parts) == [5]
    assert parts[5] is batch


def test_a_selection_of_everything_is_the_very_same_batch() -> None:
    batch = batch_of([(1, "a", 1), (2, "b", 2)])
    assert make_batches().select(KEYED, batch, FULL) is batch


def test_no_rows_are_nobodys() -> None:
    batches, nothing = make_batches(), batch_of([])
    assert not batches.split(KEYED, nothing, Assignment([5] * 8))
    assert not batches.split(KEYED, nothing, Assignment.contiguous(2, SLOT_BITS))
    assert batches.select(KEYED, nothing, FULL) is None


def test_a_single_batch_is_not_copied_to_be_concatenated() -> None:
    batch = batch_of([(1, "a", 1)])
    assert make_batches().concat([batch]) is batch


def test_the_receivers_of_a_batch_share_one_split() -> None:
    batches, batch = make_batches(), batch_of([(n, "a", 0) for n in range(50)])
    two, three = Assignment.contiguous(2, SLOT_BITS), Assignment.contiguous(3, SLOT_BITS)
    first = batches.split(KEYED, batch, two)
    assert batches.split(KEYED, batch, two) is first
    assert sorted(batches.split(KEYED, batch, three)) == [0, 1, 2]
    assert batches.split(BY_TWO, batch, two).keys() == {0, 1}
    other = batch_of([(n, "b", 1) for n in range(50)])
    assert all(row[1] == "b" for part in batches.split(KEYED, other, two).values() for row in listed(part))


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_stream_without_declared_keys_is_refused() -> None:
    with pytest.raises(UserError, match="no key columns are given for stream src->out:2; give an empty list"):
        ArrowBatches(GRAPH, {KEYED: ["key"], BY_TWO: ["key"]})


def test_keys_of_an_unknown_stream_are_refused() -> None:
    with pytest.raises(UserError, match="stream out->src:0, which the query does not have"):
        ArrowBatches(GRAPH, {**KEYS, Edge("out", "src"): []})


def test_a_column_name_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(UserError, match=r"write \['key'\]"):
        ArrowBatches(GRAPH, {**KEYS, KEYED: "key"})


def test_a_batch_without_the_key_column_is_refused_by_name() -> None:
    batch = pa.record_batch({"word": ["a"], "n": [1]})
    with pytest.raises(UserError, match=r"stream src->out:0 is keyed by column 'key'.*only \['word', 'n'\]"):
        make_batches().select(KEYED, batch, FULL)


def test_a_column_that_cannot_be_a_key_is_refused_with_its_stream() -> None:
    batch = pa.record_batch({"key": [[1], [2]]})
    with pytest.raises(UserError, match=r"rows of stream src->out:0 cannot be routed by \['key'\].*list<"):
        make_batches().split(KEYED, batch, Assignment.contiguous(2, SLOT_BITS))
    with pytest.raises(UserError, match="rows of stream src->out:2 cannot be routed by whole rows"):
        make_batches().split(WHOLE_ROWS, batch, Assignment.contiguous(2, SLOT_BITS))


def test_output_that_changes_its_columns_within_an_epoch_is_refused() -> None:
    with pytest.raises(UserError, match="must always have the same columns and types"):
        make_batches().concat([pa.record_batch({"n": [1]}), pa.record_batch({"n": ["one"]})])


# --- emissions on disk ------------------------------------------------------------------------------------------------

emissions = st.builds(
    lambda outputs, watermark, created: Emission(
        {e: batch_of(some) for e, some in outputs.items()}, watermark, created
    ),
    st.dictionaries(edges, rows),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(0, 2e9),
)


@given(emissions)
def test_an_emission_comes_back_from_its_codec(emission: Emission[pa.RecordBatch]) -> None:
    packed = pack_batches(*EMISSIONS.to_batches(emission))
    again = EMISSIONS.from_batches(*unpack_batches(packed))
    assert again == emission
    assert all(isinstance(edge, Edge) for edge in again.outputs)


def test_an_outbox_over_its_budget_gives_the_same_emissions_from_disk(tmp_path: Path) -> None:
    batch = pa.record_batch({"n": np.arange(1000)})
    store = SpillStore(tmp_path / "outbox", EMISSIONS)
    outbox = Outbox[Emission[pa.RecordBatch]](budget=10_000, spill=store)
    written = {epoch: Emission({KEYED: batch.slice(epoch)}, watermark=epoch * 10, created=0.5) for epoch in range(1, 9)}
    for epoch, emission in written.items():
        outbox.append(epoch, emission)
    assert outbox.nbytes <= 10_000 < store.nbytes
    assert dict(outbox.entries()) == written
    outbox.close()
    assert not (tmp_path / "outbox").exists()
