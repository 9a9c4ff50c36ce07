"""Makes checkpoints: a run claims an id, writes blobs under it, and commits a manifest, unless it was fenced.

Two runs of one query never both add checkpoints. A run first claims the next *generation*, and then seals the open
checkpoints of earlier runs. A seal is stored under the manifest's key, and the store accepts only the first of the two.
After each claim of an id, a run looks for a newer generation. So either the newer run sees the claim and seals it, or
the older run sees the newer generation and stops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self

from primitives.errors import Damaged, EnvironmentFault, InternalError, SeepError
from seep.storage.layout import BlobKey
from seep.storage.reading import M, Reader
from seep.storage.records import Claim, Records, Seal
from seep.storage.store import AlreadyThere, NotThere


class Fenced(EnvironmentFault):
    """A later run of the query has taken over, so this run can add no more checkpoints."""


class Writer(Generic[M]):
    """Makes the checkpoints of one run of a query, until a later run takes over."""

    def __init__(self, records: Records, reader: Reader[M], run: str, note: Any = None) -> None:
        self.run = run
        self.generation = records.enter(run, note)
        self._records, self._reader = records, reader
        #: Ids that this run may have claimed and no longer works on, and that are not sealed yet.
        self._given_up: set[int] = set()
        self._last = 0
        self._seal_earlier_runs()

    def begin(self, builds_on: Iterable[int] = ()) -> Attempt[M]:
        """Claims the next id. The manifest may refer to blobs of the checkpoints in `builds_on`, which are then kept.

        Raises Fenced if a later run has taken over, and NotStanding if one of those checkpoints is gone.
        """
        claim = Claim(self.run, self.generation, tuple(builds_on))
        self._seal_given_up()
        attempt = Attempt(self._records, self._reader, self._claim_next(claim), self._given_up)
        try:
            self._check_newest()
            attempt.allow(*(self._reader.standing(id).blobs for id in claim.builds_on))
        except BaseException:
            attempt.abandon("it could not be begun")
            raise
        return attempt

    def _claim_next(self, claim: Claim) -> int:
        """Claims the next id after the highest one ever used, which a claim or the newest run's record shows."""
        while True:
            id = 1 + (self._last or self._records.last())
            self._last = 0  # after a failure, the next id is looked up and not guessed
            self._given_up.add(id)
            claimed = self._records.claim(id, claim)
            self._given_up.remove(id)
            if claimed:
                self._last = id
                return id

    def _check_newest(self) -> None:
        newest = self._records.generation()
        if newest > self.generation:
            raise Fenced(
                f"run {self.run!r} (generation {self.generation}) of {self._records.query} can add no checkpoint: run "
                f"{self._records.run_of(newest)!r} (generation {newest}) has taken over; stop one of the two"
            )

    def _seal_earlier_runs(self) -> None:
        reason = f"run {self.run!r} (generation {self.generation}) has taken over; stop one of the two"
        for id, keys in self._records.contents().checkpoints.items():
            if keys.open and self._is_earlier(id):
                self._records.seal(id, reason)

    def _is_earlier(self, id: int) -> bool:
        """Whether an earlier run claimed this checkpoint; also true if the claim cannot be read."""
        try:
            return self._records.claim_of(id).generation < self.generation
        except (NotThere, Damaged):
            return True

    def _seal_given_up(self) -> None:
        for id in tuple(self._given_up):
            with suppress(NotThere):
                if self._records.claim_of(id).generation == self.generation:
                    self._records.seal(id, "it was given up")
            self._given_up.discard(id)


class Attempt(Generic[M]):
    """A checkpoint that is being made. Used as a context, it is abandoned at the end unless it was committed."""

    def __init__(self, records: Records, reader: Reader[M], id: int, given_up: set[int]) -> None:
        self.id = id
        self._committed = False
        self._records, self._reader, self._given_up = records, reader, given_up
        #: Blobs of other checkpoints that the manifest may refer to.
        self._allowed: frozenset[str] = frozenset()

    def key(self, operator: str, name: str) -> str:
        """Returns the key for a blob of this checkpoint, for a writer that does not use the catalogue."""
        return str(BlobKey(self._records.query, self.id, operator, name))

    def put_blob(self, operator: str, name: str, parts: Iterable[bytes | memoryview]) -> str:
        """Stores a blob and returns its key, for the manifest."""
        key = self.key(operator, name)
        self._records.store.put(key, parts)
        return key

    def commit(self, manifest: bytes) -> M:
        """Stores the manifest, which completes the checkpoint.

        Raises Fenced. May be repeated after a fault of the store.
        """
        info = self._reader.describe(manifest, f"the manifest for checkpoint {self.id}")
        self._check(info)
        try:
            self._records.commit(self.id, manifest)
        except (AlreadyThere, NotThere):
            raise self._fenced() from None
        if not self._records.parts(self.id).claim:  # sealed and removed before
            self._records.remove_manifests([self.id])
            raise self._fenced()
        self._committed = True
        return info

    def abandon(self, reason: str = "it was given up") -> None:
        """Abandons the checkpoint, unless a commit has succeeded after all. `clean` removes what was written."""
        self._given_up.add(self.id)
        with suppress(SeepError):  # the next `begin`, or the next run, tries again
            self._records.seal(self.id, reason)
            self._given_up.discard(self.id)

    def allow(self, *blobs: Collection[str]) -> None:
        """Adds blobs of other checkpoints that the manifest may refer to."""
        self._allowed = self._allowed.union(*blobs)

    def _check(self, info: M) -> None:
        """Checks that everything that the manifest refers to exists."""
        if info.id != self.id:
            raise InternalError(f"the manifest for checkpoint {self.id} is that of checkpoint {info.id}")
        missing = set(info.blobs).difference(self._allowed, self._records.blobs(self.id))
        if missing:
            if self._is_over():
                raise self._fenced()  # a cleaning run may have removed blobs
            raise EnvironmentFault(
                f"checkpoint {self.id} of {self._records.query} cannot become complete: {self._records.store.name} has "
                f"no {min(missing)}, or it is of a checkpoint that this one does not build on"
            )

    def _is_over(self) -> bool:
        """Whether the checkpoint is sealed, or was sealed and then removed; its claim is removed before its seal.

        Manifest and claim are read one by one, because a listing made during a removal may show any part of it.
        """
        try:
            self._records.manifest(self.id)
        except NotThere:
            return not self._has_claim()
        except Damaged:
            return True
        return True

    def _has_claim(self) -> bool:
        try:
            self._records.claim_of(self.id)
        except NotThere:
            return False
        return True

    def _fenced(self) -> Fenced:
        found: bytes | Seal = Seal("it was given up and cleaned away")
        with suppress(NotThere, Damaged):
            found = self._records.manifest(self.id)
        reason = found.reason if isinstance(found, Seal) else "it has another manifest"
        return Fenced(f"checkpoint {self.id} of {self._records.query} cannot become complete: {reason}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._committed:
            self.abandon()
