"""Making checkpoints: a run claims an id, writes blobs under it, and commits a manifest, unless it was fenced.

Two runs of one query never both add checkpoints. A run first claims the next *generation*, and then seals what
earlier ones have begun: a seal takes the place of a manifest, and the store lets only one of the two be there. A run
that claims an id looks for a newer generation afterwards. So either its claim is seen and sealed, or it sees.
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
    """A later run of the query has taken over, so this one can add no checkpoints any more."""


class Writer(Generic[M]):
    """A run of a query, as long as no later one has taken over."""

    def __init__(self, records: Records, reader: Reader[M], run: str, note: Any = None) -> None:
        self.run = run
        self.generation = records.enter(run, note)
        self._records, self._reader = records, reader
        #: Ids that this run may have claimed, and works on no more; not yet sealed.
        self._given_up: set[int] = set()
        self._last = 0
        self._seal_earlier_runs()

    def begin(self, builds_on: Iterable[int] = ()) -> Attempt[M]:
        """Claims the next id. Its manifest may refer to blobs of the checkpoints that it `builds_on`, which stay.

        Fenced; NotStanding if one of those is gone.
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
        """Ids are never given twice: the highest one stays in a claim, or in the record of the newest run."""
        while True:
            id = 1 + (self._last or self._records.last())
            self._last = 0  # whatever happens, the next one is looked up, not guessed
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
        """A claim that cannot be read is nobody's."""
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
    """A checkpoint that is under way. As a context, it is given up at the end unless it was committed."""

    def __init__(self, records: Records, reader: Reader[M], id: int, given_up: set[int]) -> None:
        self.id = id
        self._committed = False
        self._records, self._reader, self._given_up = records, reader, given_up
        #: Blobs of other checkpoints that the manifest may refer to.
        self._allowed: frozenset[str] = frozenset()

    def key(self, operator: str, name: str) -> str:
        """Where a blob of it is to be; whoever writes it there need not know the catalogue."""
        return str(BlobKey(self._records.query, self.id, operator, name))

    def put_blob(self, operator: str, name: str, parts: Iterable[bytes | memoryview]) -> str:
        """Stores a blob; its key, for the manifest."""
        key = self.key(operator, name)
        self._records.store.put(key, parts)
        return key

    def commit(self, manifest: bytes) -> M:
        """From now on the checkpoint is complete. Fenced; after a fault of the store it may be called again."""
        info = self._reader.describe(manifest, f"the manifest for checkpoint {self.id}")
        self._check(info)
        try:
            self._records.commit(self.id, manifest)
        except (AlreadyThere, NotThere):
            raise self._fenced() from None
        if not self._records.parts(self.id).claim:  # sealed and cleaned away, long ago
            self._records.remove_manifests([self.id])
            raise self._fenced()
        self._committed = True
        return info

    def abandon(self, reason: str = "it was given up") -> None:
        """Gives it up, unless a commit went through after all. What it leaves, `clean` removes."""
        self._given_up.add(self.id)
        with suppress(SeepError):  # the next `begin` tries again, or the next run does
            self._records.seal(self.id, reason)
            self._given_up.discard(self.id)

    def allow(self, *blobs: Collection[str]) -> None:
        """Blobs of others that its manifest may refer to."""
        self._allowed = self._allowed.union(*blobs)

    def _check(self, info: M) -> None:
        """A complete checkpoint never refers to what is not there."""
        if info.id != self.id:
            raise InternalError(f"the manifest for checkpoint {self.id} is that of checkpoint {info.id}")
        missing = set(info.blobs).difference(self._allowed, self._records.blobs(self.id))
        if missing:
            if self._is_over():
                raise self._fenced()  # and whoever cleans may have removed blobs
            raise EnvironmentFault(
                f"checkpoint {self.id} of {self._records.query} cannot become complete: {self._records.store.name} has "
                f"no {min(missing)}, or it is of a checkpoint that this one does not build on"
            )

    def _is_over(self) -> bool:
        """Whether it is sealed, or was, and is cleaned away: then its claim goes before its seal.

        Asked of each by itself, as a listing may have any part of what is removed meanwhile.
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
