"""The manager: makes plans and sees them through. One per query, in the driver.

A *move* is a handover at a future epoch (plan kind 1), a *split* amends the past from a backup (plan kind 3); recovery
by rebind (plan kind 2) is in `recovery.py`. The only rule that makes anyone wait: no tick before its plans are sealed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from primitives.errors import InternalError
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.partition import partition_routing_state
from primitives.slots import SlotSet, split_evenly
from primitives.topology import Arrival
from seep.protocol.cuts import Beginning
from seep.protocol.effects import Effect
from seep.protocol.events import (
    MoveAnnounced,
    MoveComplete,
    MoveEffective,
    MoveSealed,
    SplitAborted,
    SplitBegun,
    SplitEffective,
)
from seep.protocol.manager.core import Handler, ManagerSettings, QueryPhase
from seep.protocol.manager.invariants import broken_rules, broken_rules_of_view
from seep.protocol.manager.plans import Accepted, Move, Refusal, Refused, Split
from seep.protocol.manager.recovery import RecoveringManager
from seep.protocol.manager.replication import BackupCopy
from seep.protocol.messages import (
    AdoptParts,
    DropParts,
    FromBackup,
    PartitionBackup,
    Partitioned,
    Restored,
    RestoreFailed,
    StartInstance,
    StopInstance,
    ViewAcknowledged,
    WarmUp,
)
from seep.protocol.view import STORAGE


class Manager(RecoveringManager):
    """Scale out, scale in, migrate, balance, recover in parallel: each is a move or a split."""

    def __init__(
        self,
        graph: QueryGraph,
        parallelism: Mapping[str, int] | None = None,
        settings: ManagerSettings | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        super().__init__(graph, parallelism, settings, beginning)
        self.moves: dict[int, Move] = {}
        self.splits: dict[int, Split] = {}
        self._plans = 0
        self._validated = 0  #: the last view that `validate` has looked at

    def _letters(self) -> dict[type, Handler]:
        return super()._letters() | {Partitioned: self._on_partitioned}

    # -- moves: plan kind 1 -------------------------------------------------------------------------------------------

    def move(
        self,
        operator: str,
        parts: Mapping[int, SlotSet],
        first: int | None = None,
        *,
        prepare: bool = True,
        vertical: bool = False,
    ) -> tuple[Accepted | Refused, list[Effect]]:
        """Slots go to the given instances (by index; new ones are born) at an epoch a little ahead.

        Or at epoch `first`, so that it can be prepared. Later moves of the operator take effect after it. With
        `prepare`, the last backup is fetched ahead, where the settings allow it at all. If the move is `vertical`, new
        instances live on nodes that are in use, on those with a replica of their slots rather than on others.
        """
        why = self._objection_to_move(operator, parts) or self._objection_to_first(operator, first)
        return (Refused(why) if why else self._announce_move(operator, parts, first, prepare, vertical)), self._drain()

    def soonest(self, operator: str) -> int:
        """The epoch at which a move of the operator can be effective if it is announced now."""
        return max(self.ticked + 1 + self.settings.lead, self.topology.history[operator][-1].first + 1)

    def _objection_to_move(self, operator: str, parts: Mapping[int, SlotSet]) -> Refusal | None:
        if self.phase is not QueryPhase.RUNNING:
            return Refusal.NOT_RUNNING
        if operator not in self.graph.operators or not self._exist(operator, parts):
            return Refusal.UNKNOWN
        if _overlap(parts):
            return Refusal.OVERLAP
        if not self.nodes:
            return Refusal.NO_NODE
        if self.ending:
            return Refusal.ENDING
        return self._conflict(operator, parts) or self._emptied_or_nothing(operator, parts)

    def _exist(self, operator: str, parts: Mapping[int, SlotSet]) -> bool:
        everything = SlotSet.full(self.graph.operators[operator].slot_bits)
        return all(index >= 0 and slots <= everything for index, slots in parts.items())

    def _conflict(self, operator: str, parts: Mapping[int, SlotSet]) -> Refusal | None:
        """A slot on its way cannot be moved again before it has arrived for good, nor any while one is split."""
        if any(split.origin.operator == operator for split in self.splits.values()):
            return Refusal.BUSY
        underway = [move.slots for move in self.moves.values() if move.operator == operator]
        return (
            Refusal.BUSY if any(not slots.isdisjoint(busy) for slots in parts.values() for busy in underway) else None
        )

    def _emptied_or_nothing(self, operator: str, parts: Mapping[int, SlotSet]) -> Refusal | None:
        latest = self.topology.history[operator][-1].assignment
        if any(index not in latest.parts and self.roster.was_born(InstanceId(operator, index)) for index in parts):
            return Refusal.EMPTIED
        return None if latest.moved(parts) != latest else Refusal.NOTHING

    def _objection_to_first(self, operator: str, first: int | None) -> Refusal | None:
        return Refusal.TOO_SOON if first is not None and first < self.soonest(operator) else None

    def fresh_index(self, operator: str) -> int:
        """From this number on, no instance of the operator ever had one."""
        return self.roster.fresh_index(operator)

    def _announce_move(
        self, operator: str, parts: Mapping[int, SlotSet], first: int | None, prepare: bool, vertical: bool
    ) -> Accepted:
        before = self.topology.history[operator][-1]
        first = self.soonest(operator) if first is None else first
        self.topology = partition_routing_state(self.topology, operator, parts, first, Arrival.HANDOVER)
        after = self.topology.at(operator, first)
        concerned = [i for i in after.parts if before.assignment.slots_of(i) != after.slots_of(i)]
        for index in concerned:
            if index not in before.assignment.parts:
                self._bear_at(InstanceId(operator, index), first, vertical)
        self._plans += 1
        self._publish()
        moved = _union({i: slots - before.assignment.slots_of(i) for i, slots in parts.items()})
        move = Move(
            self._plans, operator, first, self.version, moved, tuple(InstanceId(operator, i) for i in concerned)
        )
        self.moves[move.plan] = move
        if prepare and self.settings.warm_up:
            self._warm_up(move.concerned, first)
        self._effects.append(
            MoveAnnounced(
                operator=operator,
                plan=move.plan,
                first=first,
                slots=len(moved),
                view=move.version,
                instances=move.concerned,
            )
        )
        return Accepted(self._plans)

    def _bear_at(self, instance: InstanceId, first: int, vertical: bool) -> None:
        self._bear(instance, first - 1)
        origins = self.topology.arrivals(instance, first)
        replicas = {holder for origin in origins for holder in self._holders(origin)}
        idle = self.nodes.keys() - self.used_nodes() if vertical else ()
        node = self._pick_node(avoid=idle, near=replicas, first=vertical)
        assert node is not None
        self._seat(instance, node, self._origin(instance))

    def _warm_up(self, targets: tuple[InstanceId, ...], first: int) -> None:
        """Has the new owners fetch the last backup of what they will get, so that little is left to be handed over."""
        for target in targets:
            for origin, slots in self.topology.arrivals(target, first).items():
                copy = self.backups.get(origin)
                if copy is not None and self.roster.is_live(target):
                    node = self.placement[target].node
                    holder = copy.nearest(node, target.index)
                    self._post(node, WarmUp(self.roster.incarnation(target), origin, slots, first, holder))

    def _may_tick(self) -> bool:
        return super()._may_tick() and all(move.sealed for move in self.moves.values() if move.first <= self.ticked + 1)

    def _on_view_acknowledged(self, node: str, message: ViewAcknowledged) -> None:
        super()._on_view_acknowledged(node, message)
        self._seal_moves()

    def _seal_moves(self) -> None:
        """Once every live node knows the plan, and the last loss: so it listens to nobody who may not know it.

        Other views may still be on their way: else VMs that come and go unused would hold up every move.
        """
        for move in [move for move in self.moves.values() if not move.sealed]:
            if self.roster.is_known_to_all(max(move.version, self._loss_told)):
                move.sealed = True
                self._effects.append(MoveSealed(operator=move.operator, plan=move.plan, view=self.version))

    def _tick(self) -> None:
        super()._tick()
        for move in self.moves.values():
            if move.first == self.ticked:
                self._effects.append(MoveEffective(operator=move.operator, plan=move.plan, first=move.first))

    def _trim_outboxes(self) -> None:
        super()._trim_outboxes()
        for move in [m for m in self.moves.values() if m.sealed and self._is_complete(m)]:
            del self.moves[move.plan]
            self._effects.append(MoveComplete(operator=move.operator, plan=move.plan))

    def _is_complete(self, move: Move) -> bool:
        """Both sides are safe beyond the handover, so nothing of it can be asked for again."""
        there = (i for i in move.concerned if i in self.placement)  # the others own nothing any more, and all is safe
        return self.ticked >= move.first and all(self.safe.of(i) >= move.first for i in there)

    # -- splits: plan kind 3 ------------------------------------------------------------------------------------------

    def split(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> tuple[Accepted | Refused, list[Effect]]:
        """Spreads the slots of a stateful instance over itself and new instances, from its backup (SEEP's Algorithm 3).

        A live origin works on until all parts are restored; then the topology is amended from the backup's epoch on.
        """
        why = self._objection_to_split(origin, parts)
        return (Refused(why) if why else self._prepare_split(origin, parts)), self._drain()

    def _objection_to_split(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> Refusal | None:
        if self.phase is not QueryPhase.RUNNING:
            return Refusal.NOT_RUNNING
        if origin not in self.placement:
            return Refusal.UNKNOWN
        if self.graph.kind(origin.operator) is not Kind.STATEFUL:
            return Refusal.NO_STATE
        return self._objection_to_parts(origin, parts) or self._objection_to_timing(origin)

    def _objection_to_parts(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> Refusal | None:
        owned = self.topology.history[origin.operator][-1].assignment.slots_of(origin.index)
        if not all(index >= 0 and slots <= owned for index, slots in parts.items()):
            return Refusal.UNKNOWN
        if _overlap(parts):
            return Refusal.OVERLAP
        if any(self.roster.was_born(InstanceId(origin.operator, index)) for index in parts):
            return Refusal.NOT_NEW
        if not any(parts.values()):
            return Refusal.NOTHING
        return Refusal.EVERYTHING if _union(parts) == owned else None

    def _objection_to_timing(self, origin: InstanceId) -> Refusal | None:
        """No other plan of the operator may be open, nor be effective after the backup."""
        if any(plan.operator == origin.operator for plan in self.moves.values()) or self._splitting(origin.operator):
            return Refusal.BUSY
        if self._is_kept_by_no_node(origin):
            return Refusal.NOT_ON_A_NODE
        if not self._holders(origin):
            return Refusal.NO_BACKUP
        is_too_old = self.topology.history[origin.operator][-1].first > self.safe.of(origin)
        return Refusal.OLD_BACKUP if is_too_old else None

    def has_backups_on_nodes(self, operator: str) -> bool:
        """Whether nodes keep the backups of an operator's instances, or will: only these can be split."""
        return not any(self._is_kept_by_no_node(i) for i in self.placement if i.operator == operator)

    def _is_kept_by_no_node(self, owner: InstanceId) -> bool:
        """Whether no node has, nor ever will have, its backups: by what is set for its operator."""
        holders = self._holders(owner) or self.replication.groups.get(owner, ())
        return owner.operator in self.settings.unkept or holders == (STORAGE,)

    def _splitting(self, operator: str) -> bool:
        return any(split.origin.operator == operator for split in self.splits.values())

    def _is_splitting(self, origin: InstanceId) -> bool:
        return any(split.origin == origin for split in self.splits.values())

    def _prepare_split(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> Accepted:
        owned = self.topology.history[origin.operator][-1].assignment.slots_of(origin.index)
        shares = {
            origin: owned - _union(parts),
            **{InstanceId(origin.operator, i): slots for i, slots in parts.items() if slots},
        }
        self._plans += 1
        dead = not self.roster.is_live(origin)
        split = self.splits[self._plans] = Split(self._plans, origin, shares, self._holders(origin)[0], dead)
        self._wait_no_more(origin)
        self.safe.pin(origin)
        self._post(split.holder, PartitionBackup(split.plan, origin, shares))
        self._effects.append(SplitBegun(subject=origin, plan=split.plan, shares=len(shares)))
        return Accepted(split.plan)

    def _on_partitioned(self, _: str, message: Partitioned) -> None:
        split = self.splits.get(message.plan)
        if split is None:
            return
        if message.epoch is None or self.topology.history[split.origin.operator][-1].first > message.epoch:
            self._abort(split)
            return
        split.epoch = message.epoch
        for instance in split.parts:
            self._prepare_part(split, instance)

    def _prepare_part(self, split: Split, instance: InstanceId) -> None:
        """Starts a new owner beside the present one: it restores its part and waits for the view that names it."""
        assert split.epoch is not None
        node = self._pick_node(avoid=frozenset({split.holder}))
        assert node is not None
        identity = self.roster.next_incarnation(instance)
        split.standby[instance] = (identity, node)
        self.roster.hosted.add(node)
        trimmed = self.safe.trimmed[instance] if instance == split.origin else split.epoch
        self._post(node, StartInstance(identity, FromBackup(split.holder, split.plan), trimmed))

    def _on_restored(self, holder: str, message: Restored) -> None:
        if message.part is None:
            super()._on_restored(holder, message)
            return
        split = self.splits.get(message.part)
        if split is not None:
            split.restored.add(message.instance.instance)
            if split.restored == set(split.parts):
                self._commit(split)

    def _commit(self, split: Split) -> None:
        """All parts are restored: from the backup's epoch on they have always been the owners."""
        assert split.epoch is not None
        self._tell(self.cuts.split(split.origin, split.epoch, self.topology))
        operator = split.origin.operator
        given = {i.index: slots for i, slots in split.parts.items() if i != split.origin}
        self.topology = partition_routing_state(self.topology, operator, given, split.epoch + 1, Arrival.BACKUP)
        self._stop(split.origin)
        self._post(split.holder, AdoptParts(split.plan, tuple(identity for identity, _ in split.standby.values())))
        for instance, (identity, node) in split.standby.items():
            if instance != split.origin:
                self.safe.born(instance, split.epoch)
            self.roster.seat(identity, node)
            copy = BackupCopy((split.holder,), (identity.number, -1))
            self.replication.void(instance, copy.order)
            self._record_backup(instance, split.epoch, copy)
        self.safe.set_back(split.origin, split.epoch)
        self._close(split, SplitEffective(subject=split.origin, plan=split.plan, first=split.epoch + 1))

    def _abort(self, split: Split) -> None:
        """Nothing has changed but what stands by; a dead origin is rebound instead."""
        for identity, node in split.standby.values():
            if node in self.nodes:
                self._post(node, StopInstance(identity))
            if identity.instance != split.origin:
                self.roster.forget(identity.instance)
        if split.holder in self.nodes:
            self._post(split.holder, DropParts(split.plan))
        self._close(split, SplitAborted(subject=split.origin, plan=split.plan))
        if split.origin_is_dead:
            super()._rebind(split.origin)

    def _close(self, split: Split, told: SplitEffective | SplitAborted) -> None:
        del self.splits[split.plan]
        self.safe.unpin(split.origin)
        self._view_is_old = True
        self._effects.append(told)

    def _on_restore_failed(self, node: str, message: RestoreFailed) -> None:
        for split in list(self.splits.values()):
            if any(identity == message.instance for identity, _ in split.standby.values()):
                self._abort(split)
                return
        super()._on_restore_failed(node, message)

    def _reserved(self) -> list[str]:
        return [
            node for split in self.splits.values() for node in (*(n for _, n in split.standby.values()), split.holder)
        ]

    @property
    def pending(self) -> Set[InstanceId]:
        return super().pending | {split.origin for split in self.splits.values() if split.origin_is_dead}

    # -- that all is as it must be ------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises InternalError with what does not hold that must hold between any two calls."""
        if self.phase is not QueryPhase.RUNNING:
            return
        broken = list(broken_rules(self))
        if self._validated != self.version:
            self._validated = self.version
            broken += broken_rules_of_view(self)
        if broken:
            raise InternalError(f"the manager, at view {self.version}: {'; '.join(broken)}")

    # -- failures -----------------------------------------------------------------------------------------------------

    def _recover_from(self, node: str) -> None:
        for split in list(self.splits.values()):
            split.origin_is_dead |= self.placement[split.origin].node == node
            if split.stands_on(node):
                self._abort(split)
        super()._recover_from(node)

    def _rebind(self, instance: InstanceId) -> None:
        if not self._is_splitting(instance) and not self._recovered_in_parts(instance):
            super()._rebind(instance)

    def _recovered_in_parts(self, instance: InstanceId) -> bool:
        """Parallel recovery: a split whose origin is dead, where that is allowed; otherwise recovery is a rebind."""
        if self.settings.recovery_parallelism == 1 or not self.nodes:
            return False
        owned = self.topology.history[instance.operator][-1].assignment.slots_of(instance.index)
        shares = split_evenly(owned, self.settings.recovery_parallelism)[1:]
        fresh = self.fresh_index(instance.operator)
        parts = {fresh + i: slots for i, slots in enumerate(shares) if slots}
        if self._objection_to_split(instance, parts):
            return False
        self._prepare_split(instance, parts)
        return True


def _overlap(parts: Mapping[int, SlotSet]) -> bool:
    return sum(len(slots) for slots in parts.values()) > len(_union(parts))


def _union(parts: Mapping[int, SlotSet]) -> SlotSet:
    whole = SlotSet.empty()
    for slots in parts.values():
        whole |= slots
    return whole
