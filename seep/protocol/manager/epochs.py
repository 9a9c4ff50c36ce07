"""Epochs: opens them by ticks, records the positions of sources after each, and ends the query after the final one."""

from __future__ import annotations

from primitives.graph import InstanceId, Kind
from seep.protocol.effects import Finished, LogOffsets
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.moves import Moves
from seep.protocol.manager.state import ManagerState, QueryPhase
from seep.protocol.messages import Committed, Logged, OffsetsRead, Persisted, Tick


class Epochs:
    """The epochs of the query. One is opened if the query keeps up, and no node may lack a plan or cut for it."""

    def __init__(self, state: ManagerState, cuts: Cutting, moves: Moves) -> None:
        self._state, self._cuts, self._moves = state, cuts, moves

    # -- opened -------------------------------------------------------------------------------------------------------

    def open_next(self) -> None:
        """Opens the next epoch at every source, if that is allowed."""
        state, committed = self._state, self.committed
        if not self._may_open(state.ticked + 1, committed):
            return
        state.ticked += 1
        for source in state.live_instances(Kind.SOURCE):
            is_final = state.ticked == state.final
            state.post_to_instance(Tick(state.roster.incarnation(source), state.ticked, is_final, committed))
        self._moves.take_effect(state.ticked)

    def _may_open(self, epoch: int, committed: int) -> bool:
        goes_on = self._state.final is None or epoch <= self._state.final
        is_held_back = self._cuts.holds_back(epoch) or self._moves.holds_back(epoch)
        return goes_on and not is_held_back and epoch - committed <= self._state.settings.window

    # -- read ---------------------------------------------------------------------------------------------------------

    def on_offsets_read(self, message: OffsetsRead) -> None:
        """Records a source's positions after an epoch; only then the epoch's rows may leave the source."""
        state, source = self._state, message.source.instance
        if not state.roster.is_current(message.source):
            return
        state.log.record(source, message.epoch, message.positions, message.exhausted)
        state.effects.append(LogOffsets(source, message.epoch, message.positions))
        self._cuts.on_offsets_read(message)
        state.post_to_instance(Logged(message.source, message.epoch))
        if not state.ending and self._input_has_ended(message.epoch):
            self.end_input()

    def _input_has_ended(self, epoch: int) -> bool:
        graph, topology = self._state.graph, self._state.topology
        return self._state.log.ended(
            (i for o in graph.of_kind(Kind.SOURCE) for i in topology.instances(o, epoch)), epoch
        )

    def end_input(self) -> None:
        """Makes the next epoch the final one; or that of the last cut, if the query ends with one."""
        state = self._state
        state.ending = True
        if state.final is None and not state.settings.last_cut:
            state.final = state.ticked + 1

    # -- committed ----------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """The last epoch that all sinks have committed; 0 before the query is launched."""
        return min((self._state.safe.of(sink) for sink in self._sinks()), default=0)

    def on_committed(self, message: Committed) -> None:
        """Handles that a sink has committed an epoch."""
        if self._state.roster.is_current(message.sink):
            self._state.safe.kept(message.sink.instance, message.epoch)
            self._conclude()

    def on_persisted(self, message: Persisted) -> None:
        """Handles that the state of an instance is in storage."""
        if self._cuts.takes(message):
            self._conclude()

    def _conclude(self) -> None:
        """Completes the cut and ends the query, if the sinks have committed their epochs."""
        state, underway = self._state, self._cuts.underway
        if underway is not None and self._is_committed(underway.cut.epoch):
            self._cuts.complete()
        if state.final is not None and self._is_committed(state.final) and self._is_kept(state.final):
            state.phase = QueryPhase.FINISHED
            self._cuts.abandon("the query has ended")
            state.effects.append(Finished(state.final))

    def _is_kept(self, final: int) -> bool:
        """Returns whether the last cut is complete, if one is required."""
        return not self._state.settings.last_cut or self._cuts.complete_epoch == final

    def _is_committed(self, epoch: int) -> bool:
        return all(self._has_committed(sink, epoch) for sink in self._sinks())

    def _has_committed(self, sink: InstanceId, epoch: int) -> bool:
        """Returns whether a sink has committed an epoch, or the last one at which it owned slots."""
        last = self._state.topology.last_epoch(sink)
        return self._state.safe.of(sink) >= (epoch if last is None else min(last, epoch))

    def _sinks(self) -> list[InstanceId]:
        return [i for i in self._state.roster.placement if self._state.graph.kind(i.operator) is Kind.SINK]
