"""Removing checkpoints: what may go, and in which order, so that whoever crashes or comes between loses nothing.

1. The removal of a checkpoint is announced. From then on nobody can pin it or begin to build on it.
2. If somebody did before, or no other complete one would be left, this is taken back.
3. Its manifest goes, and with that it is gone.
4. Blobs go to which no manifest refers any more, but for those of attempts that are under way.
5. The rest goes: the claim, then a seal, and announcements last. Without a claim nothing counts that comes late. The
   highest claim of all stays, so that no id is given twice, unless the record of the newest run says as much.
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
    """A checkpoint that was to go is read, or built upon, or the last one."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a removal came to."""

    disposed: tuple[int, ...]  #: checkpoints that are gone
    blobs: int  #: how many of them are gone
    held: dict[int, str]  #: checkpoints that were to go and stay, and why
    damaged: dict[int, str]  #: those whose manifest cannot be read: they stay, and so do all older blobs


class Disposal(Generic[M]):
    """Removal of one query's checkpoints."""

    def __init__(self, records: Records, reader: Reader[M], clock: Callable[[], float]) -> None:
        self._records, self._reader, self._clock = records, reader, clock

    def remove(self, ids: Collection[int], *, last: bool = False, or_none: bool = False) -> Cleaned:
        """Removes these, and all that nothing refers to.

        Those in use stay; with `or_none`, then all of them do (InUse). With `last`, no complete one needs to be left.
        """
        held = self._held(ids, last)
        wanted = [] if held and or_none else sorted(set(ids).difference(held))
        announced = self._announce(wanted)
        late = self._held(wanted, last)
        self._take_back([announced[id] for id in (wanted if late and or_none else late)])
        held |= late
        if held and or_none:
            id, reason = min(held.items())
            raise InUse(f"checkpoint {id} of {self._records.query} cannot be disposed of: {reason}")
        disposed = tuple(id for id in wanted if id not in late)
        self._records.remove_manifests(disposed)
        blobs, damaged = self._sweep()
        return Cleaned(disposed, blobs, held, damaged)

    def _announce(self, ids: Iterable[int]) -> dict[int, str]:
        """Under a name of its own for each removal, so that one which gives way does not speak for another."""
        token = uuid.uuid4().hex
        return {id: self._records.announce_removal(id, token) for id in ids}

    def _take_back(self, announcements: Iterable[str]) -> None:
        self._records.store.delete(announcements)

    def _held(self, ids: Collection[int], last: bool) -> dict[int, str]:
        """Which of these have to stay, and why: asked before the announcement, for it not to be made in vain, and
        after it, when whatever was begun before it can be seen.
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
        """Checkpoints on which one builds that is under way."""
        bases = dict[int, str]()
        for id in [id for id, keys in found.checkpoints.items() if keys.open]:
            with suppress(NotThere):  # it is over, and was cleaned away just now
                builds_on = self._records.claim_of(id).builds_on
                bases |= dict.fromkeys(builds_on, f"checkpoint {id}, which is under way, builds on it")
        return bases

    def _reader_of(self, found: Contents, id: int) -> str:
        now, newest = self._clock(), max(found.generations, default=0)
        leases = (lease for _, lease in self._records.leases(found.checkpoint(id)))
        return next((f"{lease.reader} reads it" for lease in leases if lease.counts(now, newest)), "")

    def _sweep(self) -> tuple[int, dict[int, str]]:
        """Removes what nothing refers to; how many blobs, and which manifests could not be read."""
        survey = self._reader.survey()
        referred = {blob for info in survey.complete.values() for blob in info.blobs}
        garbage = {id: self._garbage(survey, id, referred) for id in survey.before.checkpoints}
        self._records.store.delete(blob for blobs in garbage.values() for blob in blobs)
        written = self._records.last_of_newest_run()
        self._remove_parts([id for id in garbage if self._is_over(survey, id, len(garbage[id]), written)], survey)
        self._remove_signs_of_the_past(survey)
        return sum(map(len, garbage.values())), survey.damaged

    def _garbage(self, survey: Survey[M], id: int, referred: Collection[str]) -> list[str]:
        """Blobs of a checkpoint that nobody needs. What a damaged manifest says nobody knows, so older ones stay."""
        if survey.after.checkpoint(id).open or id <= max(survey.damaged, default=0):
            return []
        return [blob for blob in survey.before.checkpoint(id).blobs if blob not in referred]

    def _is_over(self, survey: Survey[M], id: int, garbage: int, written: int) -> bool:
        """Whether all there was of a checkpoint may go; that ids up to `written` were given is told elsewhere."""
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
        """Runs before the last one, what they have left that no later one needs, and leases that have run out."""
        found = survey.before
        runs = [str(RunKey(self._records.query, each)) for each in sorted(found.generations)[:-1]]
        left = self._backups_of_others(found) + self._pushed_to_nobody(survey)
        self._records.store.delete(runs + left + self._past_leases(found))

    def _past_leases(self, found: Contents) -> list[str]:
        leases = (each for keys in found.checkpoints.values() for each in self._records.leases(keys))
        now, newest = self._clock(), max(found.generations, default=0)
        return [key for key, lease in leases if not lease.counts(now, newest)]

    def _backups_of_others(self, found: Contents) -> list[str]:
        """Backups are for the run that keeps them, and no run but the newest can still be one that counts."""
        if not found.backups or not found.generations:
            return []
        newest = self._records.run_of(max(found.generations))
        return [key for run, keys in found.backups.items() if newest and run != newest for key in keys]

    def _pushed_to_nobody(self, survey: Survey[M]) -> list[str]:
        """What Spark has pushed to sources that no checkpoint has: a run stores that it has one before it is pushed to.

        What a damaged manifest says nobody knows.
        """
        if survey.damaged:
            return []
        read = {source for info in survey.complete.values() for source in info.pushed}
        return [key for source, keys in survey.before.pushed.items() if source not in read for key in keys]
