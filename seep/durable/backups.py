"""Backups in storage: the holder `STORAGE`, of which a node, or the manager, does the work by itself.

A backup is a chain of values, a checkpoint in full and deltas; their keys tell all that must be known of them. A
successor marks where it began, so that what its predecessor, dead or not, writes after that is never read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from primitives.backup import BackupStore
from primitives.checkpoint import Checkpoint
from primitives.errors import EnvironmentFault, InternalError
from primitives.graph import InstanceId
from seep.channels.wire import decode, encode
from seep.protocol.effects import Post
from seep.protocol.holder import Holder, HolderLetter
from seep.protocol.view import STORAGE
from seep.storage.layout import BackupKey, FenceKey, OfBackup, SuccessionKey, backups_prefix, key_of
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore
from seep.threads.worker import Worker


@dataclass(slots=True)
class StoredBackups(BackupStore):
    """The backups of one run of a query; several processes may use it, each on one thread."""

    store: BlobStore
    query: str
    run: str
    max_deltas: int = 8

    def links(self, owner: InstanceId) -> Sequence[BackupKey]:
        """The newest checkpoint in full that counts, and the deltas on it."""
        chain: list[BackupKey] = []
        for key in _counting(self._keys(owner)):
            if key.base is None:
                chain = [key]
            elif chain and chain[-1].epoch == key.base:
                chain.append(key)
        return chain

    def chain(self, owner: InstanceId) -> Sequence[Checkpoint]:
        return [self._read(str(link)) for link in self.links(owner)]

    def replace(self, checkpoint: Checkpoint) -> None:
        """A successor may begin at this moment: then it needs what was there before, and this is never read."""
        self._put(checkpoint)
        keys = self._keys(checkpoint.owner)
        if _fence_in(keys) <= checkpoint.incarnation:
            self.store.delete(str(key) for key in keys if _is_before(key, checkpoint.order))

    def append(self, delta: Checkpoint, merges: bool) -> bool:  # noqa: ARG002
        if len(self.links(delta.owner)) > self.max_deltas:
            return False
        self._put(delta)
        return True

    def remove(self, owner: InstanceId) -> None:
        self.store.delete(map(str, self._keys(owner)))

    def fence(self, owner: InstanceId, incarnation: int) -> None:
        """Marks from which checkpoint this incarnation begins; it may begin from one only.

        What there is is looked at after earlier ones have been kept from removing it.
        """
        keys, place = self._keys(owner), (self.query, self.run, owner.operator, owner.index, incarnation)
        if any(isinstance(key, SuccessionKey) and key.number >= incarnation for key in keys):
            return
        self.store.put(str(FenceKey(*place)), [b"fenced"])
        links = self.links(owner)
        last = (*links[-1].order, links[-1].epoch, links[-1].base) if links else (None,) * 4
        self.store.put(str(SuccessionKey(*place, *last)), [b"begins"])

    def fence_of(self, owner: InstanceId) -> int:
        return _fence_in(self._keys(owner))

    def lift_fences(self, live: Set[InstanceId]) -> None:
        """Marks go with the run."""

    @property
    def owners(self) -> Collection[InstanceId]:
        return {InstanceId(key.operator, key.index) for key in self._keys() if isinstance(key, BackupKey)}

    def clear(self) -> None:
        """The run is over: nobody needs its backups any more."""
        self.store.delete(self.store.list(backups_prefix(self.query, self.run)))

    def _keys(self, owner: InstanceId | None = None) -> list[OfBackup]:
        found = map(key_of, self.store.list(backups_prefix(self.query, self.run, owner)))
        return [key for key in found if isinstance(key, OfBackup)]

    def _put(self, checkpoint: Checkpoint) -> None:
        owner, order, base = checkpoint.owner, checkpoint.order, checkpoint.base
        key = BackupKey(self.query, self.run, owner.operator, owner.index, *order, checkpoint.epoch, base)
        self.store.put(str(key), [memoryview(encode(checkpoint))])

    def _read(self, key: str) -> Checkpoint:
        value = decode(pa.py_buffer(self.store.get(key)))
        if not isinstance(value, Checkpoint):
            raise EnvironmentFault(f"{key} in {self.store.name} is no checkpoint; it is damaged, or not of this query")
        return value


def _counting(keys: list[OfBackup]) -> list[BackupKey]:
    """In order, without those that an incarnation wrote after its successor had begun."""
    found = sorted((key for key in keys if isinstance(key, BackupKey)), key=lambda key: key.order)
    for mark in (key for key in keys if isinstance(key, SuccessionKey)):
        found = [key for key in found if key.number >= mark.number or key.order <= mark.last]
    return found


def _fence_in(keys: list[OfBackup]) -> int:
    """The latest incarnation that has begun, or is about to."""
    return max((key.number for key in keys if isinstance(key, (FenceKey, SuccessionKey))), default=0)


def _is_before(key: OfBackup, order: tuple[int, int]) -> bool:
    """Whether it is of no use beside a full checkpoint of that order."""
    return key.order < order if isinstance(key, BackupKey) else key.number < order[0]


class StorageUser(Protocol):
    """A process with backups in storage."""

    def on_answer(self, to: str, body: Any) -> None:
        """What the holder says to this process, or to the manager."""
        ...

    def on_storage_failed(self, reason: BaseException) -> None: ...


class StorageHolder:
    """The holder for one process of a run, on a thread of its own: nobody waits for the storage who need not."""

    def __init__(self, settings: StorageSettings, query: str, run: str, user: StorageUser) -> None:
        store = store_of(settings)
        if store is None:
            raise InternalError("a backup is to be in storage, and there is none")
        self._backups, self._user = StoredBackups(store, query, run), user
        self._holder = Holder(STORAGE, store=self._backups)
        self._worker = Worker("seep storage", user.on_storage_failed)

    def ask(self, asker: str, letter: HolderLetter) -> None:
        """Answers come to `on_answer`."""
        self._worker.put(partial(self._answer, asker, letter))

    def clear(self) -> None:
        """The run is over: nobody needs its backups any more."""
        self._backups.clear()

    def close(self) -> None:
        """What is under way is finished first."""
        self._worker.close()

    def _answer(self, asker: str, letter: HolderLetter) -> None:
        for effect in self._holder.receive(asker, letter):
            assert isinstance(effect, Post)
            self._user.on_answer(effect.to, effect.body)
