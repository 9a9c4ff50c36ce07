"""The protocol's view of an operator: a deterministic function of state and input, with its state in containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from primitives.checkpoint import ProcessingState
from primitives.graph import Edge
from primitives.slots import SlotSet
from seep.protocol.messages import Positions

Batch = TypeVar("Batch")


class Piece(NamedTuple, Generic[Batch]):
    """One epoch's rows of some slots: normally all slots of an instance, fewer while others are still arriving."""

    epoch: int
    inputs: Mapping[int, tuple[Batch, ...]]  #: batches by input port; their order has no meaning
    watermark: int
    slots: SlotSet


class Reading(NamedTuple, Generic[Batch]):
    """The rows that a source has read for one epoch."""

    outputs: Mapping[Edge, Batch]
    positions: Positions  #: after the epoch, of the slots that were read
    watermark: int
    exhausted: bool
    created: float = 0.0  #: when the oldest of these rows was created, for latency; 0 if unknown


class Logic(Protocol[Batch]):
    """A stateless or stateful operator's logic. Its output must not depend on how slots are spread over instances."""

    @property
    def state(self) -> ProcessingState: ...

    def process(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        """Updates the state of the piece's slots; only timers of these slots that are due by its watermark fire."""
        ...

    def changed(self, since: int) -> int:
        """Returns how many entries of the state have changed since a marked epoch."""
        ...


class SourceLogic(Protocol[Batch]):
    """The logic of a source; its slots are its input partitions, its state is the position in each."""

    @property
    def state(self) -> ProcessingState: ...

    def seek(self, positions: Positions) -> None: ...

    def committed(self, epoch: int) -> None:
        """Tells the source that all sinks have committed the epoch, so that it can adapt how much it reads."""
        ...

    def read(self, epoch: int, slots: SlotSet) -> Reading[Batch]:
        """Reads from the current positions on; the source chooses how much."""
        ...

    def reread(self, epoch: int, slots: SlotSet, positions: Positions) -> Reading[Batch]:
        """Reads from the current positions up to exactly the recorded ones."""
        ...
