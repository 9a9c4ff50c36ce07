"""The events of the protocol's machines: changes of nodes, instances, moves and splits."""

from __future__ import annotations

from collections.abc import Mapping

from primitives.event import InstanceEvent, NodeEvent, OperatorEvent, event, event_base
from primitives.graph import InstanceId


@event("node lost")
class NodeLost(NodeEvent):
    """The manager has given up a node, whether its process has ended or not; the shell adds the reason."""

    hosted: tuple[InstanceId, ...] | None = None  #: instances that it hosted; the shell adds them


@event("node leaving")
class NodeLeaving(NodeEvent):
    """A node will leave; no new instance or backup is put there."""


@event("rebound")
class Rebound(InstanceEvent):
    """A lost instance starts on another node."""

    to: str  #: the new node
    lost: str = ""  #: the lost node

    @property
    def detail(self) -> str:
        return f"to {self.to}"


@event_base
class InstanceAtEpoch(InstanceEvent):
    """An event about an instance whose state is the one after an epoch."""

    epoch: int

    @property
    def detail(self) -> str:
        return f"at epoch {self.epoch}"


@event("restored")
class StateRestored(InstanceAtEpoch):
    """A lost instance has its state again, the one after an epoch."""


@event("stood ready")
class StoodReady(InstanceAtEpoch):
    """The new node of a lost instance already had its state, as a replica."""


@event("retired")
class Retired(InstanceEvent):
    """An instance has no slots any more, and ends."""


@event("replica late")
class ReplicaLate(InstanceEvent):
    """Holders of an instance's backups are too far behind, and are excluded."""

    nodes: tuple[str, ...]

    @property
    def detail(self) -> str:
        return f"on {', '.join(self.nodes)}: left out"


@event("move announced")
class MoveAnnounced(OperatorEvent):
    """Slots change their owners from an epoch on."""

    plan: int
    first: int  #: the first epoch that the new owners process
    slots: int  #: the number of slots that change owners
    view: int  #: version of the view that names the new owners
    instances: tuple[InstanceId, ...] = ()  #: the instances that gain or lose slots

    @property
    def detail(self) -> str:
        return f"plan {self.plan} at epoch {self.first}: {self.slots} slots"


@event("move sealed")
class MoveSealed(OperatorEvent):
    """Every live node knows a move, so its epoch may be opened."""

    plan: int
    view: int  #: version of the view that all nodes have

    @property
    def detail(self) -> str:
        return f"plan {self.plan} by view {self.view}"


@event("move effective")
class MoveEffective(OperatorEvent):
    """The first epoch of the new owners is opened at the sources."""

    plan: int
    first: int  #: the first epoch of the new owners

    @property
    def detail(self) -> str:
        return f"plan {self.plan}, epoch {self.first} is open"


@event("state taken in")
class StateTakenIn(InstanceEvent):
    """A new owner has the state that the old owner handed over."""

    origin: InstanceId
    first: int  #: the first epoch of the new owner
    bytes: int  #: the bytes handed over; state that was fetched ahead is not counted

    @property
    def detail(self) -> str:
        return f"{self.bytes:,} bytes from {self.origin} at epoch {self.first}"

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"bytes": self.bytes}


@event("move complete")
class MoveComplete(OperatorEvent):
    """Old and new owners are safe beyond the epoch of a move."""

    plan: int

    @property
    def detail(self) -> str:
        return f"plan {self.plan}"


@event("split begun")
class SplitBegun(InstanceEvent):
    """The backup of an instance is divided among the instance and new ones."""

    plan: int
    shares: int  #: the number of instances that share it

    @property
    def detail(self) -> str:
        return f"plan {self.plan} into {self.shares}"


@event("split effective")
class SplitEffective(InstanceEvent):
    """The parts of a split backup are restored, and their instances have become the owners."""

    plan: int
    first: int  #: the first epoch that the new owners process

    @property
    def detail(self) -> str:
        return f"plan {self.plan} from epoch {self.first}"


@event("split aborted")
class SplitAborted(InstanceEvent):
    """A split has failed; nothing has changed."""

    plan: int

    @property
    def detail(self) -> str:
        return f"plan {self.plan}"
