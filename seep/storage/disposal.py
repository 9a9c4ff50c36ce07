"""Removes checkpoints in an order in which a crash, or another process at the same time, loses nothing.

1. The removal of a checkpoint is announced. From then on nobody can pin it or begin to build on it.
2. If somebody did so before, or no other complete one would be left, the announcement is taken back.
3. The manifest is removed; from then on the checkpoint does not exist.
4. Blobs are removed to which no manifest refers, except blobs of attempts in progress.
5. The rest is removed: first the claim, then a seal, and announcements last. Without a claim, nothing that is written
   late counts.

The highest claim is kept, so that no id is used twice, unless the record of the newest run has that id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic

from primitives.errors import UserError
from seep.storage.layout import Contents, RunKey
from seep.storage.reading import M, Reader, Survey
from seep.storage.records import Records
from seep.storage.store import NotThere


class InUse(UserError):
    """A checkpoint cannot be removed: it is being read, is built upon, or is the last complete one."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of a removal."""

    disposed: tuple[int, ...]  #: removed checkpoints
    blobs: int  #: number of removed blobs
    held: dict[int, str]  #: checkpoints that could not be removed, and why
    damaged: dict[int, str]  #: checkpoints whose manifest cannot be read; they and all older blobs are kept


class Disposal(Generic[M]):
    """Removes checkpoints of one query."""

    def __init__(self, records: Records, reader: Reader[M], clock: Callable[[], float]) -> None:
        self._records, self._reader, self._clock = records, reader, clock

    def remove(self, ids: Collection[int], *, last: bool = False, or_none: bool = False) -> Cleaned:
        """Removes these checkpoints, and every blob that no manifest refers to.

        Checkpoints in use are kept. With `or_none`, nothing is removed if one is in use (InUse). With `last`, the last
        complete one may be removed too.
        """
        held = self._held(ids, last)
        wanted = [] if held and or_none else sorted(set(ids).difference(held))
        announced = self._announce(wanted)
        late = self._held(wanted, last)
        self._records.store.delete([announced[id] for id in (wanted if late and or_none else late)])
        held |= late
        if held and or_none:
            id, reason = min(held.items())
            raise InUse(f"checkpoint {id} of {self._records.query} cannot be disposed of: {reason}")
        disposed = tuple(id for id in wanted if id not in late)
        self._records.remove_manifests(disposed)
        blobs, damaged = self._sweep()
        return Cleaned(disposed, blobs, held, damaged)

    def _announce(self, ids: Iterable[int]) -> dict[int, str]:
        """Announces removals under a new name each time, so that taking one back does not take back another's."""
        token = uuid.uuid4().hex
        return {id: self._records.announce_removal(id, token) for id in ids}

    def _held(self, ids: Collection[int], last: bool) -> dict[int, str]:
        """Returns which of these must be kept, and why.

        Called before the announcement, to avoid one in vain, and after it, when everything that began before it is
        visible.
        """
        if not ids:
            return {}
        survey = self._reader.survey()
        bases = self._bases(survey.after)
        others = [info for info in survey.standing() if info.id not in ids]
        alone = "" if last or others else "no other complete checkpoint would be left"
        reasons = {id: bases.get(id) or self._reader_of(survey.after, id) or alone for id in ids}
        return {id: reason for id, reason in reasons.items() if reason}

    def _bases(self, found: Contents) -> dict[int, str]:
        """Returns the checkpoints on which a checkpoint in progress builds."""
        bases = dict[int, str]()
        for id in [id for id, keys in found.checkpoints.items() if keys.open]:
            with suppress(NotThere):  # it has ended and was removed just now
                builds_on = self._records.claim_of(id).builds_on
                bases |= dict.fromkeys(builds_on, f"checkpoint {id}, which is under way, builds on it")
        return bases

    def _reader_of(self, found: Contents, id: int) -> str:
        now, newest = self._clock(), max(found.generations, default=0)
        leases = (lease for _, lease in self._records.leases(found.checkpoint(id)))
        return next((f"{lease.reader} reads it" for lease in leases if lease.counts(now, newest)), "")

    def _sweep(self) -> tuple[int, dict[int, str]]:
        """Removes what nothing refers to. Returns the number of blobs, and the manifests that could not be read."""
        survey = self._reader.survey()
        referred = {blob for info in survey.complete.values() for blob in info.blobs}
        garbage = {id: self._garbage(survey, id, referred) for id in survey.before.checkpoints}
        self._records.store.delete(blob for blobs in garbage.values() for blob in blobs)
        written = self._records.last_of_newest_run()
        self._remove_parts([id for id in garbage if self._is_over(survey, id, len(garbage[id]), written)], survey)
        self._remove_signs_of_the_past(survey)
        return sum(map(len, garbage.values())), survey.damaged

    def _garbage(self, survey: Survey[M], id: int, referred: Collection[str]) -> list[str]:
        """Returns a checkpoint's unused blobs; none below a damaged manifest, which might refer to them."""
        if survey.after.checkpoint(id).open or id <= max(survey.damaged, default=0):
            return []
        return [blob for blob in survey.before.checkpoint(id).blobs if blob not in referred]

    def _is_over(self, survey: Survey[M], id: int, garbage: int, written: int) -> bool:
        """Whether all parts of a checkpoint may be removed.

        Another record proves that ids up to `written` were used.
        """
        return not (
            survey.after.checkpoint(id).open
            or id in survey.complete
            or id in survey.damaged
            or id == max(survey.after.checkpoints) > written
            or len(survey.before.checkpoint(id).blobs) > garbage
        )

    def _remove_parts(self, ids: Collection[int], survey: Survey[M]) -> None:
        gone = [survey.after.checkpoint(id) for id in ids]
        delete = self._records.store.delete
        delete(keys.claim for keys in gone if keys.claim)
        delete(keys.manifest for keys in gone if keys.manifest)
        delete(key for keys in gone for key in (*keys.pins, *keys.removals))

    def _remove_signs_of_the_past(self, survey: Survey[M]) -> None:
        """Removes records of earlier runs, what those runs left and no later run needs, and expired leases."""
        found = survey.before
        runs = [str(RunKey(self._records.query, each)) for each in sorted(found.generations)[:-1]]
        left = self._backups_of_others(found) + self._pushed_to_nobody(survey)
        self._records.store.delete(runs + left + self._past_leases(found))

    def _past_leases(self, found: Contents) -> list[str]:
        leases = (each for keys in found.checkpoints.values() for each in self._records.leases(keys))
        now, newest = self._clock(), max(found.generations, default=0)
        return [key for key, lease in leases if not lease.counts(now, newest)]

    def _backups_of_others(self, found: Contents) -> list[str]:
        """Returns the backups of all runs but the newest: only the run that wrote them uses them."""
        if not found.backups or not found.generations:
            return []
        newest = self._records.run_of(max(found.generations))
        return [key for run, keys in found.backups.items() if newest and run != newest for key in keys]

    def _pushed_to_nobody(self, survey: Survey[M]) -> list[str]:
        """Returns rows that Spark pushed to sources that no checkpoint has.

        A run stores a checkpoint with the source before Spark pushes to it, so such rows belong to no run. If a
        manifest is damaged, its sources are not known, and nothing is returned.
        """
        if survey.damaged:
            return []
        read = {source for info in survey.complete.values() for source in info.pushed}
        return [key for source, keys in survey.before.pushed.items() if source not in read for key in keys]
