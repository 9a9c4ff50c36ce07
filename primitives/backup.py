"""backup_state: where checkpoints are kept, and the store that a holder keeps them in.

A holder merges incremental checkpoints, so that a restore reads one base and a bounded number of deltas.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from enum import Enum

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
    """What became of a checkpoint that was offered to a holder."""

    KEPT = "kept"
    NEEDS_FULL = "needs full"  #: an incremental one whose base is not here
    FENCED = "fenced"  #: from an incarnation that was replaced


class BackupStore:
    """The backups that a holder keeps for instances on other nodes: per owner a base and its deltas.

    What is large of them is on the `shelf`, if it is given one, and else in memory.
    """

    def __init__(self, max_deltas: int = 4, shelf: MappedFiles | None = None) -> None:
        self.max_deltas = max_deltas
        self.shelf = shelf
        #: owner -> base first, then deltas, each built on the one before
        self._chains: dict[InstanceId, list[Checkpoint]] = {}
        #: owner -> the lowest incarnation that may still store
        self._fences: dict[InstanceId, int] = {}

    def fence(self, owner: InstanceId, incarnation: int) -> None:
        """Refuses what older incarnations of the owner offer from now on."""
        self._fences[owner] = max(incarnation, self._fences.get(owner, 0))

    def lift_fences(self, live: Set[InstanceId]) -> None:
        """There are no other owners than these any more; what others have here is of instances that have ended."""
        for owner in self._fences.keys() - live - self._chains.keys():
            del self._fences[owner]

    def chain(self, owner: InstanceId) -> Sequence[Checkpoint]:
        """The owner's backup as it is kept: base first, then deltas; empty if there is none."""
        return tuple(self._chains.get(owner, ()))

    def epoch(self, owner: InstanceId) -> int | None:
        """The epoch of the owner's backup, or None if there is none."""
        chain = self._chains.get(owner)
        return chain[-1].epoch if chain else None

    def order(self, owner: InstanceId) -> tuple[int, int]:
        """The (incarnation, serial) of the owner's backup; lower than any if there is none."""
        chain = self._chains.get(owner)
        return chain[-1].order if chain else (-1, -1)

    def kept(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint in the form in which this store keeps it for long."""
        return checkpoint if self.shelf is None else self.shelf.checkpoint(checkpoint)

    @property
    def owners(self) -> tuple[InstanceId, ...]:
        return tuple(self._chains)

    @property
    def nbytes(self) -> int:
        return sum(checkpoint.nbytes for chain in self._chains.values() for checkpoint in chain)


def store_backup(store: BackupStore, checkpoint: Checkpoint, merges: bool = True) -> StoreOutcome:
    """Keeps a checkpoint as its owner's newest: a whole one replaces the chain, a delta extends it.

    One that is not newer than what is here is in that already: it came late, by way of another holder. A chain that
    gets too long is merged, unless its state is at hand anyway: then it is for `shorten_backup`.
    """
    owner = checkpoint.owner
    if checkpoint.incarnation < store._fences.get(owner, 0):
        return StoreOutcome.FENCED
    chain = store._chains.get(owner, [])
    if chain and checkpoint.order <= chain[-1].order:
        return StoreOutcome.KEPT
    if checkpoint.base is None:
        store._chains[owner] = [store.kept(checkpoint)]
    elif chain and chain[-1].epoch == checkpoint.base:
        store._chains[owner] = _bounded(store, [*chain, store.kept(checkpoint)], merges)
    else:
        return StoreOutcome.NEEDS_FULL
    return StoreOutcome.KEPT


def shorten_backup(store: BackupStore, owner: InstanceId, state: ProcessingState) -> None:
    """Replaces a chain that has become long by one checkpoint in full, of the state that it stands for.

    That costs a copy of the state, so deltas may well come to half as much before.
    """
    base, *deltas = chain = store._chains[owner]
    if len(deltas) > store.max_deltas and 2 * sum(delta.nbytes for delta in deltas) > base.nbytes:
        whole = replace(without_state(chain), state=tuple(state.snapshot(chain[-1].slots)))
        store._chains[owner] = [store.kept(whole)]


def adopt_backup(store: BackupStore, part: Checkpoint) -> None:
    """Keeps a part of a partitioned backup as its new owner's first backup, whatever was there before."""
    store._chains[part.owner] = [store.kept(part)]


def retrieve_backup(store: BackupStore, owner: InstanceId, slots: SlotSet | None = None) -> Checkpoint | None:
    """The owner's backup as one full checkpoint, not merged yet, or None if this store has none.

    If `slots` are given, it is their state and nothing else.
    """
    chain = store._chains.get(owner)
    return chain_checkpoints(chain[0], chain[1:], slots) if chain else None


def delete_backup(store: BackupStore, owner: InstanceId, up_to: tuple[int, int]) -> bool:
    """Deletes the owner's backup unless it is newer than `up_to` (incarnation, serial); says whether it did."""
    chain = store._chains.get(owner)
    if not chain or chain[-1].order > up_to:
        return False
    del store._chains[owner]
    return True


def _bounded(store: BackupStore, chain: list[Checkpoint], merges: bool) -> list[Checkpoint]:
    if chain[-1].is_whole:  # of those before it, only output is needed that is not in it
        return [replace(without_state(chain), state=chain[-1].state)]
    is_short = len(chain) <= store.max_deltas + 1 or not merges
    return chain if is_short else [store.kept(merge_checkpoints(chain[0], chain[1:]))]
