"""Reads which checkpoints of a query are complete, and their manifests, while others add and remove checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from primitives.errors import Damaged, EnvironmentFault
from seep.storage.layout import Contents
from seep.storage.records import Records, Seal
from seep.storage.store import NotThere

_TRIES = 20


class ManifestInfo(Protocol):
    """The properties of a manifest that the catalogue needs."""

    @property
    def id(self) -> int: ...

    @property
    def savepoint(self) -> bool:
        """Whether the checkpoint is kept until it is disposed of by its id."""
        ...

    @property
    def blobs(self) -> Collection[str]:
        """Keys of all blobs that the checkpoint refers to, including blobs of earlier checkpoints."""
        ...

    @property
    def pushed(self) -> Collection[str]:
        """Names of the sources that Spark pushes to."""
        ...


M = TypeVar("M", bound=ManifestInfo)


class NotStanding(EnvironmentFault):
    """A checkpoint is not complete, or is being removed."""


@dataclass(frozen=True, slots=True)
class Survey(Generic[M]):
    """Everything that exists of a query, listed twice."""

    before: Contents
    after: Contents
    complete: dict[int, M]  #: the newest first, including those that are being removed
    damaged: dict[int, str]  #: checkpoints whose manifest is damaged, and how

    def standing(self) -> list[M]:
        """Returns the complete checkpoints for which no removal is announced, the newest first."""
        return [info for id, info in self.complete.items() if self.after.checkpoint(id).standing]

    def half_removed(self) -> list[int]:
        """Returns the checkpoints whose removal is announced but not finished; the remover may have died."""
        return [id for id in (*self.complete, *self.damaged) if not self.after.checkpoint(id).standing]


class Reader(Generic[M]):
    """Reads each manifest once: an id is never used twice, and a manifest never changes."""

    def __init__(self, records: Records, describe: Callable[[bytes, str], M]) -> None:
        self.describe = describe
        self._records = records
        #: Known results: of checkpoints that were complete (and may be removed by now) or sealed.
        self._known: dict[int, M | Seal] = {}

    def standing(self, id: int) -> M:
        """Returns the manifest of a complete checkpoint that is not being removed. Raises NotStanding or Damaged."""
        there = self._records.parts(id)
        if not there.standing:
            raise self._not_standing(id, "it is not complete" if there.open else "there is none, or not any more")
        try:
            info = self._info(id)
        except NotThere:
            raise self._not_standing(id, "it was removed just now") from None
        if isinstance(info, Seal):
            raise self._not_standing(id, f"it will never be complete: {info.reason}")
        return info

    def survey(self) -> Survey[M]:
        """Lists everything that exists.

        One listing may miss both a key that was removed and the key that replaced it meanwhile. So there are two
        listings: whatever was removed before the first was replaced before the second. If a manifest is removed before
        it is read, the survey starts again.
        """
        for _ in range(_TRIES):
            before, after = self._records.contents(), self._records.contents()
            with suppress(NotThere):
                return self._survey(before, after)
        raise EnvironmentFault(
            f"checkpoints of {self._records.query} in {self._records.store.name} change all the time"
        )

    def _survey(self, before: Contents, after: Contents) -> Survey[M]:
        settled = {id for found in (before, after) for id, keys in found.checkpoints.items() if keys.settled}
        complete, damaged = dict[int, M](), dict[int, str]()
        for id in sorted(settled, reverse=True):
            try:
                info = self._info(id)
            except Damaged as reason:
                damaged[id] = str(reason)
                continue
            if not isinstance(info, Seal):
                complete[id] = info
        self._known = {id: info for id, info in self._known.items() if id in settled}
        return Survey(before, after, complete, damaged)

    def _info(self, id: int) -> M | Seal:
        if id not in self._known:
            found = self._records.manifest(id)
            self._known[id] = found if isinstance(found, Seal) else self._described(id, found)
        return self._known[id]

    def _described(self, id: int, manifest: bytes) -> M:
        info = self.describe(manifest, self._where(id))
        if info.id != id:
            raise Damaged(f"{self._where(id)} is damaged: its manifest is that of checkpoint {info.id}")
        return info

    def _not_standing(self, id: int, reason: str) -> NotStanding:
        return NotStanding(f"{self._where(id)} cannot be used: {reason}")

    def _where(self, id: int) -> str:
        return f"checkpoint {id} of {self._records.query} in {self._records.store.name}"
