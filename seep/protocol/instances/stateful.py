"""A stateful instance: processes rows by key, and backs up its state so that another node can restore it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from primitives.checkpoint import Checkpoint, checkpoint_state
from primitives.errors import InternalError
from primitives.graph import Edge
from primitives.restore import restore_state, resume_state
from primitives.slots import SlotSet
from seep.protocol.cuts import Persist, Recall, Recalled
from seep.protocol.effects import Effect
from seep.protocol.instances.checkpointing import Checkpointing, CheckpointSettings, Copy
from seep.protocol.instances.instance import InstancePhase, Surroundings, Work
from seep.protocol.instances.keyed import KeyedInstance, Warm
from seep.protocol.logic import Logic, Piece
from seep.protocol.messages import (
    BackupCounted,
    BackupRefused,
    FromBackup,
    FromCut,
    FromNothing,
    Restored,
    RestoreFailed,
    Retrieve,
    Retrieved,
    StoreBackup,
    TakeCheckpoint,
    Trim,
    WarmUp,
)
from seep.protocol.view import MANAGER, STORAGE, Incarnation, View

Batch = TypeVar("Batch")


class StatefulInstance(KeyedInstance[Batch]):
    """An instance of an operator with state; it is safe up to its last recorded backup, from which it is restored."""

    def __init__(
        self, me: Incarnation, given: Surroundings[Batch], logic: Logic[Batch], settings: CheckpointSettings
    ) -> None:
        super().__init__(me, given, logic.state)
        self._logic = logic
        self._handed = given.handed
        self._settings = settings
        self._origin: FromBackup | None = None
        self._restored = SlotSet.empty()
        #: the epoch of the cut from which this instance begins, if it does
        self._recalled_epoch = 0
        self.checkpointing = Checkpointing(me.instance, given.node, settings, None, 0)
        self._handlers |= {
            Retrieved: self._on_retrieved,
            BackupCounted: self._on_backup_counted,
            BackupRefused: self._on_backup_refused,
            TakeCheckpoint: self._on_take_checkpoint,
            WarmUp: self._on_warm_up,
            Recalled: self._on_recalled,
        }

    @property
    def logic(self) -> Logic[Batch]:
        """The operator's logic; after a restore it may be one whose state stood ready."""
        return self._logic

    # -- beginning ----------------------------------------------------------------------------------------------------

    def start(self, origin: FromNothing | FromBackup | FromCut, trimmed: int = 0) -> list[Effect]:
        self._trimmed = trimmed
        match origin:
            case FromNothing(epoch):
                self._start_after(epoch)
            case FromCut(epoch):
                self._recalled_epoch = epoch
                self._effects.append(Recall(self.me, self.view.topology.slots(self.me.instance, epoch + 1)))
            case FromBackup():
                self._origin = origin
                self._post(origin.holder, Retrieve(self.me, self.me.instance, origin.part))
        return self._drain()

    def _start_after(self, epoch: int) -> None:
        self.state.mark(epoch)
        self.outbox.trim(self._trimmed)
        self._run(None, epoch)

    def _on_recalled(self, message: Recalled) -> None:
        if self.phase is InstancePhase.RESTORING:
            if message.chunks:  # a new operator of the query has none
                self.state.restore(message.chunks)
            self._start_after(self._recalled_epoch)

    def _on_retrieved(self, message: Retrieved) -> None:
        if message.warm_up is not None:
            self._warm_with(message.warm_up, message.checkpoint)
            return
        standing = self._handed.take(self.me)
        if self.phase is InstancePhase.RESTORING:
            if message.stands and standing is None:
                raise InternalError(f"the state that stands ready for {self.me} was not handed to it")
            self._restore(message.checkpoint, standing)

    def _restore(self, checkpoint: Checkpoint | None, standing: Logic[Batch] | None) -> None:
        assert self._origin is not None
        if checkpoint is None:
            self._fail_to_restore()
            return
        if standing is not None:
            self._logic = standing
            self._use(standing.state)
        bring_back = restore_state if standing is None else resume_state
        self.inbox.processed = bring_back(checkpoint, self.state, self.outbox)
        self._restored = checkpoint.slots
        self._post(
            MANAGER, Restored(self.me, checkpoint.epoch, self._origin.holder, self._origin.part, standing is not None)
        )
        self.phase = InstancePhase.STANDBY
        self._run_if_current()

    def _fail_to_restore(self) -> None:
        """Ends this incarnation, so that a late answer of a holder that was given up cannot start it again."""
        self._post(MANAGER, RestoreFailed(self.me))
        self.halt()

    def _run_if_current(self) -> None:
        """Runs unless it is a part of a split, which waits for the view that names it; others are in the view."""
        if self.view.is_current(self.me):
            assert self._origin is not None
            self.outbox.trim(self._trimmed)
            self._resume_departures(self._restored)
            others = self._origin.others if self.processed == self._origin.epoch else ()
            self._run(Copy((self._origin.holder, *others), self.processed), self.processed)

    def _run(self, counted: Copy | None, epoch: int) -> None:
        self.checkpointing = Checkpointing(self.me.instance, self.node, self._settings, counted, epoch)
        self.checkpointing.on_view(self.view)
        self._begin(epoch)
        self._checkpoint_if_due()

    # -- processing and checkpoints -----------------------------------------------------------------------------------

    def _compute(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        return self._logic.process(piece)

    def _close(self, work: Work[Batch]) -> None:
        super()._close(work)
        topology, me = self.view.topology, self.me.instance
        if topology.arrivals(me, work.epoch) or topology.departures(me, work.epoch):
            self.checkpointing.owed = True  # a plan is complete when both sides have backed up
        self._persist_if_cut(work.epoch)
        self._checkpoint_if_due()

    def _persist_if_cut(self, epoch: int) -> None:
        """Writes the state of all slots that it owned at the epoch of a cut, before any of them leaves."""
        cut = self.view.cut
        if cut is None or cut.epoch != epoch or cut.only not in (None, self.me.instance.operator):
            return
        slots = self.view.topology.slots(self.me.instance, epoch)
        base = cut.base if cut.only is None and cut.base in self.state.marks else None
        chunks = tuple(chunk.select(slots) for chunk in self.state.snapshot(slots, base))
        self.state.mark(epoch)
        self._effects.append(Persist(self.me, cut, slots, base, chunks))

    @property
    def _cuts(self) -> tuple[int, ...]:
        """The epochs of cuts on which a later cut may build, so that the changes since then must be known."""
        cut = self.view.cut
        return () if cut is None else (cut.epoch, *(() if cut.base is None else (cut.base,)))

    def _checkpoint_if_due(self) -> None:
        if self.checkpointing.owed and not self.view.topology.owns(self.me.instance, self.processed + 1):
            self.checkpointing.wanted = True  # there may be no later epoch
        if (
            self.phase is InstancePhase.RUNNING
            and self.work is None
            and self.checkpointing.is_due(self.processed, self._changed())
        ):
            self._take_checkpoint()

    def _changed(self) -> int:
        counted = self.checkpointing.counted
        return self._logic.changed(counted.epoch) if counted and self._settings.changed is not None else 0

    def _take_checkpoint(self) -> None:
        checkpoint = checkpoint_state(
            self.state,
            self.outbox,
            owner=self.me.instance,
            incarnation=self.me.number,
            serial=self.checkpointing.serial,
            epoch=self.processed,
            slots=self._slots_kept(),
            base=self.checkpointing.base,
        )
        self.checkpointing.taken(self.processed)
        chain = self.checkpointing.holders
        self._post(chain[0], StoreBackup(checkpoint, chain))

    def _on_take_checkpoint(self, _: TakeCheckpoint) -> None:
        self.checkpointing.wanted = True
        self._checkpoint_if_due()

    def _on_backup_counted(self, message: BackupCounted) -> None:
        if self.checkpointing.on_counted(Copy(message.holders, message.epoch)):
            self.state.release(min((message.epoch, *self.departures.pinned, *self._cuts)))
            self._checkpoint_if_due()

    def _on_backup_refused(self, message: BackupRefused) -> None:
        has = message.has if message.has in self.state.marks else None
        self.checkpointing.on_refused(message.epoch, message.why, has)
        self._checkpoint_if_due()

    # -- state fetched ahead ------------------------------------------------------------------------------------------

    def _on_warm_up(self, message: WarmUp) -> None:
        self._post(message.holder, Retrieve(self.me, message.origin, warm_up=message))

    def _warm_with(self, warm_up: WarmUp, checkpoint: Checkpoint | None) -> None:
        """Asks the origin only for changes since that backup, unless it may have sent everything already."""
        reached = self.work.epoch if self.work is not None else self.processed
        if checkpoint is not None and warm_up.first > reached and warm_up.origin in self._needs():
            is_free = warm_up.slots.isdisjoint(self._slots_kept())  # otherwise the present state is still needed
            if is_free:
                self.departures.returned(warm_up.slots)
            is_restored = is_free and self.state.restore_ahead(checkpoint.state)
            warm = Warm(checkpoint.epoch, () if is_restored else checkpoint.state)
            self._warm[warm_up.first, warm_up.origin] = warm
            self._ask(warm_up.origin, self._needs()[warm_up.origin])

    # -- views and trims ----------------------------------------------------------------------------------------------

    def _on_trim(self, message: Trim) -> None:
        if self.phase is InstancePhase.RUNNING:
            super()._on_trim(message)
        else:  # otherwise there is nothing to trim yet
            self._trimmed = message.epoch

    def _on_view(self, view: View) -> None:
        super()._on_view(view)
        if self.phase is InstancePhase.STANDBY:
            self._run_if_current()
        elif self.phase is InstancePhase.RESTORING:
            if self._origin is not None and self._origin.holder not in view.nodes | {STORAGE}:
                self._fail_to_restore()
        elif self.phase is InstancePhase.RUNNING:
            self.checkpointing.on_view(view)
            self._checkpoint_if_due()
