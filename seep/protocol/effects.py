"""What a machine asks its shell to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.cuts import CutAbandoned, CutComplete, Persist, Recall
from seep.protocol.messages import Positions
from seep.protocol.view import Incarnation


class Post(NamedTuple):
    """Hand a letter to the courier."""

    to: str  #: a node's name, or MANAGER
    body: Any


class Wake(NamedTuple):
    """The stream from a sender to a receiver has something to pull."""

    sender: Incarnation
    receiver: Incarnation
    node: str  #: where the receiver lives


class OpenSink(NamedTuple):
    """Open the external store for a sink, fence its earlier incarnations, and tell the last committed epoch."""

    sink: Incarnation


class Commit(NamedTuple):
    """Write one epoch to the external store, all or nothing, and tell whether it was accepted."""

    sink: Incarnation
    epoch: int
    inputs: Mapping[int, tuple[Any, ...]]  #: batches by input port
    watermark: int
    created: float = 0.0  #: when the oldest row behind it came to be; 0 if unknown
    flush: bool = False  #: it is the epoch of a cut: what was taken so far is to be durable by itself


class LogOffsets(NamedTuple):
    """Write to the durable source log (where there is one); what follows in the same list of effects relies on it."""

    source: InstanceId
    epoch: int
    positions: Positions


class Finished(NamedTuple):
    """All input is processed and committed."""

    epoch: int


class StateLost(NamedTuple):
    """An instance and every copy of its backup are gone: the query cannot go on without a wrong result."""

    instance: InstanceId
    epoch: int

    def __str__(self) -> str:
        return (
            f"operator {self.instance.operator!r}: the state of {self.instance} after epoch {self.epoch} is lost, as "
            "its node and the node with its backup failed together; start again from the "
            "sources, with backups on more reliable nodes"
        )


Effect = (
    Persist
    | Recall
    | CutComplete
    | CutAbandoned
    | Post
    | Wake
    | OpenSink
    | Commit
    | LogOffsets
    | Event
    | Finished
    | StateLost
)
