"""Replication: the backups that each holder of a chain has, and the holders that are late."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from primitives.graph import InstanceId
from seep.protocol.messages import BackupStored
from seep.protocol.view import STORAGE

Order = tuple[int, int]


class BackupCopy(NamedTuple):
    """The holders and order of an instance's recorded backup; all of them have it, or a later one."""

    holders: tuple[str, ...]
    order: Order

    def nearest(self, node: str | None, turn: int) -> str:
        """Returns the holder on a node, if there is one; otherwise one by `turn`, so that holders share the load."""
        return node if node in self.holders else self.holders[turn % len(self.holders)]

    def without(self, node: str) -> BackupCopy | None:
        """Returns the copy without a lost node; None if no holder is left."""
        left = tuple(holder for holder in self.holders if holder != node)
        return BackupCopy(left, self.order) if left else None


@dataclass(slots=True)
class _Chain:
    """The holders of one owner's backups, and the newest backup that each has reported."""

    holders: tuple[str, ...]
    has: dict[str, tuple[Order, int]] = field(default_factory=dict)
    #: the newest backup that one holder had before others, and the pulse at that time
    awaited: tuple[tuple[Order, int], int] | None = None

    def wait(self, live: Collection[str], pulse: int) -> None:
        """Begins to wait for slower holders, ends the wait, or waits for a backup that was stored since."""
        known = [self.has.get(node) for node in self.holders if is_there(node, live)]
        slowest = None if None in known else min(told for told in known if told is not None)
        if slowest is not None and (self.awaited is None or slowest >= self.awaited[0]):
            self.awaited = None
        newest = max(self.has.values())
        if self.awaited is None and slowest != newest:
            self.awaited = newest, pulse


class Replication:
    """The group of nodes that is to keep each owner's backups, and the backups that each node has."""

    def __init__(self) -> None:
        #: the groups that a replica placement has set; an owner without one chooses its holders itself
        self.groups: dict[InstanceId, tuple[str, ...]] = {}
        #: whether any group ever included the storage, which may then have backups that are not recorded
        self.has_used_storage = False
        self._chains: dict[InstanceId, _Chain] = {}
        self._void: dict[InstanceId, Order] = {}

    def stored(self, holder: str, message: BackupStored, live: Collection[str], pulse: int) -> None:
        """Records that a holder has a backup."""
        owner, told = message.owner.instance, (message.order, message.epoch)
        chain = self._chains.setdefault(owner, _Chain(message.chain or (holder,)))
        if (message.chain or (holder,)) != chain.holders:
            if chain.has and told < max(chain.has.values()):
                return  # a backup of a former chain
            has = {node: known for node, known in chain.has.items() if node in message.chain}
            chain = self._chains[owner] = _Chain(message.chain or (holder,), has)
        chain.has[holder] = max(told, chain.has.get(holder, told))
        chain.wait(live, pulse)

    def counts(self, owner: InstanceId, live: Collection[str]) -> tuple[int, BackupCopy] | None:
        """Returns the epoch of the newest backup that all live holders of the owner have, and the copy; or None."""
        chain = self._chains.get(owner)
        holders = tuple(node for node in chain.holders if is_there(node, live)) if chain else ()
        if chain is None or not holders or not all(node in chain.has for node in holders):
            return None
        order, epoch = min(chain.has[node] for node in holders)
        return epoch, BackupCopy(holders, order)

    def late(
        self, pulse: int, patience: Mapping[str, int], live: Collection[str]
    ) -> Mapping[InstanceId, tuple[str, ...]]:
        """Yields the holders that have been behind the others of their chain for too long."""
        found = {}
        for owner, chain in self._chains.items():
            allowed = patience.get(owner.operator)
            if chain.awaited is not None and allowed is not None and pulse - chain.awaited[1] > allowed:
                nothing = ((-1, -1), -1)
                behind = (n for n in chain.holders if chain.has.get(n, nothing) < chain.awaited[0])
                found[owner] = tuple(node for node in behind if node in live)
        return found

    def chain(self, owner: InstanceId) -> tuple[str, ...]:
        """Returns the holders of the owner's next backup."""
        return self._chains[owner].holders if owner in self._chains else ()

    def regroup(self, groups: Mapping[InstanceId, tuple[str, ...]]) -> bool:
        """Sets the groups of all owners; returns whether that changes any."""
        before, self.groups = self.groups, {owner: group for owner, group in groups.items() if group}
        self.has_used_storage |= any(STORAGE in group for group in self.groups.values())
        return before != self.groups

    def exclude(self, owner: InstanceId, nodes: Collection[str]) -> None:
        """Removes nodes from an owner's group."""
        left = tuple(node for node in self.groups.get(owner, ()) if node not in nodes)
        self.regroup({**self.groups, owner: left})
        self._chains.pop(owner, None)

    def lose(self, node: str) -> list[InstanceId]:
        """Removes a lost node; returns the owners whose chains had it, as a backup of theirs may count now."""
        self.regroup({owner: tuple(n for n in group if n != node) for owner, group in self.groups.items()})
        return [owner for owner, chain in self._chains.items() if node in chain.holders]

    def begin(self, owner: InstanceId) -> None:
        """Forgets the backups of single holders: the owner's next incarnation begins from the recorded one."""
        if owner in self._chains:
            self._chains[owner] = _Chain(self._chains[owner].holders)

    def void(self, owner: InstanceId, before: Order) -> None:
        """Makes backups of lower order void, because a split has amended the topology since their epochs."""
        self._chains.pop(owner, None)
        self._void[owner] = before

    def void_before(self, owner: InstanceId) -> Order:
        """Returns the lowest order of backups that may still be used."""
        return self._void.get(owner, (-1, -1))

    @property
    def known(self) -> Set[InstanceId]:
        """The instances of which anything is recorded."""
        return self.groups.keys() | self._chains.keys() | self._void.keys()

    def retire(self, owner: InstanceId) -> None:
        """Forgets an instance that has ended."""
        for record in (self.groups, self._chains, self._void):
            record.pop(owner, None)


def is_there(holder: str, nodes: Collection[str]) -> bool:
    return holder == STORAGE or holder in nodes
