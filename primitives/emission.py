"""What an instance put out in one epoch: the payload of its outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from primitives.graph import Edge
from primitives.outbox import nbytes_of
from primitives.slots import SlotSet
from primitives.topology import Assignment

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Emission(Generic[Batch]):
    """One epoch's output, one batch per edge, not yet split by receiver; edges without rows are absent."""

    outputs: Mapping[Edge, Batch]
    watermark: int  #: no later row is older than this (event time)
    created: float = 0.0  #: when the oldest row behind it was created, for latency; 0 if unknown

    @property
    def nbytes(self) -> int:
        return sum(nbytes_of(batch) for batch in self.outputs.values())


class Batches(Protocol[Batch]):
    """How to take batches apart by slot. Arrow batches in the runtime, plain tuples in the simulator."""

    def split(self, edge: Edge, batch: Batch, assignment: Assignment) -> Mapping[int, Batch]:
        """The rows for each owner (index of an instance of the edge's downstream operator) that gets any."""
        ...

    def select(self, edge: Edge, batch: Batch, slots: SlotSet) -> Batch | None:
        """The rows whose slot, as the edge's downstream operator counts slots, is in `slots`; None for no rows."""
        ...

    def concat(self, batches: Sequence[Batch]) -> Batch:
        """The rows of all of them; at least one is given."""
        ...
