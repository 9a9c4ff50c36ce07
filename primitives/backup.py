"""backup_state: chooses the place of backups, and stores checkpoints there.

Chains of incremental checkpoints are bounded.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from enum import Enum
from typing import Protocol

from primitives.checkpoint import Checkpoint, ProcessingState, chain_checkpoints, merge_checkpoints, without_state
from primitives.graph import InstanceId
from primitives.mapped import MappedFiles
from primitives.slots import SlotSet


def choose_backup_holder(
    owner: InstanceId,
    own_node: str,
    upstream: Sequence[str],
    others: Sequence[str],
    vms: Mapping[str, str] | None = None,
) -> str | None:
    """Returns the node that keeps an instance's backup: by hash among the nodes of its upstream instances.

    A node never keeps the backup of an instance that it hosts, since both would be lost at once. If there is another
    VM, a node on the same VM does not either; `vms` has the VM of each node, and a node that it does not name is a VM
    of its own. If the upstream instances leave no choice, any other node is taken. None if there is no other node at
    all.

    >>> choose_backup_holder(InstanceId("sum", 0), "n1", ["n2"], ["n1", "n2", "n3"], {"n1": "a", "n2": "a", "n3": "b"})
    'n3'
    """
    vm = (vms or {}).get
    away = [node for node in (*upstream, *others) if vm(node, node) != vm(own_node, own_node)]
    for nodes in (set(upstream).intersection(away), away, upstream, others):
        if candidates := sorted({node for node in nodes if node != own_node}):
            return candidates[zlib.crc32(str(owner).encode()) % len(candidates)]
    return None


class StoreOutcome(Enum):
    """The result of offering a checkpoint to a store."""

    KEPT = "kept"
    NEEDS_FULL = "needs full"  #: a delta whose base is not here, or that makes the chain too long
    FENCED = "fenced"  #: it comes from an incarnation that was replaced


class BackupLink(Protocol):
    """The description of a checkpoint in a backup, without its state."""

    @property
    def epoch(self) -> int: ...

    @property
    def base(self) -> int | None: ...

    @property
    def order(self) -> tuple[int, int]:
        """Incarnation and serial."""
        ...


class BackupStore(ABC):
    """A place that keeps backups: for each owner a full checkpoint, and deltas that each build on the one before.

    The functions of this module are its interface; the methods are the few steps that differ between stores.
    """

    max_deltas: int  #: a chain with more is merged, or not extended

    @abstractmethod
    def links(self, owner: InstanceId) -> Sequence[BackupLink]:
        """Describes the owner's backup: the full checkpoint first, then deltas; empty if there is none."""

    @abstractmethod
    def chain(self, owner: InstanceId) -> Sequence[Checkpoint]:
        """Returns the owner's backup as it is kept, in the order of `links`."""

    @abstractmethod
    def replace(self, checkpoint: Checkpoint) -> None:
        """Keeps a full checkpoint, and removes everything that its owner had here before."""

    @abstractmethod
    def append(self, delta: Checkpoint, merges: bool) -> bool:
        """Keeps a delta after the last link; False if it accepts none before the next full checkpoint.

        With `merges` it may merge all links into one checkpoint; else the caller has the state, and calls
        `shorten_backup`.
        """

    @abstractmethod
    def remove(self, owner: InstanceId) -> None:
        """Removes the owner's backup."""

    @abstractmethod
    def fence(self, owner: InstanceId, incarnation: int) -> None:
        """Refuses checkpoints of older incarnations of the owner from now on."""

    @abstractmethod
    def fence_of(self, owner: InstanceId) -> int:
        """Returns the lowest incarnation of an owner that may still store."""

    @property
    @abstractmethod
    def owners(self) -> Collection[InstanceId]:
        """The owners of which anything is kept."""

    @abstractmethod
    def lift_fences(self, live: Set[InstanceId]) -> None:
        """Removes fences of owners that are not `live`: these are all owners that exist."""

    def epoch(self, owner: InstanceId) -> int | None:
        """The epoch of the owner's backup, or None if there is none."""
        links = self.links(owner)
        return links[-1].epoch if links else None

    def order(self, owner: InstanceId) -> tuple[int, int]:
        """The (incarnation, serial) of the owner's backup; lower than any if there is none."""
        links = self.links(owner)
        return links[-1].order if links else (-1, -1)


class NodeBackups(BackupStore):
    """The backups that a node keeps for instances on other nodes, in memory; large buffers on a `shelf`, if given."""

    def __init__(self, max_deltas: int = 4, shelf: MappedFiles | None = None) -> None:
        self.max_deltas = max_deltas
        self.shelf = shelf
        self._chains: dict[InstanceId, list[Checkpoint]] = {}
        #: owner -> the lowest incarnation that may still store
        self._fences: dict[InstanceId, int] = {}

    def links(self, owner: InstanceId) -> Sequence[Checkpoint]:
        return tuple(self._chains.get(owner, ()))

    def chain(self, owner: InstanceId) -> Sequence[Checkpoint]:
        return self.links(owner)

    def replace(self, checkpoint: Checkpoint) -> None:
        self._chains[checkpoint.owner] = [self._kept(checkpoint)]

    def append(self, delta: Checkpoint, merges: bool) -> bool:
        chain = [*self._chains[delta.owner], self._kept(delta)]
        if delta.is_whole:  # earlier deltas are needed only for output that this one does not have
            chain = [replace(without_state(chain), state=chain[-1].state)]
        elif merges and len(chain) > self.max_deltas + 1:
            chain = [self._kept(merge_checkpoints(chain[0], chain[1:]))]
        self._chains[delta.owner] = chain
        return True

    def remove(self, owner: InstanceId) -> None:
        del self._chains[owner]

    def fence(self, owner: InstanceId, incarnation: int) -> None:
        self._fences[owner] = max(incarnation, self.fence_of(owner))

    def fence_of(self, owner: InstanceId) -> int:
        return self._fences.get(owner, 0)

    def lift_fences(self, live: Set[InstanceId]) -> None:
        for owner in self._fences.keys() - live - self._chains.keys():
            del self._fences[owner]

    @property
    def owners(self) -> tuple[InstanceId, ...]:
        return tuple(self._chains)

    @property
    def nbytes(self) -> int:
        return sum(checkpoint.nbytes for chain in self._chains.values() for checkpoint in chain)

    def _kept(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns a checkpoint in the form in which this store keeps it."""
        return checkpoint if self.shelf is None else self.shelf.checkpoint(checkpoint)


def store_backup(store: BackupStore, checkpoint: Checkpoint, merges: bool = True) -> StoreOutcome:
    """Keeps a checkpoint as its owner's newest: a full one replaces the chain, a delta extends it.

    A checkpoint that is not newer than the backup is ignored: it came late, by way of another holder.
    """
    owner = checkpoint.owner
    if checkpoint.incarnation < store.fence_of(owner):
        return StoreOutcome.FENCED
    links = store.links(owner)
    if links and checkpoint.order <= links[-1].order:
        return StoreOutcome.KEPT
    if checkpoint.base is None:
        store.replace(checkpoint)
        return StoreOutcome.KEPT
    fits = bool(links) and links[-1].epoch == checkpoint.base
    return StoreOutcome.KEPT if fits and store.append(checkpoint, merges) else StoreOutcome.NEEDS_FULL


def shorten_backup(store: BackupStore, owner: InstanceId, state: ProcessingState) -> None:
    """Replaces a long chain by one full checkpoint of the state that the chain stands for.

    This costs a copy of the state, so it pays only when the deltas have reached about half of its size.
    """
    base, *deltas = chain = store.chain(owner)
    if len(deltas) > store.max_deltas and 2 * sum(delta.nbytes for delta in deltas) > base.nbytes:
        store.replace(replace(without_state(chain), state=tuple(state.snapshot(chain[-1].slots))))


def retrieve_backup(store: BackupStore, owner: InstanceId, slots: SlotSet | None = None) -> Checkpoint | None:
    """The owner's backup as one full checkpoint, not merged yet, or None if this store has none.

    If `slots` are given, it is their state and nothing else.
    """
    chain = store.chain(owner)
    return chain_checkpoints(chain[0], chain[1:], slots) if chain else None


def delete_backup(store: BackupStore, owner: InstanceId, up_to: tuple[int, int]) -> bool:
    """Deletes the owner's backup unless it is newer than `up_to` (incarnation, serial); returns whether it did."""
    links = store.links(owner)
    if not links or links[-1].order > up_to:
        return False
    store.remove(owner)
    return True
