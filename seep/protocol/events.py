"""Events that the protocol's machines tell: what has become of nodes, instances, moves and splits."""

from __future__ import annotations

from collections.abc import Mapping

from primitives.event import InstanceEvent, NodeEvent, OperatorEvent, event, event_base
from primitives.graph import InstanceId


@event("node lost")
class NodeLost(NodeEvent):
    """A node was given up, dead or not; the shell adds why."""


@event("node leaving")
class NodeLeaving(NodeEvent):
    """A node will go: nothing new is put there."""


@event("rebound")
class Rebound(InstanceEvent):
    """A lost instance starts on another node."""

    to: str  #: that node
    lost: str = ""  #: the node that it was on

    @property
    def detail(self) -> str:
        return f"to {self.to}"


@event_base
class InstanceAtEpoch(InstanceEvent):
    """An event about an instance whose state is that after an epoch."""

    epoch: int

    @property
    def detail(self) -> str:
        return f"at epoch {self.epoch}"


@event("restored")
class StateRestored(InstanceAtEpoch):
    """A lost instance has its state again, as it was after an epoch."""


@event("stood ready")
class StoodReady(InstanceAtEpoch):
    """A lost instance had its state on the new node already, as a replica."""


@event("retired")
class Retired(InstanceEvent):
    """An instance owns nothing any more, and ends."""


@event("replica late")
class ReplicaLate(InstanceEvent):
    """Holders of an instance's backups stay behind, and are left out."""

    nodes: tuple[str, ...]

    @property
    def detail(self) -> str:
        return f"on {', '.join(self.nodes)}: left out"


@event("move announced")
class MoveAnnounced(OperatorEvent):
    """Slots go from owner to owner from an epoch on."""

    plan: int
    first: int  #: the first epoch that the new owners process
    slots: int  #: that change hands
    view: int  #: version of the view that names the new owners
    instances: tuple[InstanceId, ...] = ()  #: those that win or lose slots

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
    first: int  #: that epoch

    @property
    def detail(self) -> str:
        return f"plan {self.plan}, epoch {self.first} is open"


@event("state taken in")
class StateTakenIn(InstanceEvent):
    """A new owner has the state of slots that an old one handed over."""

    origin: InstanceId
    first: int  #: the first epoch of the new owner
    bytes: int  #: handed over; what was fetched ahead is not among it

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
    """The backup of an instance is divided among it and new ones."""

    plan: int
    shares: int  #: instances that it is divided among

    @property
    def detail(self) -> str:
        return f"plan {self.plan} into {self.shares}"


@event("split effective")
class SplitEffective(InstanceEvent):
    """The parts of a split backup are restored, and have taken over."""

    plan: int
    first: int  #: the first epoch that the new owners process

    @property
    def detail(self) -> str:
        return f"plan {self.plan} from epoch {self.first}"


@event("split aborted")
class SplitAborted(InstanceEvent):
    """A split did not work out; nothing has changed."""

    plan: int

    @property
    def detail(self) -> str:
        return f"plan {self.plan}"
