"""Effects: the requests of a machine to its shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.event import Event
from primitives.graph import InstanceId
from seep.protocol.cuts import CutAbandoned, CutComplete, Persist, Recall
from seep.protocol.messages import Positions
from seep.protocol.view import Incarnation


class Post(NamedTuple):
    """A request to hand a letter to the courier."""

    to: str  #: a node's name, or MANAGER
    body: Any


class Wake(NamedTuple):
    """The stream from a sender to a receiver has a message to pull."""

    sender: Incarnation
    receiver: Incarnation
    node: str  #: the node of the receiver


class OpenSink(NamedTuple):
    """A request to open a sink's external store, fence earlier incarnations, and return the last committed epoch."""

    sink: Incarnation


class Commit(NamedTuple):
    """A request to write one epoch to the external store, all or nothing, and to tell whether it was accepted."""

    sink: Incarnation
    epoch: int
    inputs: Mapping[int, tuple[Any, ...]]  #: batches by input port
    watermark: int
    created: float = 0.0  #: when its oldest row was created; 0 if unknown
    flush: bool = False  #: whether it is the epoch of a cut, so the sink must make all epochs so far durable


class LogOffsets(NamedTuple):
    """A request to write to the durable source log, if there is one, before later effects of the same list."""

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
