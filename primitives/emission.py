"""Emission: the output of an instance in one epoch, the payload of its outbox; EMISSIONS: the codec for spilling it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from primitives.graph import Edge
from primitives.outbox import nbytes_of
from primitives.slots import SlotSet
from primitives.spill import SpillCodec
from primitives.topology import Assignment

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Emission(Generic[Batch]):
    """One epoch's output, one batch per edge, not yet split by receiver; edges without rows are absent."""

    outputs: Mapping[Edge, Batch]
    watermark: int  #: no later row is older than this (event time)
    created: float = 0.0  #: creation time of the oldest row behind it, for latency; 0 if unknown

    @property
    def nbytes(self) -> int:
        return sum(nbytes_of(batch) for batch in self.outputs.values())


class Batches(Protocol[Batch]):
    """Operations on batches by slot: on Arrow batches in the runtime, on plain tuples in the simulator."""

    def split(self, edge: Edge, batch: Batch, assignment: Assignment) -> Mapping[int, Batch]:
        """The rows for each owner (index of an instance of the edge's downstream operator) that gets any."""
        ...

    def select(self, edge: Edge, batch: Batch, slots: SlotSet) -> Batch | None:
        """The rows whose slot, as the edge's downstream operator counts slots, is in `slots`; None for no rows."""
        ...

    def concat(self, batches: Sequence[Batch]) -> Batch:
        """The rows of all of them; at least one is given."""
        ...


def _to_batches(emission: Emission[pa.RecordBatch]) -> tuple[Mapping[str, pa.RecordBatch], Mapping[str, object]]:
    batches = {str(at): batch for at, batch in enumerate(emission.outputs.values())}
    return batches, {
        "edges": list(emission.outputs),  # in the order of the batches; edges written as text could be ambiguous
        "watermark": emission.watermark,
        "created": emission.created,
    }


def _from_batches(batches: dict[str, pa.RecordBatch], metadata: dict[str, Any]) -> Emission[pa.RecordBatch]:
    edges = [Edge(*edge) for edge in metadata["edges"]]
    outputs = {edge: batches[str(at)] for at, edge in enumerate(edges)}
    return Emission(outputs, metadata["watermark"], metadata["created"])


#: The codec of one epoch's output: a batch per edge, watermark and creation time.
EMISSIONS: SpillCodec[Emission[pa.RecordBatch]] = SpillCodec(_to_batches, _from_batches)
