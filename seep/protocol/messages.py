"""Everything that machines say to each other.

*Stream* messages carry rows between instances; they may be lost with a link, since the outbox behind them is sent
again on request. All others arrive once as long as both processes live: *letters* in order, by the courier; those that
carry state on the bulk lane beside the letters (`bulk.py` says which, and which of them keep their order).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primitives.backup import StoreOutcome
from primitives.checkpoint import Checkpoint
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.cuts import CutPart
from seep.protocol.view import Incarnation, View

MAX_WATERMARK = 2**63 - 1
#: A source's position per slot; what it means is the source's own affair.
Positions = Mapping[int, Any]


# -- streams: instance to instance ------------------------------------------------------------------------------------


class Data(NamedTuple):
    """All that a sender has for a receiver in one epoch: the epoch's one and final message between the two."""

    sender: Incarnation
    receiver: Incarnation
    epoch: int
    batches: Mapping[int, Any]  #: by input port; ports without rows are absent
    watermark: int
    created: float = 0.0

    @property
    def addressee(self) -> Incarnation:
        return self.receiver


# -- instance to instance, on the bulk lane ---------------------------------------------------------------------------


class StateMoved(NamedTuple):
    """The state of slots that change hands, as it was before `epoch`; with a `base`, only what changed since then."""

    sender: Incarnation
    receiver: Incarnation
    epoch: int
    base: int | None
    chunks: tuple[Any, ...]

    @property
    def addressee(self) -> Incarnation:
        return self.receiver


# -- letters: node to node --------------------------------------------------------------------------------------------


class Attach(NamedTuple):
    """A receiver asks a sender for everything from an epoch on; replay, recovery and reconnection are all this."""

    sender: Incarnation
    receiver: Incarnation
    first: int
    bases: Mapping[
        int, int
    ] = {}  #: for slots that arrive before the epoch on the left, the receiver holds a backup of the epoch on the right

    @property
    def addressee(self) -> Incarnation:
        return self.sender


class StoreBackup(NamedTuple):
    """A checkpoint to be kept, and passed on to whoever is next in the chain; without one, the receiver is alone."""

    checkpoint: Checkpoint
    chain: tuple[str, ...] = ()


class NeedsBackup(NamedTuple):
    """To the one before in the chain: what you have passed on builds on what is not here; send all that you have."""

    owner: InstanceId
    chain: tuple[str, ...]


class BackupRefused(NamedTuple):
    owner: Incarnation
    epoch: int
    why: StoreOutcome
    has: int | None = None  #: the epoch of what the holder has

    @property
    def addressee(self) -> Incarnation:
        return self.owner


class Retrieve(NamedTuple):
    """Asks a holder for the backup of `owner` (or, while a split is prepared, for one part of it)."""

    asker: Incarnation
    owner: InstanceId
    part: int | None = None  #: the plan whose part is meant
    warm_up: WarmUp | None = None  #: the asker does not replace the owner, it only wants some slots ahead of a handover


class Retrieved(NamedTuple):
    asker: Incarnation
    owner: InstanceId
    checkpoint: Checkpoint | None
    warm_up: WarmUp | None
    #: the checkpoint's state is not among its chunks: it stands ready on this very node, as `HandedStates` has it
    stands: bool = False

    @property
    def addressee(self) -> Incarnation:
        return self.asker


class StandBy(NamedTuple):
    """A holder to itself: the state of a backup is to stand ready, once there is nothing more urgent to do."""

    owner: InstanceId


# -- letters: manager to node -----------------------------------------------------------------------------------------


class FromNothing(NamedTuple):
    """Begin empty after an epoch: a new instance, or a stateless one that is healed by replay alone."""

    epoch: int


class FromBackup(NamedTuple):
    """Begin with what a holder keeps. With a `part`, wait for the view that makes the split effective."""

    holder: str
    part: int | None = None
    others: tuple[str, ...] = ()  #: who else has the backup of `epoch`
    epoch: int = 0


class FromLog(NamedTuple):
    """Begin as a source: at the positions after `epoch`, reading the recorded epochs again as they were read."""

    epoch: int
    positions: Positions
    records: Mapping[int, Positions]
    ticked: int
    final: bool  #: whether there is no more input after `ticked`


class FromCommits(NamedTuple):
    """Begin as a sink: after the last epoch that its store has committed, at least after `epoch`."""

    epoch: int


class FromCut(NamedTuple):
    """Begin with what the cut that this run began from has in storage."""

    epoch: int


class StartInstance(NamedTuple):
    identity: Incarnation
    origin: FromNothing | FromBackup | FromLog | FromCommits | FromCut
    trimmed: int


class StopInstance(NamedTuple):
    identity: Incarnation


class ViewChanged(NamedTuple):
    """A later view, and what the node starts under it: both at once, so that no peer knows an instance too early."""

    view: View
    starts: tuple[StartInstance, ...] = ()


class Tick(NamedTuple):
    """Opens an epoch at a source; after the final one there is no more input."""

    source: Incarnation
    epoch: int
    final: bool
    committed: int = 0  #: all sinks have committed this epoch: so far the query has come

    @property
    def addressee(self) -> Incarnation:
        return self.source


class Logged(NamedTuple):
    """The source log has an epoch's offsets: its data may leave the source."""

    source: Incarnation
    epoch: int

    @property
    def addressee(self) -> Incarnation:
        return self.source


class Trim(NamedTuple):
    """No receiver of the instance can need anything up to `epoch` again, nor the output of so many epochs more.

    These differ while the new owners of slots that have left it may need their state.
    """

    instance: Incarnation
    epoch: int
    ahead: int = 0

    @property
    def addressee(self) -> Incarnation:
        return self.instance


class TakeCheckpoint(NamedTuple):
    instance: Incarnation

    @property
    def addressee(self) -> Incarnation:
        return self.instance


class WarmUp(NamedTuple):
    """Fetch the last backup of slots that will arrive from `origin` by handover, so that only changes must be sent."""

    target: Incarnation
    origin: InstanceId
    slots: SlotSet
    first: int  #: the epoch of the handover
    holder: str

    @property
    def addressee(self) -> Incarnation:
        return self.target


class BackupCounted(NamedTuple):
    """The manager has recorded a backup: the instance is safe up to its epoch."""

    owner: Incarnation
    epoch: int
    holders: tuple[str, ...]

    @property
    def addressee(self) -> Incarnation:
        return self.owner


class DeleteBackup(NamedTuple):
    owner: InstanceId
    up_to: tuple[int, int]


class PartitionBackup(NamedTuple):
    plan: int
    owner: InstanceId
    parts: Mapping[InstanceId, SlotSet]


class AdoptParts(NamedTuple):
    """The split is effective: its parts are the new owners' first backups, and nobody before them may store."""

    plan: int
    owners: tuple[Incarnation, ...]


class DropParts(NamedTuple):
    plan: int


class FindBackup(NamedTuple):
    """Is there a backup that was stored but not recorded? The owner is gone: what it sends from now on is refused."""

    owner: Incarnation


class NodeFenced(NamedTuple):
    """To a node that was given up: stop everything, others have taken over."""


# -- letters: node to manager -----------------------------------------------------------------------------------------


class ViewAcknowledged(NamedTuple):
    version: int


class OffsetsRead(NamedTuple):
    source: Incarnation
    epoch: int
    positions: Positions  #: after the epoch, for every slot that the source owns
    exhausted: bool


class Restored(NamedTuple):
    instance: Incarnation
    epoch: int
    holder: str
    part: int | None
    stood: bool = False  #: whether its state stood ready


class RestoreFailed(NamedTuple):
    instance: Incarnation


class BackupStored(NamedTuple):
    """A holder has a backup, which counts when all holders of the chain have it."""

    owner: Incarnation
    epoch: int
    order: tuple[int, int]
    chain: tuple[str, ...] = ()  #: the sender alone, if it is empty


class BackupFound(NamedTuple):
    """The answer to FindBackup."""

    owner: Incarnation
    epoch: int | None
    order: tuple[int, int]


class Persisted(NamedTuple):
    """The state of an instance after the epoch of a cut is in storage."""

    owner: Incarnation
    cut: int
    part: CutPart


class PersistFailed(NamedTuple):
    owner: Incarnation
    cut: int
    why: str


class Partitioned(NamedTuple):
    plan: int
    epoch: int | None  #: of the backup that was cut; None if there was none


class Committed(NamedTuple):
    sink: Incarnation
    epoch: int


#: What is for one instance of a node; `addressee` says for which.
InstanceMessage = (
    Data
    | StateMoved
    | Attach
    | BackupRefused
    | Retrieved
    | Tick
    | Logged
    | Trim
    | TakeCheckpoint
    | WarmUp
    | BackupCounted
)
