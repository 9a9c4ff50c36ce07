"""What the protocol needs of an operator: a deterministic function of state and input, and state in containers."""

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
    inputs: Mapping[int, tuple[Batch, ...]]  #: batches by input port; their order means nothing
    watermark: int
    slots: SlotSet


class Reading(NamedTuple, Generic[Batch]):
    """What a source has read for one epoch."""

    outputs: Mapping[Edge, Batch]
    positions: Positions  #: after the epoch, of the slots that were read
    watermark: int
    exhausted: bool
    created: float = 0.0  #: when the oldest of these rows came to be, for latency; 0 if unknown


class Logic(Protocol[Batch]):
    """A stateless or stateful operator. Its output must not depend on how slots are spread over instances."""

    @property
    def state(self) -> ProcessingState: ...

    def process(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        """Updates the state of the piece's slots; timers due by its watermark fire for these slots only."""
        ...

    def changed(self, since: int) -> int:
        """How many entries of the state changed since a marked epoch."""
        ...


class SourceLogic(Protocol[Batch]):
    """A source; its slots are its input partitions, its state is the position in each."""

    @property
    def state(self) -> ProcessingState: ...

    def seek(self, positions: Positions) -> None: ...

    def committed(self, epoch: int) -> None:
        """Tells that all sinks have committed the epoch; a source may read more or less by how fast that goes."""
        ...

    def read(self, epoch: int, slots: SlotSet) -> Reading[Batch]:
        """Reads on from the current positions, as much as it likes."""
        ...

    def reread(self, epoch: int, slots: SlotSet, positions: Positions) -> Reading[Batch]:
        """Reads from the current positions exactly up to the recorded ones."""
        ...
