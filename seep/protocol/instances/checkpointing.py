"""The checkpoints of a stateful instance: when it takes one, on which base, and which holders keep it."""

from __future__ import annotations

from dataclasses import dataclass

from primitives.backup import StoreOutcome, choose_backup_holder
from primitives.graph import InstanceId
from seep.protocol.view import STORAGE, View


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """The conditions under which a checkpoint is due, any one of which suffices; and how holders keep it."""

    every: int = 100  #: epochs
    changed: int | None = None  #: entries of state changed since the last one
    credits: int = 1  #: checkpoints that may be on their way to their holders at the same time
    apart: int = 0  #: epochs that must pass after a checkpoint before plans that wait for one can cause the next
    stands: bool = False  #: whether holders also keep the restored state ready, for a successor on their own node


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup at its holders."""

    holders: tuple[str, ...]
    epoch: int


class Checkpointing:
    """The owner's side of backups: at most `credits` checkpoints are under way, each a delta of the one before.

    The owner sends them to the head of a chain of holders, which passes them on. A holder without the base of a delta
    asks the holder before it in the chain; only for the head, the owner has to send everything. So if the owner was
    restored from a backup on its own node, that node heads the chain until others have the backup: the owner need not
    copy its state.
    """

    def __init__(
        self, owner: InstanceId, node: str, settings: CheckpointSettings, counted: Copy | None, epoch: int
    ) -> None:
        self._owner = owner
        self._node = node
        self._settings = settings
        #: the last epoch that a checkpoint was taken at
        self._last = epoch
        #: the newest backup that the manager has recorded, at its holders that still live
        self.counted = counted
        #: backups that were sent and are not recorded yet; oldest first
        self.under_way: list[Copy] = []
        #: (head of the chain, epoch that the head will have when everything sent has arrived)
        self._sent: tuple[str, int] | None = None
        self.wanted = False
        #: whether a plan waits for a checkpoint to be complete, or the last backup is only on the owner's node
        self.owed = False
        self._group: tuple[str, ...] = ()
        self.serial = 0

    @property
    def holders(self) -> tuple[str, ...]:
        """The chain of holders for the next checkpoint."""
        return (self._node, *self._group) if self._is_bridged else self._group

    @property
    def _is_bridged(self) -> bool:
        """Whether this node has the backup, and the head of the group does not."""
        has = self.counted.holders if self.counted else ()
        return bool(self._group) and self._node in has and self._group[0] not in has

    def on_view(self, view: View) -> None:
        """Chooses the holders again; requests a checkpoint if an old holder is lost or a new one lacks the backup."""
        self._group = self._chosen(view)
        live = view.nodes | {STORAGE}
        if not live.issuperset(holder for copy in self.under_way for holder in copy.holders):
            self.under_way = []
            self.wanted = True
        if self.counted:
            left = tuple(holder for holder in self.counted.holders if holder in live)
            self.counted = Copy(left, self.counted.epoch) if left else None
            if self._is_bridged:
                self.owed = True  # not `wanted`, because lost backups must be replaced first
            else:
                self.wanted |= self.counted is None or set(left) != set(self.holders)

    def _chosen(self, view: View) -> tuple[str, ...]:
        """Returns the group that the manager has set; otherwise one node, chosen by hash among the nodes upstream."""
        others = sorted(view.nodes - view.leaving) or sorted(view.nodes)
        group = view.groups.get(self._owner, ())
        if chain := tuple(node for node in group if node == STORAGE or (node in others and node != self._node)):
            return chain
        upstream = view.topology.graph.upstream[self._owner.operator]
        hosts = [seat.node for instance, seat in view.placement.items() if instance.operator in upstream]
        nodes = [node for node in hosts if node in view.nodes - view.leaving]
        holder = choose_backup_holder(self._owner, self._node, nodes, others, view.vms)
        return () if holder is None else (holder,)

    def is_due(self, epoch: int, changed: int) -> bool:
        if len(self.under_way) >= self._settings.credits or not self.holders:
            return False
        if self._is_kept(epoch):
            self.wanted = False
        limit, passed = self._settings.changed, epoch - self._last
        is_late = passed >= self._settings.every or (self.owed and passed >= self._settings.apart)
        return self.wanted or is_late or (limit is not None and changed >= limit)

    def _is_kept(self, epoch: int) -> bool:
        """Returns whether a backup of this epoch is at all holders, or on its way to them."""
        newest = self.under_way[-1] if self.under_way else self.counted
        return newest is not None and newest.epoch == epoch and set(newest.holders) >= set(self.holders)

    @property
    def base(self) -> int | None:
        """The epoch of a possible base of the next checkpoint: one that the head of the chain has."""
        if self._sent and self.holders and self._sent[0] == self.holders[0]:
            return self._sent[1]
        return self.counted.epoch if self.counted and self.holders and self.holders[0] in self.counted.holders else None

    def taken(self, epoch: int) -> None:
        self.under_way.append(Copy(self.holders, epoch))
        self._sent = (self.holders[0], epoch)
        self._last = epoch
        self.wanted = self.owed = False
        self.serial += 1

    def on_counted(self, copy: Copy) -> bool:
        """Notes that the manager has recorded a backup; returns whether it was under way."""
        for at, sent in enumerate(self.under_way):
            if sent.epoch == copy.epoch and set(copy.holders) <= set(sent.holders):
                del self.under_way[: at + 1]
                self.counted = copy
                return True
        return False

    def on_refused(self, epoch: int, why: StoreOutcome, has: int | None = None) -> None:
        """Notes that the head lacks the base: the next checkpoint has the changes since `has`, or everything."""
        if why is StoreOutcome.NEEDS_FULL and any(copy.epoch == epoch for copy in self.under_way):
            self.under_way = []
            self._sent = None if has is None else (self.holders[0], has)
            if has is None:
                self.counted = None
            self.wanted = True
