"""Cutting: announces cuts of the whole query, collects their parts, and completes or abandons them."""

from __future__ import annotations

from primitives.graph import InstanceId, Kind
from seep.protocol.cuts import Cut, CutAbandoned, CutComplete, CutUnderWay
from seep.protocol.manager.state import ManagerState
from seep.protocol.messages import OffsetsRead, Persisted, PersistFailed


class Cutting:
    """Makes cuts one after another; each builds on the last complete one, up to a number of cuts in a row."""

    def __init__(self, state: ManagerState) -> None:
        self._state = state
        graph = state.graph
        self._with_parts = [o for o in graph.order if graph.kind(o) is Kind.STATEFUL or graph.operators[o].keeps_extra]
        #: the cut that was announced last, and the one that is not complete yet
        self.announced: Cut | None = None
        self.underway: CutUnderWay | None = None
        self._complete: Cut | None = None
        #: the number of cuts in a row that build on one another
        self._chained = 0

    @property
    def complete_epoch(self) -> int | None:
        """The epoch of the last complete cut of this run."""
        return self._complete.epoch if self._complete else None

    # -- a cut begins -------------------------------------------------------------------------------------------------

    def announce(self, number: int | None, full: bool | None, only: str | None) -> Cut:
        """Begins a cut a few epochs ahead, which the next view announces; see `Manager.persist` for the arguments."""
        state = self._state
        if full is None:
            full = self._chained >= state.settings.cut_chain
        number = number or 1 + (self.announced.id if self.announced else 0)
        epoch = state.ticked + 1 + state.settings.lead
        self.announced = Cut(number, epoch, None if full else self.complete_epoch, only)
        self.underway = CutUnderWay(self.announced, state.version + 1)
        return self.announced

    def seal(self) -> None:
        """Lets the epoch of the cut be opened once every live node knows the view that announces it."""
        if self.underway is not None and self._state.roster.is_known_to_all(self.underway.version):
            self.underway.sealed = True

    def holds_back(self, epoch: int) -> bool:
        """Returns whether an epoch may not be opened yet, because some node may not know that it is cut."""
        return self.underway is not None and not self.underway.sealed and self.underway.cut.epoch <= epoch

    # -- parts of a cut -----------------------------------------------------------------------------------------------

    def on_offsets_read(self, message: OffsetsRead) -> None:
        """Records the positions of a source after the epoch of the cut."""
        if self.underway is not None and message.epoch == self.underway.cut.epoch:
            operator = message.source.instance.operator
            self.underway.positions.setdefault(operator, {}).update(message.positions)

    def takes(self, message: Persisted) -> bool:
        """Takes a valid part, unless an earlier incarnation wrote the same; returns whether it is valid."""
        owner, underway = message.owner.instance, self.underway
        if underway is None or message.cut != underway.cut.id:
            return False
        if message.part.slots != self._state.topology.slots(owner, underway.cut.epoch):
            return False
        underway.parts.setdefault(owner, message.part)
        return True

    def is_owed_by(self, instance: InstanceId) -> bool:
        """Returns whether the instance still has to write its part."""
        return self.underway is not None and instance in self._missing(self.underway)

    def waits_for(self) -> str | None:
        """Describes the missing parts of the cut under way; None if there is no cut."""
        if self.underway is None:
            return None
        missing = ", ".join(map(str, self._missing(self.underway)))
        what = f"the state of {missing}" if missing else "the sinks to commit it"
        return f"the cut after epoch {self.underway.cut.epoch} waits for {what}"

    def _missing(self, underway: CutUnderWay) -> list[InstanceId]:
        """Returns the instances whose parts the cut still needs."""
        epoch, only = underway.cut.epoch, underway.cut.only
        operators = self._with_parts if only is None else (only,)
        wanted = (i for o in operators for i in self._state.topology.instances(o, epoch))
        return [i for i in wanted if i not in underway.parts]

    # -- a cut ends ---------------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Ends the cut, whose epoch the sinks have committed, if all parts have arrived."""
        underway = self.underway
        if underway is None or self._missing(underway):
            return
        self.underway = None
        if underway.cut.only is None:
            self._complete = underway.cut
            self._chained = 0 if underway.cut.base is None else self._chained + 1
        self._state.effects.append(CutComplete(underway.cut, underway.positions, underway.parts))

    def abandon(self, why: str) -> None:
        """Ends the cut, if one is under way, without completing it."""
        state, underway = self._state, self.underway
        if underway is None:
            return
        self.underway = None
        state.effects.append(CutAbandoned(underway.cut, why))
        if state.settings.last_cut and state.ticked < (state.final or 0):
            state.final = None  # the final epoch is not open yet; the next last cut sets it again

    def on_persist_failed(self, message: PersistFailed) -> None:
        if self.underway is not None and message.cut == self.underway.cut.id:
            self.abandon(f"{message.owner}: {message.why}")

    def on_restored(self, instance: InstanceId, epoch: int) -> None:
        """Abandons the cut if an instance continues after its epoch without having written its part."""
        if self.underway is not None and epoch >= self.underway.cut.epoch and self.is_owed_by(instance):
            self.abandon(f"{instance} was restored at epoch {epoch}, after the cut")

    def on_split(self, origin: InstanceId, epoch: int) -> None:
        """Abandons the cut if a split amends the topology from `epoch` on: parts of later epochs become invalid."""
        if self.underway is not None and (epoch < self.underway.cut.epoch or self.is_owed_by(origin)):
            self.abandon(f"{origin} was split, which changes who owns what since epoch {epoch}")
