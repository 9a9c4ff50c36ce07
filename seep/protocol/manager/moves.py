"""Moves: hand slots over from live instances to others at an epoch a little ahead (plan kind 1)."""

from __future__ import annotations

from collections.abc import Mapping

from primitives.graph import InstanceId
from primitives.partition import partition_routing_state
from primitives.slots import SlotSet
from primitives.topology import Arrival
from seep.protocol.events import MoveAnnounced, MoveComplete, MoveEffective, MoveSealed
from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.placer import Placer
from seep.protocol.manager.plans import Accepted, Move, Refusal, Refused, overlap, union_of
from seep.protocol.manager.state import ManagerState, QueryPhase
from seep.protocol.messages import WarmUp


class Moves:
    """The moves. One is announced, sealed once every live node knows it, effective at its epoch, and then complete."""

    def __init__(self, state: ManagerState, registry: BackupRegistry, placer: Placer) -> None:
        self._state, self._registry, self._placer = state, registry, placer
        self._moves = state.plans.moves

    def soonest(self, operator: str) -> int:
        """Returns the first epoch at which a move of the operator can be effective if it is announced now."""
        state = self._state
        return max(state.ticked + 1 + state.settings.lead, state.topology.history[operator][-1].first + 1)

    # -- announced ----------------------------------------------------------------------------------------------------

    def move(
        self, operator: str, parts: Mapping[int, SlotSet], first: int | None, prepare: bool, vertical: bool
    ) -> Accepted | Refused:
        """Announces a move, or returns why it is refused; see `Manager.move`."""
        why = self._objection(operator, parts)
        if why is None and first is not None and first < self.soonest(operator):
            why = Refusal.TOO_SOON
        if why is not None:
            return Refused(why)
        return self._announce(operator, parts, self.soonest(operator) if first is None else first, prepare, vertical)

    def _objection(self, operator: str, parts: Mapping[int, SlotSet]) -> Refusal | None:
        state = self._state
        if state.phase is not QueryPhase.RUNNING:
            return Refusal.NOT_RUNNING
        if operator not in state.graph.operators or not self._exist(operator, parts):
            return Refusal.UNKNOWN
        if overlap(parts):
            return Refusal.OVERLAP
        if not state.roster.nodes:
            return Refusal.NO_NODE
        if state.ending:
            return Refusal.ENDING
        return self._conflict(operator, parts) or self._emptied_or_nothing(operator, parts)

    def _exist(self, operator: str, parts: Mapping[int, SlotSet]) -> bool:
        everything = SlotSet.full(self._state.graph.operators[operator].slot_bits)
        return all(index >= 0 and slots <= everything for index, slots in parts.items())

    def _conflict(self, operator: str, parts: Mapping[int, SlotSet]) -> Refusal | None:
        """Checks for open plans: a slot cannot move again before its move is complete, nor any slot during a split."""
        plans = self._state.plans
        on_their_way = union_of(move.slots for move in plans.moves_of(operator))
        is_free = not plans.splits_operator(operator) and on_their_way.isdisjoint(union_of(parts.values()))
        return None if is_free else Refusal.BUSY

    def _emptied_or_nothing(self, operator: str, parts: Mapping[int, SlotSet]) -> Refusal | None:
        latest, roster = self._state.topology.history[operator][-1].assignment, self._state.roster
        if any(index not in latest.parts and roster.was_born(InstanceId(operator, index)) for index in parts):
            return Refusal.EMPTIED
        return None if latest.moved(parts) != latest else Refusal.NOTHING

    def _announce(
        self, operator: str, parts: Mapping[int, SlotSet], first: int, prepare: bool, vertical: bool
    ) -> Accepted:
        state = self._state
        before = state.topology.history[operator][-1].assignment
        state.topology = partition_routing_state(state.topology, operator, parts, first, Arrival.HANDOVER)
        after = state.topology.at(operator, first)
        concerned = [i for i in after.parts if before.slots_of(i) != after.slots_of(i)]
        for index in concerned:
            if index not in before.parts:
                self._start_new(InstanceId(operator, index), first, vertical)
        self._placer.publish_view()
        plan = state.plans.next_number()
        slots = union_of(slots - before.slots_of(i) for i, slots in parts.items())
        instances = tuple(InstanceId(operator, i) for i in concerned)
        self._moves[plan] = Move(plan, operator, first, state.version, slots, instances)
        if prepare and state.settings.warm_up:
            self._warm_up(instances, first)
        state.effects.append(
            MoveAnnounced(
                operator=operator, plan=plan, first=first, slots=len(slots), view=state.version, instances=instances
            )
        )
        return Accepted(plan)

    def _start_new(self, instance: InstanceId, first: int, vertical: bool) -> None:
        """Starts an instance that has no slots before epoch `first`."""
        self._placer.register_new(instance, first - 1)
        origins = self._state.topology.arrivals(instance, first)
        replicas = {holder for origin in origins for holder in self._registry.holders(origin)}
        idle = self._state.roster.nodes.keys() - self._placer.used_nodes() if vertical else ()
        node = self._placer.pick_node(avoid=idle, near=replicas, first=vertical)
        self._placer.start(instance, node, self._placer.origin(instance))

    def _warm_up(self, targets: tuple[InstanceId, ...], first: int) -> None:
        """Asks the new owners to fetch the last backup of their slots, so that less state is handed over."""
        state = self._state
        for target in targets:
            for origin, slots in state.topology.arrivals(target, first).items():
                copy = self._registry.recorded.get(origin)
                if copy is not None and state.roster.is_live(target):
                    holder = copy.nearest(state.roster.placement[target].node, target.index)
                    state.post_to_instance(WarmUp(state.roster.incarnation(target), origin, slots, first, holder))

    # -- sealed, effective, complete ----------------------------------------------------------------------------------

    def holds_back(self, epoch: int) -> bool:
        """Returns whether an epoch may not be opened yet, because a node may not know a move that is then effective."""
        return any(not move.sealed and move.first <= epoch for move in self._moves.values())

    def seal(self) -> None:
        """Seals moves once every live node knows them and the last loss, so none accepts data of a node without them.

        Other views may still be on their way: otherwise unused VMs that come and go would delay every move.
        """
        state = self._state
        for move in [move for move in self._moves.values() if not move.sealed]:
            if state.roster.is_known_to_all(max(move.version, state.roster.loss_told)):
                move.sealed = True
                state.effects.append(MoveSealed(operator=move.operator, plan=move.plan, view=state.version))

    def take_effect(self, epoch: int) -> None:
        """Reports the moves that are effective from an epoch on, which was opened."""
        for move in self._moves.values():
            if move.first == epoch:
                self._state.effects.append(MoveEffective(operator=move.operator, plan=move.plan, first=move.first))

    def complete(self) -> None:
        """Ends the moves of which both sides are safe beyond the handover: none of its state can be requested again."""
        for move in [m for m in self._moves.values() if m.sealed and self._is_complete(m)]:
            del self._moves[move.plan]
            self._state.effects.append(MoveComplete(operator=move.operator, plan=move.plan))

    def _is_complete(self, move: Move) -> bool:
        # instances without a place own no slots any more, and all their output is safe
        there = (i for i in move.concerned if i in self._state.roster.placement)
        return self._state.ticked >= move.first and all(self._state.safe.of(i) >= move.first for i in there)
