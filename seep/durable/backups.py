"""Backups in storage: what plays the holder `STORAGE` for a node, or for the manager, which each work on it themselves.

A backup is a chain of values, a full checkpoint and deltas; their keys tell all that must be known of them. A successor
marks where it began, so that what its predecessor, dead or not, writes after that is never read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from primitives.backup import Stored
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
from seep.storage.layout import backups_prefix
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore
from seep.threads.worker import Worker

#: Deltas after which a full checkpoint is asked for: a restore reads all of them.
_LONGEST = 8

_KEY = re.compile(r"(?P<number>\d{6})-(?P<serial>\d{9})-(?P<epoch>\d{12})-(?P<base>\d{12}|full)")
_MARK = re.compile(r"(?P<number>\d{6})-begins-(?P<key>.+)")


class _Link(NamedTuple):
    """One checkpoint of a chain."""

    number: int
    serial: int
    epoch: int
    base: int | None
    key: str

    @property
    def order(self) -> tuple[int, int]:
        return self.number, self.serial


@dataclass(slots=True)
class StoredBackups:
    """The backups of one run below a prefix; several processes may use it, each on one thread."""

    store: BlobStore
    prefix: str

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
            return asker, BackupRefused(owner, checkpoint.epoch, Stored.FENCED)
        chain = self._chain(checkpoint.owner)
        fits = checkpoint.base is None or (chain and chain[-1].epoch == checkpoint.base and len(chain) <= _LONGEST)
        if not fits:
            return asker, BackupRefused(owner, checkpoint.epoch, Stored.NEEDS_FULL)
        self.store.put(self._key(checkpoint), [memoryview(encode(checkpoint))])
        if checkpoint.base is None:
            self.store.delete(key for key in self._keys(checkpoint.owner) if key < self._key(checkpoint))
        return MANAGER, BackupStored(owner, checkpoint.epoch, checkpoint.order, (STORAGE,))

    def _retrieve(self, message: Retrieve) -> Retrieved:
        """The whole backup; whoever takes it over marks where it begins, or to warm up, takes some slots only."""
        chain = self._chain(message.owner)
        if chain and message.warm_up is None:
            mark = f"{self._place(message.owner)}{message.asker.number:06d}-begins-{chain[-1].key.rpartition('/')[2]}"
            self.store.put(mark, [b"begins"])
        parts = [self._read(link.key) for link in chain]
        slots = None if message.warm_up is None else message.warm_up.slots
        found = chain_checkpoints(parts[0], parts[1:], slots) if parts else None
        return Retrieved(message.asker, message.owner, found, message.warm_up)

    def _find(self, owner: Incarnation) -> BackupFound:
        chain = self._chain(owner.instance)
        return BackupFound(owner, chain[-1].epoch, chain[-1].order) if chain else BackupFound(owner, None, (-1, -1))

    def _delete(self, owner: InstanceId, up_to: tuple[int, int]) -> None:
        chain = self._chain(owner)
        if chain and chain[-1].order <= up_to:
            self.store.delete(self._keys(owner))

    # -- keys and values ----------------------------------------------------------------------------------------------

    def _place(self, owner: InstanceId) -> str:
        return f"{self.prefix}/{owner.operator}/{owner.index}/"

    def _key(self, checkpoint: Checkpoint) -> str:
        base = "full" if checkpoint.base is None else f"{checkpoint.base:012d}"
        number, serial = checkpoint.order
        return f"{self._place(checkpoint.owner)}{number:06d}-{serial:09d}-{checkpoint.epoch:012d}-{base}"

    def _keys(self, owner: InstanceId) -> list[str]:
        return list(self.store.list(self._place(owner)))

    def _links(self, owner: InstanceId) -> list[_Link]:
        """All checkpoints that there are, in their order."""
        found = [(key, _KEY.fullmatch(key.rpartition("/")[2])) for key in self._keys(owner)]
        return sorted(_link(key, read) for key, read in found if read)

    def _marks(self, owner: InstanceId) -> dict[int, str]:
        """By incarnation, the key of the checkpoint that it began from."""
        place = self._place(owner)
        found = [_MARK.fullmatch(key.removeprefix(place)) for key in self._keys(owner)]
        return {int(read["number"]): place + read["key"] for read in found if read}

    def _successor(self, owner: InstanceId) -> int:
        """The latest incarnation that began from here."""
        return max(self._marks(owner), default=-1)

    def _chain(self, owner: InstanceId) -> list[_Link]:
        """The newest full checkpoint that counts, and the deltas on it."""
        chain: list[_Link] = []
        for link in self._counting(owner):
            if link.base is None:
                chain = [link]
            elif chain and chain[-1].epoch == link.base:
                chain.append(link)
        return chain

    def _counting(self, owner: InstanceId) -> list[_Link]:
        """Without those that an incarnation wrote after its successor had begun."""
        links, marks = self._links(owner), self._marks(owner)
        for number, key in sorted(marks.items(), reverse=True):
            began = _KEY.fullmatch(key.rpartition("/")[2])
            last = _link(key, began).order if began else (-1, -1)
            links = [link for link in links if link.number >= number or link.order <= last]
        return links

    def _read(self, key: str) -> Checkpoint:
        value = decode(pa.py_buffer(self.store.get(key)))
        if not isinstance(value, Checkpoint):
            raise EnvironmentFault(f"{key} in {self.store.name} is no checkpoint; it is damaged, or not of this query")
        return value


def _link(key: str, read: re.Match[str]) -> _Link:
    base = None if read["base"] == "full" else int(read["base"])
    return _Link(int(read["number"]), int(read["serial"]), int(read["epoch"]), base, key)


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
    return StorageHolder(StoredBackups(store, backups_prefix(query, run)), asker)


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
        self._backups.store.delete(self._backups.store.list(self._backups.prefix + "/"))

    def close(self) -> None:
        """What is under way is finished first."""
        self._worker.close()

    def _answer(self, asker: str, message: Any) -> None:
        for to, body in self._backups.answer(asker, message):
            self._asker.on_answer(to, body)
