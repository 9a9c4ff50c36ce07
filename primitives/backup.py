"""backup_state: where checkpoints are kept, and the stores that keep them.

Chains of incremental checkpoints are bounded, so that a restore reads one in full and a few deltas.
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
    """The node that keeps an instance's backup: by hash among the nodes of its upstream instances.

    A node never keeps the backup of an instance that it hosts, since both would be lost at once; and where another VM
    is to be had (`vms` tells the VM of a node; one that it does not name is a VM of its own), nor does the same VM.
    Where the upstream instances leave no choice, any other node serves. None if there is no other node at all.

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
    NEEDS_FULL = "needs full"  #: a delta whose base is not here, or one too many
    FENCED = "fenced"  #: from an incarnation that was replaced


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
    """Whoever keeps backups: for each owner a checkpoint in full, and deltas that each build on the one before.

    What it is asked is in the functions of this module; these are the few steps that differ from store to store.
    """

    max_deltas: int  #: a chain with more is merged, or not extended

    @abstractmethod
    def links(self, owner: InstanceId) -> Sequence[BackupLink]:
        """Describes the owner's backup: the checkpoint in full first, then deltas; empty if there is none."""

    @abstractmethod
    def chain(self, owner: InstanceId) -> Sequence[Checkpoint]:
        """The owner's backup as it is kept, in the order of `links`."""

    @abstractmethod
    def replace(self, checkpoint: Checkpoint) -> None:
        """Keeps a checkpoint in full, and nothing that its owner had here before."""

    @abstractmethod
    def append(self, delta: Checkpoint, merges: bool) -> bool:
        """Keeps a delta after the last link; False if it takes none before the next checkpoint in full.

        With `merges` it may make one checkpoint of all; else the state is at hand, and that is for `shorten_backup`.
        """

    @abstractmethod
    def remove(self, owner: InstanceId) -> None:
        """Keeps nothing of the owner any more."""

    @abstractmethod
    def fence(self, owner: InstanceId, incarnation: int) -> None:
        """Refuses what older incarnations of the owner offer from now on."""

    @abstractmethod
    def fence_of(self, owner: InstanceId) -> int:
        """The lowest incarnation of an owner that may still store."""

    @property
    @abstractmethod
    def owners(self) -> Collection[InstanceId]:
        """The owners of which anything is kept."""

    @abstractmethod
    def lift_fences(self, live: Set[InstanceId]) -> None:
        """There are no other owners than these any more: fences of others may be forgotten."""

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
        if delta.is_whole:  # of those before it, only output is needed that is not in it
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
        """A checkpoint in the form in which this store keeps it for long."""
        return checkpoint if self.shelf is None else self.shelf.checkpoint(checkpoint)


def store_backup(store: BackupStore, checkpoint: Checkpoint, merges: bool = True) -> StoreOutcome:
    """Keeps a checkpoint as its owner's newest: one in full replaces the chain, a delta extends it.

    One that is not newer than what is here is in that already: it came late, by way of another holder.
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
    """Replaces a chain that has become long by one checkpoint in full, of the state that it stands for.

    That costs a copy of the state, so deltas may well come to half as much before.
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
    """Deletes the owner's backup unless it is newer than `up_to` (incarnation, serial); says whether it did."""
    links = store.links(owner)
    if not links or links[-1].order > up_to:
        return False
    store.remove(owner)
    return True
