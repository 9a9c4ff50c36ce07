"""The checkpoints of a query that are in a store: to add some, to find and read them, to remove them."""

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

#: Seconds that a reader may take before it has to say that it goes on.
LEASE = 3600.0


class Catalogue(Generic[M]):
    """Of one query in one store. Any number of these, on any machines, may be at work at once.

    `describe` turns the bytes of a manifest and a name for messages into what the catalogue needs to know, and what
    else its users want: `formats.manifest.read_manifest`.

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
        """A run begins. From now on no run before it can add a checkpoint. Later ones can read its `note`: JSON."""
        return Writer(self._records, self._reader, run, note)

    def last_note(self) -> Any:
        """What the last run that had anything to note has noted when it began; None if nobody has."""
        return self._records.last_note()

    def complete(self) -> list[M]:
        """What the manifests of all complete checkpoints say, the newest first; without damaged ones."""
        return self._reader.survey().standing()

    def damaged(self) -> dict[int, str]:
        """Checkpoints whose manifest is not as it was written, and in what way."""
        return self._reader.survey().damaged

    def latest(self, *, fall_back: bool = False) -> M | None:
        """The newest complete checkpoint; if its manifest is damaged, Damaged, or with `fall_back` the one before.

        That tells nothing of its blobs.
        """
        survey = self._reader.survey()
        newest = next(iter(survey.standing()), None)
        above = [reason for id, reason in survey.damaged.items() if newest is None or id > newest.id]
        if above and not fall_back:
            instead = "there is no other" if newest is None else f"the newest one that can be read is {newest.id}"
            raise Damaged(f"{above[0]}; {instead}")
        return newest

    def standing(self, id: int) -> M:
        """What the manifest of a complete checkpoint says; Damaged, NotStanding."""
        return self._reader.standing(id)

    def read_manifest(self, id: int) -> bytes:
        """The manifest of a complete checkpoint, as it was written; Damaged, NotStanding."""
        self._reader.standing(id)
        manifest = self._records.manifest(id)
        assert isinstance(manifest, bytes), "what is complete stays so, or is gone"
        return manifest

    def pin(self, id: int, reader: str, lease: float = LEASE) -> Pin[M]:
        """Keeps a complete checkpoint while it is read (NotStanding, Damaged); `reader` is for messages."""
        return Pin(self._records, self._reader, id, reader, lease, self._clock)

    def pin_for_run(self, id: int, run: str, lease: float) -> Pin[M]:
        """As `pin`, for the newest run or one that is about to begin: only until another run begins."""
        return Pin(self._records, self._reader, id, run, lease, self._clock, self._records.generation())

    def clean(self, keep: int) -> Cleaned:
        """Leaves the newest `keep` complete checkpoints, all savepoints and whatever is in use, and nothing else.

        Removals whose process has died are brought to their end.
        """
        if keep < 1:
            raise UserError(f"keep is {keep}; at least one checkpoint is kept, or else dispose of all")
        survey = self._reader.survey()
        ordinary = [info.id for info in survey.standing() if not info.savepoint]
        return self._disposal.remove([*ordinary[keep:], *survey.half_removed()])

    def dispose(self, ids: Iterable[int]) -> Cleaned:
        """Removes these checkpoints or savepoints, complete or damaged; InUse if one is in use, or all would go."""
        wanted = set(ids)
        survey = self._reader.survey()
        unknown = wanted.difference(survey.complete, survey.damaged)
        if unknown:
            there = ", ".join(map(str, sorted({*survey.complete, *survey.damaged}))) or "none"
            raise UserError(f"there is no checkpoint {min(unknown)} of {self._records.query}; there are: {there}")
        return self._disposal.remove(wanted, or_none=True)

    def dispose_older_than(self, id: int) -> Cleaned:
        """Removes the checkpoints with lower ids; savepoints, what is in use, and the last one there is stay."""
        ordinary = [info.id for info in self.complete() if not info.savepoint]
        return self._disposal.remove([each for each in ordinary[1:] if each < id])

    def dispose_all(self) -> Cleaned:
        """Removes everything, savepoints, backups and what was pushed too, and ends the run that may be under way.

        InUse if a checkpoint is read. Only the record stays that this was done: by it, a run that was under way
        finds that it was taken over, and no number of a checkpoint is given twice.
        """
        self.enter("dispose_all")
        survey = self._reader.survey()
        return self._disposal.remove({*survey.complete, *survey.damaged}, last=True, or_none=True)
