"""Backups in storage, for the holder `STORAGE`; each node, and the manager, does the work of this holder itself.

A backup is a chain of values: a full checkpoint and the deltas on it. The keys alone tell which values belong to the
chain. A successor stores a mark of where it began, so that nothing its predecessor writes after that is ever read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
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
    """The backups of one run of a query. Several processes may use it, each from one thread."""

    store: BlobStore
    query: str
    run: str
    max_deltas: int = 8

    def links(self, owner: InstanceId) -> Sequence[BackupKey]:
        """Returns the keys of the newest valid full checkpoint and of the deltas on it."""
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
        """Stores a full checkpoint, and removes older values unless a successor has begun: it may need them."""
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
        """Stores the mark of the checkpoint from which this incarnation begins; only the first mark counts.

        The chain is read only after the fence is stored, because from then on earlier incarnations remove nothing.
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
        """Does nothing: the marks are removed with the run's backups."""

    @property
    def owners(self) -> Collection[InstanceId]:
        return {InstanceId(key.operator, key.index) for key in self._keys() if isinstance(key, BackupKey)}

    def clear(self) -> None:
        """Removes all backups of the run, after it has ended."""
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
    """Returns the backup keys in order, without those that an incarnation wrote after its successor had begun."""
    found = sorted((key for key in keys if isinstance(key, BackupKey)), key=lambda key: key.order)
    for mark in (key for key in keys if isinstance(key, SuccessionKey)):
        found = [key for key in found if key.number >= mark.number or key.order <= mark.last]
    return found


def _fence_in(keys: list[OfBackup]) -> int:
    """Returns the latest incarnation that has begun or is about to."""
    return max((key.number for key in keys if isinstance(key, (FenceKey, SuccessionKey))), default=0)


def _is_before(key: OfBackup, order: tuple[int, int]) -> bool:
    """Whether a full checkpoint of that order makes this value obsolete."""
    return key.order < order if isinstance(key, BackupKey) else key.number < order[0]


class StorageUser(Protocol):
    """The process that has backups in storage; it receives the holder's answers."""

    def on_answer(self, to: str, body: Any) -> None:
        """Called with each message of the holder to this process or to the manager."""
        ...

    def on_storage_failed(self, reason: BaseException) -> None: ...


class StorageHolder:
    """The holder of backups in storage for one process, on its own thread. The caller does not wait for storage."""

    def __init__(self, settings: StorageSettings, query: str, run: str, user: StorageUser) -> None:
        """The storage is opened when somebody asks."""
        self._settings, self._query, self._run, self._user = settings, query, run, user
        self._worker = Worker("seep storage", user.on_storage_failed)

    @cached_property
    def _backups(self) -> StoredBackups:
        store = store_of(self._settings)
        if store is None:
            raise InternalError("a backup is to be in storage, and there is none")
        return StoredBackups(store, self._query, self._run)

    @cached_property
    def _holder(self) -> Holder:
        return Holder(STORAGE, store=self._backups)

    def ask(self, asker: str, letter: HolderLetter) -> None:
        """Queues a letter for the holder; answers come to `on_answer`."""
        self._worker.put(partial(self._answer, asker, letter))

    def clear(self) -> None:
        """Removes all backups of the run, after it has ended."""
        self._backups.clear()

    def close(self) -> None:
        """Finishes queued work, then stops the thread."""
        self._worker.close()

    def _answer(self, asker: str, letter: HolderLetter) -> None:
        for effect in self._holder.receive(asker, letter):
            assert isinstance(effect, Post)
            self._user.on_answer(effect.to, effect.body)
