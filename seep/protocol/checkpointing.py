"""When a stateful instance takes a checkpoint, against which base, and who keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from primitives.backup import Stored, choose_backup_holder
from primitives.graph import InstanceId
from seep.protocol.view import View


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """What makes a checkpoint due; any one of the reasons suffices."""

    every: int = 100  #: epochs
    changed: int | None = None  #: entries of state changed since the last one


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup at a holder."""

    holder: str
    epoch: int


class Checkpointing:
    """The owner's side of backups: at most one checkpoint is under way; `counted` is what a delta can build on."""

    def __init__(
        self, owner: InstanceId, node: str, settings: CheckpointSettings, counted: Copy | None, epoch: int
    ) -> None:
        self._owner = owner
        self._node = node
        self._settings = settings
        #: the last epoch that a checkpoint was taken at
        self._last = epoch
        #: the newest backup that the manager has recorded, if its holder still lives
        self.counted = counted
        #: sent, not recorded yet
        self.under_way: Copy | None = None
        self.wanted = False
        self.holder: str | None = None
        self.serial = 0

    def on_view(self, view: View) -> None:
        """Chooses the holder anew; if the old one is gone or not the choice any more, a full backup is wanted."""
        upstream = view.topology.graph.upstream[self._owner.operator]
        nodes = [
            seat.node
            for instance, seat in view.placement.items()
            if instance.operator in upstream and seat.node in view.nodes - view.leaving
        ]
        others = sorted(view.nodes - view.leaving) or sorted(view.nodes)
        self.holder = choose_backup_holder(self._owner, self._node, nodes, others, view.vms)
        if self.under_way and self.under_way.holder not in view.nodes:
            self.under_way = None
            self.wanted = True
        if self.counted and self.counted.holder not in view.nodes:
            self.counted = None
            self.wanted = True
        if self.counted and self.counted.holder != self.holder:
            self.wanted = True

    def is_due(self, epoch: int, changed: int) -> bool:
        if self.under_way or self.holder is None:
            return False
        if self.base == epoch:
            self.wanted = False  # there is one of this very epoch, at the right place
        limit = self._settings.changed
        return self.wanted or epoch - self._last >= self._settings.every or (limit is not None and changed >= limit)

    @property
    def base(self) -> int | None:
        """The epoch that the next checkpoint can be a delta of."""
        return self.counted.epoch if self.counted and self.counted.holder == self.holder else None

    def taken(self, epoch: int) -> None:
        assert self.holder is not None
        self.under_way = Copy(self.holder, epoch)
        self._last = epoch
        self.wanted = False
        self.serial += 1

    def on_counted(self, copy: Copy) -> bool:
        """The manager has recorded a backup; says whether it is the one under way."""
        if self.under_way != copy:
            return False
        self.counted, self.under_way = copy, None
        return True

    def on_refused(self, epoch: int, why: Stored) -> None:
        """The holder lacks the base: send a full one."""
        if why is Stored.NEEDS_FULL and self.under_way and self.under_way.epoch == epoch:
            self.counted = self.under_way = None
            self.wanted = True
