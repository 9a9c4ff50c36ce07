"""The holder's half of backups: a node keeps checkpoints for instances on other nodes, and divides them for splits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import assert_never

from primitives.backup import (
    BackupStore,
    NodeBackups,
    StoreOutcome,
    delete_backup,
    retrieve_backup,
    shorten_backup,
    store_backup,
)
from primitives.checkpoint import Checkpoint, without_state
from primitives.graph import InstanceId
from primitives.partition import partition_processing_state
from primitives.slots import SlotSet
from seep.protocol.effects import Effect, Post
from seep.protocol.messages import (
    AdoptParts,
    BackupFound,
    BackupRefused,
    BackupStored,
    DeleteBackup,
    DropParts,
    FindBackup,
    NeedsBackup,
    PartitionBackup,
    Partitioned,
    Retrieve,
    Retrieved,
    StandBy,
    StoreBackup,
)
from seep.protocol.standing import HandedStates, MakesStanding, Standing
from seep.protocol.view import MANAGER, Incarnation, View

#: What a holder is told by letter.
HolderLetter = (
    StoreBackup
    | StandBy
    | NeedsBackup
    | Retrieve
    | FindBackup
    | PartitionBackup
    | DeleteBackup
    | AdoptParts
    | DropParts
)


class Holder:
    """The backups that a node, or the storage, keeps. A backup counts only once the manager has recorded it."""

    def __init__(
        self,
        name: str = "holder",
        makes_standing: MakesStanding | None = None,
        handed: HandedStates | None = None,
        store: BackupStore | None = None,
    ) -> None:
        self.name = name
        self.handed = HandedStates() if handed is None else handed
        self.store = NodeBackups() if store is None else store
        self._standing = Standing(makes_standing)
        self._live: frozenset[str] = frozenset()
        #: instances on this very node: they have their state
        self._hosted: frozenset[InstanceId] = frozenset()
        #: plan -> the parts of a split that is being prepared
        self.parts: dict[int, dict[InstanceId, Checkpoint]] = {}

    def on_view(self, view: View) -> None:
        self._live = view.nodes
        self._hosted = frozenset(i for i, seat in view.placement.items() if seat.node == self.name)
        for instance, seat in view.placement.items():
            self.store.fence(instance, seat.incarnation)
        self.store.lift_fences(view.placement.keys())

    def receive(self, sender: str, letter: HolderLetter) -> list[Effect]:
        match letter:
            case StoreBackup():
                return self.on_store(sender, letter)
            case StandBy():
                return self.on_stand_by(letter)
            case NeedsBackup():
                return self.on_needs(sender, letter)
            case Retrieve():
                return self.on_retrieve(sender, letter)
            case FindBackup():
                return self.on_find(letter)
            case PartitionBackup():
                return self.on_partition(letter)
            case DeleteBackup():
                return self.on_delete(letter)
            case AdoptParts():
                return self.on_adopt(letter)
            case DropParts():
                return self.on_drop_parts(letter)
            case _:
                assert_never(letter)

    def on_store(self, sender: str, message: StoreBackup) -> list[Effect]:
        checkpoint = message.checkpoint
        owner = Incarnation(checkpoint.owner, checkpoint.incarnation)
        stands = checkpoint.owner not in self._hosted and self._standing.serves(checkpoint.owner)
        outcome = store_backup(self.store, checkpoint, merges=not stands)
        if outcome is StoreOutcome.KEPT:
            stored = BackupStored(owner, checkpoint.epoch, checkpoint.order, message.chain)
            then = [Post(self.name, StandBy(checkpoint.owner))] if stands else []
            return [Post(MANAGER, stored), *self._passed_on(message), *then]
        if outcome is StoreOutcome.NEEDS_FULL and sender in message.chain:
            return [Post(sender, NeedsBackup(checkpoint.owner, message.chain))]
        return [Post(sender, BackupRefused(owner, checkpoint.epoch, outcome, self.store.epoch(checkpoint.owner)))]

    def _passed_on(self, message: StoreBackup) -> list[Effect]:
        after = message.chain[message.chain.index(self.name) + 1 :] if self.name in message.chain else ()
        following = next((node for node in after if node in self._live), None)
        return [] if following is None else [Post(following, message)]

    def on_stand_by(self, message: StandBy) -> list[Effect]:
        """Applies the owner's current backup to the state that stands ready."""
        if chain := self.store.chain(message.owner):
            logic = self._standing.follow(message.owner, chain)
            if logic is not None:
                shorten_backup(self.store, message.owner, logic.state)
        return []

    def on_needs(self, sender: str, message: NeedsBackup) -> list[Effect]:
        """Sends the whole backup to the next holder of the chain, which lacks the base of a delta."""
        whole = retrieve_backup(self.store, message.owner)
        return [] if whole is None else [Post(sender, StoreBackup(whole, message.chain))]

    def on_retrieve(self, sender: str, message: Retrieve) -> list[Effect]:
        """Answers with the whole backup, a part of a split, or, to warm up a handover, some of its slots."""
        if message.warm_up is None and message.part is None:
            return [Post(sender, self._handed_over(sender, message))]
        slots = None if message.warm_up is None else message.warm_up.slots
        found = self._find(message.owner, message.part, slots)
        return [Post(sender, Retrieved(message.asker, message.owner, found, message.warm_up))]

    def _handed_over(self, sender: str, message: Retrieve) -> Retrieved:
        """Returns the whole backup for the owner's successor; on this node, with the state that stands ready."""
        owner = message.owner
        self.store.fence(owner, message.asker.number)
        chain = self.store.chain(owner) if sender == self.name else ()
        standing = self._standing.take(owner, chain) if chain else None
        if standing is None:
            return Retrieved(message.asker, owner, retrieve_backup(self.store, owner), None)
        self.handed.give(message.asker, standing)
        return Retrieved(message.asker, owner, without_state(chain), None, stands=True)

    def on_find(self, message: FindBackup) -> list[Effect]:
        owner, number = message.owner
        self.store.fence(owner, number + 1)
        return [Post(MANAGER, BackupFound(message.owner, self.store.epoch(owner), self.store.order(owner)))]

    def on_delete(self, message: DeleteBackup) -> list[Effect]:
        if delete_backup(self.store, message.owner, message.up_to) or not self.store.links(message.owner):
            self._standing.forget(message.owner)
        return []

    def on_partition(self, message: PartitionBackup) -> list[Effect]:
        whole = retrieve_backup(self.store, message.owner)
        if whole is None:
            return [Post(MANAGER, Partitioned(message.plan, None))]
        self.parts[message.plan] = partition_processing_state(whole, message.parts)
        return [Post(MANAGER, Partitioned(message.plan, whole.epoch))]

    def on_adopt(self, message: AdoptParts) -> list[Effect]:
        """Makes each part of an effective split the backup of its instance."""
        parts = self.parts.pop(message.plan)
        for owner, number in message.owners:
            self.store.fence(owner, number)
            self.store.replace(parts[owner])
            self._standing.forget(owner)
        return []

    def on_drop_parts(self, message: DropParts) -> list[Effect]:
        self.parts.pop(message.plan, None)
        return []

    def broken_rules(self) -> Iterator[str]:
        """Returns the rules that the holder breaks; between two calls there must be none."""
        for owner in self.store.owners:
            chain = self.store.chain(owner)
            if chain[0].base is not None or any(later.base != earlier.epoch for earlier, later in pairwise(chain)):
                yield f"the backup of {owner} is no chain: {[(each.base, each.epoch) for each in chain]}"
            if any(each.owner != owner for each in chain):
                yield f"the backup of {owner} has checkpoints of another instance"
        for plan, parts in self.parts.items():
            if any(checkpoint.owner != owner for owner, checkpoint in parts.items()):
                yield f"a part of plan {plan} is of another instance than it says"

    def _find(self, owner: InstanceId, plan: int | None, slots: SlotSet | None) -> Checkpoint | None:
        return retrieve_backup(self.store, owner, slots) if plan is None else self.parts.get(plan, {}).get(owner)
