"""The catalogue of a query's checkpoints in a store: adds, finds, reads and removes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Generic

from formats.avro_file import Damaged
from primitives.errors import UserError
from seep.storage.attempt import Writer
from seep.storage.disposal import Cleaned, Disposal
from seep.storage.pins import Pin
from seep.storage.reading import M, Reader
from seep.storage.records import Records
from seep.storage.store import BlobStore

#: Seconds after which a reader must renew its pin.
LEASE = 3600.0


class Catalogue(Generic[M]):
    """The checkpoints of one query in one store. Any number of catalogues, on any machines, may work at once.

    `describe` gets the bytes of a manifest and a name for messages. It returns what the catalogue, and its users, need
    to know of the manifest: `formats.manifest.read_manifest`.

    >>> from collections import namedtuple
    >>> from seep.storage.memory import MemoryStore
    >>> Info = namedtuple("Info", "id savepoint blobs pushed")
    >>> orders = Catalogue(MemoryStore("demo"), "orders", lambda data, name: Info(int(data), False, (), {}))
    >>> run = orders.enter("monday")
    >>> with run.begin() as attempt:
    ...     attempt.commit(b"%d" % attempt.id)
    Info(id=1, savepoint=False, blobs=(), pushed={})
    >>> orders.latest().id
    1
    """

    def __init__(
        self, store: BlobStore, query: str, describe: Callable[[bytes, str], M], clock: Callable[[], float] = time.time
    ) -> None:
        self._records = Records(store, query)
        self._reader = Reader(self._records, describe)
        self._disposal = Disposal(self._records, self._reader, clock)
        self._clock = clock

    def enter(self, run: str, note: Any = None) -> Writer[M]:
        """Begins a run.

        From now on no earlier run can add a checkpoint. Later runs can read its `note`, which is JSON.
        """
        return Writer(self._records, self._reader, run, note)

    def last_note(self) -> Any:
        """Returns the latest note that a run left when it began, or None."""
        return self._records.last_note()

    def complete(self) -> list[M]:
        """Returns the manifests of all complete checkpoints, the newest first, without the damaged ones."""
        return self._reader.survey().standing()

    def damaged(self) -> dict[int, str]:
        """Returns the checkpoints whose manifest is damaged, and how."""
        return self._reader.survey().damaged

    def latest(self, *, fall_back: bool = False) -> M | None:
        """Returns the newest complete checkpoint, or None.

        If its manifest is damaged, raises Damaged; with `fall_back`, returns the one before it instead. The blobs are
        not checked.
        """
        survey = self._reader.survey()
        newest = next(iter(survey.standing()), None)
        above = [reason for id, reason in survey.damaged.items() if newest is None or id > newest.id]
        if above and not fall_back:
            instead = "there is no other" if newest is None else f"the newest one that can be read is {newest.id}"
            raise Damaged(f"{above[0]}; {instead}")
        return newest

    def standing(self, id: int) -> M:
        """Returns the manifest of a complete checkpoint. Raises Damaged or NotStanding."""
        return self._reader.standing(id)

    def read_manifest(self, id: int) -> bytes:
        """Returns the bytes of a complete checkpoint's manifest. Raises Damaged or NotStanding."""
        self._reader.standing(id)
        manifest = self._records.manifest(id)
        assert isinstance(manifest, bytes), "what is complete stays so, or is gone"
        return manifest

    def pin(self, id: int, reader: str, lease: float = LEASE) -> Pin[M]:
        """Protects a complete checkpoint from removal while `reader` reads it. Raises NotStanding or Damaged."""
        return Pin(self._records, self._reader, id, reader, lease, self._clock)

    def pin_for_run(self, id: int, run: str, lease: float) -> Pin[M]:
        """Pins like `pin`, for the newest run or one that is about to begin; the pin ends when another run begins."""
        return Pin(self._records, self._reader, id, run, lease, self._clock, self._records.generation())

    def clean(self, keep: int) -> Cleaned:
        """Removes everything but the newest `keep` complete checkpoints, all savepoints, and checkpoints in use.

        Also finishes removals whose process has died.
        """
        if keep < 1:
            raise UserError(f"keep is {keep}; at least one checkpoint is kept, or else dispose of all")
        survey = self._reader.survey()
        ordinary = [info.id for info in survey.standing() if not info.savepoint]
        return self._disposal.remove([*ordinary[keep:], *survey.half_removed()])

    def dispose(self, ids: Iterable[int]) -> Cleaned:
        """Removes these checkpoints or savepoints, complete or damaged.

        Raises InUse if one of them is in use, or if no complete one would be left.
        """
        wanted = set(ids)
        survey = self._reader.survey()
        unknown = wanted.difference(survey.complete, survey.damaged)
        if unknown:
            there = ", ".join(map(str, sorted({*survey.complete, *survey.damaged}))) or "none"
            raise UserError(f"there is no checkpoint {min(unknown)} of {self._records.query}; there are: {there}")
        return self._disposal.remove(wanted, or_none=True)

    def dispose_older_than(self, id: int) -> Cleaned:
        """Removes the checkpoints with lower ids.

        Savepoints, checkpoints in use, and the last complete one are kept.
        """
        ordinary = [info.id for info in self.complete() if not info.savepoint]
        return self._disposal.remove([each for each in ordinary[1:] if each < id])

    def dispose_all(self) -> Cleaned:
        """Removes everything of the query, with savepoints, backups and pushed rows, and ends a run in progress.

        Raises InUse if a checkpoint is being read. Only a record of this removal is kept: by it, a run in progress
        finds that it was taken over, and no id is used twice.
        """
        self.enter("dispose_all")
        survey = self._reader.survey()
        return self._disposal.remove({*survey.complete, *survey.damaged}, last=True, or_none=True)
