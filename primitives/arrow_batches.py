"""ArrowBatches: splits Arrow record batches by the slot of each row's key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.graph import Edge, QueryGraph
from primitives.hashing import hash_keys
from primitives.routing import rows_in, split_batch
from primitives.slots import SlotSet, slots_of
from primitives.topology import Assignment


@dataclass(frozen=True, slots=True)
class _Split:
    """A batch, and its parts under an assignment."""

    batch: pa.RecordBatch
    assignment: Assignment
    parts: Mapping[int, pa.RecordBatch]


class ArrowBatches:
    """`Batches` of Arrow record batches: every row goes to the owner of the slot of its key.

    `keys` names, for each stream of the query, the columns that its receiver is keyed by. A stream without key columns
    takes the whole row as the key: that spreads rows over the receivers, and sends the same row the same way whichever
    batch a replay finds it in. (A rule for whole batches could not: who sends again may cut its batches otherwise.)

    >>> from primitives.graph import Kind, OperatorSpec
    >>> edge = Edge("words", "count")
    >>> graph = QueryGraph([OperatorSpec("words", Kind.SOURCE), OperatorSpec("count", Kind.SINK, slot_bits=2)], [edge])
    >>> batches = ArrowBatches(graph, keys={edge: ["word"]})
    >>> batch = pa.record_batch({"word": ["a", "b", "c", "a"]})
    >>> parts = batches.split(edge, batch, Assignment.contiguous(2, slot_bits=2))
    >>> {owner: part["word"].to_pylist() for owner, part in parts.items()}
    {0: ['c'], 1: ['a', 'b', 'a']}
    """

    def __init__(self, graph: QueryGraph, keys: Mapping[Edge, Sequence[str]]) -> None:
        _check_streams(graph, keys)
        self._keys = {edge: tuple(columns) for edge, columns in keys.items()}
        self._slot_bits = {edge: graph.operators[edge.downstream].slot_bits for edge in graph.edges}
        #: the last split of each stream
        self._last: dict[Edge, _Split] = {}

    def split(self, edge: Edge, batch: pa.RecordBatch, assignment: Assignment) -> Mapping[int, pa.RecordBatch]:
        """Returns the rows for each owner that gets any; a sole owner gets the same batch, without a look at the rows.

        The receivers of a batch ask for it one after another, so the last split of a stream is made only once.
        """
        if assignment.sole_owner is not None:
            return {assignment.sole_owner: batch} if batch.num_rows else {}
        last = self._last.get(edge)
        if last is None or last.batch is not batch or last.assignment is not assignment:
            parts = split_batch(batch, self._slots(edge, batch), assignment.owners)
            last = self._last[edge] = _Split(batch, assignment, parts)
        return last.parts

    def select(self, edge: Edge, batch: pa.RecordBatch, slots: SlotSet) -> pa.RecordBatch | None:
        """Returns the rows whose slot is in `slots`, the same batch if these are all rows, or None for no rows."""
        rows = rows_in(batch, self._slots(edge, batch), slots)
        return rows if rows.num_rows else None

    def concat(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Returns the rows of all batches; a single batch is returned itself."""
        if len(batches) == 1:
            return batches[0]
        try:
            return pa.concat_batches(batches)
        except pa.ArrowInvalid as reason:
            raise UserError(
                f"an operator's output on one stream must always have the same columns and types: {reason}"
            ) from reason

    def _slots(self, edge: Edge, batch: pa.RecordBatch) -> NDArray[np.uint32]:
        columns = _key_columns(edge, self._keys[edge] or batch.schema.names, batch)
        try:
            return slots_of(hash_keys(columns), self._slot_bits[edge])
        except UserError as reason:
            raise UserError(
                f"rows of stream {edge} cannot be routed by {list(self._keys[edge]) or 'whole rows'}: {reason}"
            ) from reason


def _key_columns(edge: Edge, names: Sequence[str], batch: pa.RecordBatch) -> list[pa.Array]:
    for name in names:
        if batch.schema.get_field_index(name) < 0:  # also if there are two
            raise UserError(
                f"stream {edge} is keyed by column '{name}', and a batch on it has no single column of that name, "
                f"only {batch.schema.names}; name other key columns, or have operator '{edge.upstream}' put it out"
            )
    return [batch.column(name) for name in names]


def _check_streams(graph: QueryGraph, keys: Mapping[Edge, Sequence[str]]) -> None:
    for edge in graph.edges:
        if edge not in keys:
            raise UserError(f"no key columns are given for stream {edge}; give an empty list to route by whole rows")
    for edge, columns in keys.items():
        if edge not in graph.edges:
            raise UserError(f"key columns are given for stream {edge}, which the query does not have")
        if isinstance(columns, str):
            raise UserError(f"the key columns of stream {edge} are a list of names; write [{columns!r}]")
