"""The messages between machines.

*Stream* messages carry rows between instances. They may be lost with a link, because the sender's outbox sends them
again on request. All others arrive once, as long as both processes live: *letters* in order, by the courier; messages
that carry state on the bulk lane beside the letters (`bulk.py` says which these are, and which keep their order).
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
#: A source's position per slot; only the source knows its meaning.
Positions = Mapping[int, Any]


# -- streams: instance to instance ------------------------------------------------------------------------------------


class Data(NamedTuple):
    """The rows of one epoch from a sender to a receiver: the epoch's only and final message between the two."""

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
    """The state of slots that change owners, as it was before `epoch`; with a `base`, only the changes since then."""

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
    """A receiver's request to a sender for all epochs from one on, for replay, recovery and reconnection alike."""

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
    """A checkpoint for a holder to keep and to pass on to the next holder of the chain, if there is one."""

    checkpoint: Checkpoint
    chain: tuple[str, ...] = ()


class NeedsBackup(NamedTuple):
    """A request to the holder before in the chain to send the whole backup, because the base of a delta is missing."""

    owner: InstanceId
    chain: tuple[str, ...]


class BackupRefused(NamedTuple):
    owner: Incarnation
    epoch: int
    why: StoreOutcome
    has: int | None = None  #: the epoch of the holder's backup

    @property
    def addressee(self) -> Incarnation:
        return self.owner


class Retrieve(NamedTuple):
    """A request to a holder for the backup of `owner` or, while a split is prepared, for one part of it."""

    asker: Incarnation
    owner: InstanceId
    part: int | None = None  #: the plan of the split whose part is requested
    warm_up: WarmUp | None = None  #: set if the asker does not replace the owner, but will get some of its slots


class Retrieved(NamedTuple):
    asker: Incarnation
    owner: InstanceId
    checkpoint: Checkpoint | None
    warm_up: WarmUp | None
    #: whether the state is not in the checkpoint's chunks, but stands ready on this node, in `HandedStates`
    stands: bool = False

    @property
    def addressee(self) -> Incarnation:
        return self.asker


class StandBy(NamedTuple):
    """A letter of a holder to itself: prepares the state of a backup when no more urgent work is left."""

    owner: InstanceId


# -- letters: manager to node -----------------------------------------------------------------------------------------


class FromNothing(NamedTuple):
    """A beginning without state after an epoch: of a new instance, or of a stateless one that replay alone restores."""

    epoch: int


class FromBackup(NamedTuple):
    """A beginning from the backup at a holder. With a `part`, the instance waits for the view of the split."""

    holder: str
    part: int | None = None
    others: tuple[str, ...] = ()  #: other holders that have the backup of `epoch`
    epoch: int = 0


class FromLog(NamedTuple):
    """A source's beginning: at the positions after `epoch`, reading the recorded epochs again exactly as recorded."""

    epoch: int
    positions: Positions
    records: Mapping[int, Positions]
    ticked: int
    final: bool  #: whether there is no more input after `ticked`


class FromCommits(NamedTuple):
    """A sink's beginning: after the last epoch that its store has committed, at least after `epoch`."""

    epoch: int


class FromCut(NamedTuple):
    """A beginning from the state in storage of the cut from which this run continues."""

    epoch: int


class StartInstance(NamedTuple):
    identity: Incarnation
    origin: FromNothing | FromBackup | FromLog | FromCommits | FromCut
    trimmed: int


class StopInstance(NamedTuple):
    identity: Incarnation


class ViewChanged(NamedTuple):
    """A later view with the instances that the node starts under it, so that no peer knows them too early."""

    view: View
    starts: tuple[StartInstance, ...] = ()


class Tick(NamedTuple):
    """Opens an epoch at a source; after the final one there is no more input."""

    source: Incarnation
    epoch: int
    final: bool
    committed: int = 0  #: the last epoch that all sinks have committed

    @property
    def addressee(self) -> Incarnation:
        return self.source


class Logged(NamedTuple):
    """The source log has recorded an epoch's positions: the epoch's rows may leave the source."""

    source: Incarnation
    epoch: int

    @property
    def addressee(self) -> Incarnation:
        return self.source


class Trim(NamedTuple):
    """No receiver needs anything of the instance up to `epoch` again, nor the output of `ahead` more epochs.

    The two differ while the new owners of slots that have left the instance may need their state.
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
    """A request to fetch the last backup of slots that `origin` will hand over, so that it sends only later changes."""

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
    """The split is effective: its parts are the new owners' first backups, and earlier owners may not store more."""

    plan: int
    owners: tuple[Incarnation, ...]


class DropParts(NamedTuple):
    plan: int


class FindBackup(NamedTuple):
    """A request for a backup that was stored but not recorded. The owner is lost: its later messages are refused."""

    owner: Incarnation


class NodeFenced(NamedTuple):
    """Tells a node that was given up to stop everything, because others have replaced it."""


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
    chain: tuple[str, ...] = ()  #: the holders of the chain; empty if the sender is the only one


class BackupFound(NamedTuple):
    """The answer to `FindBackup`."""

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
    epoch: int | None  #: the epoch of the backup that was divided; None if there was none


class Committed(NamedTuple):
    sink: Incarnation
    epoch: int


#: The messages to one instance of a node; `addressee` says which.
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
