"""Trimming: drops output that cannot be requested any more, and retires instances that are not needed."""

from __future__ import annotations

from primitives.graph import InstanceId, Kind
from seep.protocol.events import Retired
from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.placer import Placer
from seep.protocol.manager.recovery import Recovery
from seep.protocol.manager.state import ManagerState
from seep.protocol.messages import Trim


class Trimming:
    """Derives what to trim from the safe epochs alone."""

    def __init__(
        self, state: ManagerState, registry: BackupRegistry, placer: Placer, cuts: Cutting, recovery: Recovery
    ) -> None:
        self._state, self._registry, self._placer = state, registry, placer
        self._cuts, self._recovery = cuts, recovery

    def trim(self) -> None:
        """Tells every instance what it may drop, and stops instances that have nothing left to keep."""
        state = self._state
        trimmed = state.safe.advance(state.topology, state.roster.placement, state.ticked)
        for instance, (epoch, output) in trimmed.items():
            if state.graph.kind(instance.operator) is Kind.SOURCE:
                state.log.trim(instance, epoch)
            if state.roster.is_live(instance):
                state.post_to_instance(Trim(state.roster.incarnation(instance), epoch, output - epoch))
        for instance in self._emptied():
            if state.safe.is_done(state.topology, instance) and not self._cuts.is_owed_by(instance):
                self._retire(instance)

    def _emptied(self) -> list[InstanceId]:
        """Returns instances that own nothing in the latest version of their operator."""
        topology = self._state.topology
        changed = [o for o, history in topology.history.items() if len(history) > 1]
        placement = self._state.roster.placement
        return [i for i in placement if i.operator in changed and topology.last_epoch(i) is not None]

    def _retire(self, instance: InstanceId) -> None:
        """Stops and forgets an instance that owns nothing any more and cannot be asked for anything."""
        state = self._state
        state.safe.retire(instance)
        self._placer.stop(instance)
        state.roster.remove(instance)
        state.log.forget(instance)
        self._registry.retire(instance)
        self._recovery.wait_no_more(instance)
        state.view_is_old = True
        state.effects.append(Retired(subject=instance))
