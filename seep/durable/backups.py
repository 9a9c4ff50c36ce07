"""Backups in storage: what plays the holder `STORAGE` for a node, or for the manager, which each work on it themselves.

A backup is a chain of values, a full checkpoint and deltas; their keys tell all that must be known of them. A successor
marks where it began, so that what its predecessor, dead or not, writes after that is never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from primitives.backup import StoreOutcome
from primitives.checkpoint import Checkpoint, chain_checkpoints
from primitives.errors import EnvironmentFault, InternalError
from primitives.graph import InstanceId
from seep.channels.wire import decode, encode
from seep.protocol.messages import (
    BackupFound,
    BackupRefused,
    BackupStored,
    DeleteBackup,
    FindBackup,
    Retrieve,
    Retrieved,
    StoreBackup,
)
from seep.protocol.view import MANAGER, STORAGE, Incarnation
from seep.storage.layout import BackupKey, OfBackup, SuccessionKey, backups_prefix, key_of
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore
from seep.threads.worker import Worker

#: Deltas after which a full checkpoint is asked for: a restore reads all of them.
_LONGEST = 8


@dataclass(slots=True)
class StoredBackups:
    """The backups of one run of a query; several processes may use it, each on one thread."""

    store: BlobStore
    query: str
    run: str

    def answer(self, asker: str, message: Any) -> list[tuple[str, Any]]:
        """What a holder would answer, and to whom."""
        match message:
            case StoreBackup(checkpoint):
                return [self._keep(asker, checkpoint)]
            case Retrieve():
                return [(asker, self._retrieve(message))]
            case FindBackup(owner):
                return [(MANAGER, self._find(owner))]
            case DeleteBackup(owner, up_to):
                self._delete(owner, up_to)
                return []
        raise InternalError(f"backups in storage have no use for a letter of {asker}: {message!r:.200}")

    def _keep(self, asker: str, checkpoint: Checkpoint) -> tuple[str, Any]:
        owner = Incarnation(checkpoint.owner, checkpoint.incarnation)
        if self._successor(checkpoint.owner) > checkpoint.incarnation:
            return asker, BackupRefused(owner, checkpoint.epoch, StoreOutcome.FENCED)
        chain = self._chain(checkpoint.owner)
        fits = checkpoint.base is None or (chain and chain[-1].epoch == checkpoint.base and len(chain) <= _LONGEST)
        if not fits:
            return asker, BackupRefused(owner, checkpoint.epoch, StoreOutcome.NEEDS_FULL)
        self.store.put(str(self._key(checkpoint)), [memoryview(encode(checkpoint))])
        if checkpoint.base is None:
            self.store.delete(str(key) for key in self._keys(checkpoint.owner) if _is_before(key, checkpoint.order))
        return MANAGER, BackupStored(owner, checkpoint.epoch, checkpoint.order, (STORAGE,))

    def _retrieve(self, message: Retrieve) -> Retrieved:
        """The whole backup; whoever takes it over marks where it begins, or to warm up, takes some slots only."""
        chain = self._chain(message.owner)
        if chain and message.warm_up is None:
            self.store.put(str(self._succession(message.asker, chain[-1])), [b"begins"])
        parts = [self._read(str(link)) for link in chain]
        slots = None if message.warm_up is None else message.warm_up.slots
        found = chain_checkpoints(parts[0], parts[1:], slots) if parts else None
        return Retrieved(message.asker, message.owner, found, message.warm_up)

    def _find(self, owner: Incarnation) -> BackupFound:
        chain = self._chain(owner.instance)
        return BackupFound(owner, chain[-1].epoch, chain[-1].order) if chain else BackupFound(owner, None, (-1, -1))

    def _delete(self, owner: InstanceId, up_to: tuple[int, int]) -> None:
        chain = self._chain(owner)
        if chain and chain[-1].order <= up_to:
            self.store.delete(map(str, self._keys(owner)))

    def clear(self) -> None:
        """The run is over: nobody needs its backups any more."""
        self.store.delete(self.store.list(backups_prefix(self.query, self.run)))

    # -- keys and values ----------------------------------------------------------------------------------------------

    def _key(self, checkpoint: Checkpoint) -> BackupKey:
        owner, base = checkpoint.owner, checkpoint.base
        return BackupKey(self.query, self.run, owner.operator, owner.index, *checkpoint.order, checkpoint.epoch, base)

    def _succession(self, successor: Incarnation, last: BackupKey) -> SuccessionKey:
        owner, before = successor.instance, (*last.order, last.epoch, last.base)
        return SuccessionKey(self.query, self.run, owner.operator, owner.index, successor.number, *before)

    def _keys(self, owner: InstanceId) -> list[OfBackup]:
        found = map(key_of, self.store.list(backups_prefix(self.query, self.run, owner)))
        return [key for key in found if isinstance(key, OfBackup)]

    def _successor(self, owner: InstanceId) -> int:
        """The latest incarnation that began from here."""
        return max((key.number for key in self._keys(owner) if isinstance(key, SuccessionKey)), default=-1)

    def _chain(self, owner: InstanceId) -> list[BackupKey]:
        """The newest full checkpoint that counts, and the deltas on it."""
        chain: list[BackupKey] = []
        for key in _counting(self._keys(owner)):
            if key.base is None:
                chain = [key]
            elif chain and chain[-1].epoch == key.base:
                chain.append(key)
        return chain

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


def _is_before(key: OfBackup, order: tuple[int, int]) -> bool:
    """Whether it is of no use beside a full checkpoint of that order."""
    return key.order < order if isinstance(key, BackupKey) else key.number < order[0]


class Asker(Protocol):
    """A process with backups in storage."""

    def on_answer(self, to: str, body: Any) -> None:
        """What the holder says to this process, or to the manager."""
        ...

    def on_storage_failed(self, reason: BaseException) -> None: ...


def stored_backups(settings: StorageSettings, query: str, run: str, asker: Asker) -> StorageHolder:
    """The holder for one process of a run."""
    store = store_of(settings)
    if store is None:
        raise InternalError("a backup is to be in storage, and there is none")
    return StorageHolder(StoredBackups(store, query, run), asker)


class StorageHolder:
    """`StoredBackups` on a thread of its own, so that nobody waits for the storage who need not."""

    def __init__(self, backups: StoredBackups, asker: Asker) -> None:
        self._backups, self._asker = backups, asker
        self._worker = Worker("seep storage", asker.on_storage_failed)

    def ask(self, asker: str, message: Any) -> None:
        """Answers come to `on_answer`."""
        self._worker.put(partial(self._answer, asker, message))

    def clear(self) -> None:
        """The run is over: nobody needs its backups any more."""
        self._backups.clear()

    def close(self) -> None:
        """What is under way is finished first."""
        self._worker.close()

    def _answer(self, asker: str, message: Any) -> None:
        for to, body in self._backups.answer(asker, message):
            self._asker.on_answer(to, body)
