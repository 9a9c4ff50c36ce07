"""Cutting, as the manager does it: it announces a cut, collects what belongs to it, and completes or abandons it."""

from __future__ import annotations

from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.topology import Topology
from seep.protocol.cuts import Cut, CutAbandoned, CutComplete, CutUnderWay
from seep.protocol.messages import OffsetsRead, Persisted, PersistFailed


class Cutting:
    """Cuts one after another, at most one under way; each builds on the last complete one, up to `chain` in a row."""

    def __init__(self, graph: QueryGraph, chain: int) -> None:
        self._with_parts = [o for o in graph.order if graph.kind(o) is Kind.STATEFUL or graph.operators[o].keeps_extra]
        self._longest = chain
        #: the cut that was announced last, and the one that is not complete yet
        self.announced: Cut | None = None
        self.underway: CutUnderWay | None = None
        self._complete: Cut | None = None
        #: how many cuts build on one another by now
        self._chained = 0

    @property
    def complete_epoch(self) -> int | None:
        """The epoch of the last complete cut of this run."""
        return self._complete.epoch if self._complete else None

    # -- a cut begins -------------------------------------------------------------------------------------------------

    def announce(self, epoch: int, version: int, number: int | None, full: bool | None, only: str | None) -> Cut:
        """Begins a cut after `epoch`, which the view of that version tells; see `ManagerCore.persist` for the rest."""
        if full is None:
            full = self._chained >= self._longest
        number = number or 1 + (self.announced.id if self.announced else 0)
        self.announced = Cut(number, epoch, None if full else self.complete_epoch, only)
        self.underway = CutUnderWay(self.announced, version)
        return self.announced

    def view_acknowledged(self, version: int) -> None:
        """Every live node knows the view of this version; if that tells the cut, it is sealed."""
        if self.underway is not None and version >= self.underway.version:
            self.underway.sealed = True

    def holds_back(self, epoch: int) -> bool:
        """Whether the epoch may not be opened yet, as some node may not know that it is cut."""
        return self.underway is not None and not self.underway.sealed and self.underway.cut.epoch <= epoch

    # -- what belongs to it -------------------------------------------------------------------------------------------

    def offsets_read(self, message: OffsetsRead) -> None:
        """Keeps where a source was after the epoch of the cut."""
        if self.underway is not None and message.epoch == self.underway.cut.epoch:
            operator = message.source.instance.operator
            self.underway.positions.setdefault(operator, {}).update(message.positions)

    def persisted(self, message: Persisted, topology: Topology) -> bool:
        """Takes a part, if it is one, of the first incarnation that told: after an epoch, slots have only one state."""
        owner, underway = message.owner.instance, self.underway
        if underway is None or message.cut != underway.cut.id:
            return False
        if message.part.slots != topology.slots(owner, underway.cut.epoch):
            return False
        underway.parts.setdefault(owner, message.part)
        return True

    def is_owed_by(self, instance: InstanceId, topology: Topology) -> bool:
        """Whether the instance has still to write its part."""
        underway = self.underway
        return underway is not None and instance in self._wanted(underway, topology) and instance not in underway.parts

    def waits_for(self, topology: Topology) -> str | None:
        """What the cut under way still lacks, in words; None if there is none."""
        if self.underway is None:
            return None
        wanted = self._wanted(self.underway, topology)
        missing = ", ".join(str(instance) for instance in wanted if instance not in self.underway.parts)
        what = f"the state of {missing}" if missing else "the sinks to commit it"
        return f"the cut after epoch {self.underway.cut.epoch} waits for {what}"

    def _wanted(self, underway: CutUnderWay, topology: Topology) -> list[InstanceId]:
        """Those that a cut has to have a part of."""
        epoch, only = underway.cut.epoch, underway.cut.only
        operators = self._with_parts if only is None else (only,)
        return [i for o in operators for i in topology.instances(o, epoch)]

    # -- a cut ends ---------------------------------------------------------------------------------------------------

    def complete(self, topology: Topology) -> CutComplete | None:
        """Ends the cut, of which the sinks have committed the epoch, if all parts are in."""
        underway = self.underway
        if underway is None or not all(instance in underway.parts for instance in self._wanted(underway, topology)):
            return None
        self.underway = None
        if underway.cut.only is None:
            self._complete = underway.cut
            self._chained = 0 if underway.cut.base is None else self._chained + 1
        return CutComplete(underway.cut, underway.positions, underway.parts)

    def abandon(self, why: str) -> CutAbandoned | None:
        """Ends the cut, if one is under way: it will never be complete."""
        underway, self.underway = self.underway, None
        return CutAbandoned(underway.cut, why) if underway is not None else None

    def persist_failed(self, message: PersistFailed) -> CutAbandoned | None:
        if self.underway is None or message.cut != self.underway.cut.id:
            return None
        return self.abandon(f"{message.owner}: {message.why}")

    def restored(self, instance: InstanceId, epoch: int, topology: Topology) -> CutAbandoned | None:
        """An instance goes on after an epoch that is not before the cut: what it has not written, it never will."""
        if self.underway is None or epoch < self.underway.cut.epoch or not self.is_owed_by(instance, topology):
            return None
        return self.abandon(f"{instance} was restored at epoch {epoch}, after the cut")

    def split(self, origin: InstanceId, epoch: int, topology: Topology) -> CutAbandoned | None:
        """The topology is about to be amended from `epoch` on: parts of later epochs are no longer what was wanted."""
        if self.underway is None or not (epoch < self.underway.cut.epoch or self.is_owed_by(origin, topology)):
            return None
        return self.abandon(f"{origin} was split, which changes who owns what since epoch {epoch}")
