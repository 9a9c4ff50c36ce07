"""The archivist: requests cuts at intervals, and makes checkpoints in storage from those that are complete."""

from __future__ import annotations

import itertools
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from formats.manifest import Component, Manifest, ManifestPart, component_of
from formats.persist import compact_state, stored_bytes
from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
from primitives.slots import SlotSet
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.protocol.cuts import Cut, CutComplete
from seep.query.program import Resume
from seep.record.events import (
    CheckpointFailed,
    CheckpointPersisted,
    CleaningFailed,
    Compacted,
    CompactionFailed,
    RunResumed,
    SavepointStored,
)
from seep.rows.position import Position, rows_up_to
from seep.storage.attempt import Attempt, Fenced, Writer
from seep.storage.catalogue import Catalogue
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.threads.requests import Requests

T = TypeVar("T")
A = TypeVar("A")

#: Seconds for which the checkpoint that a run began from is pinned; the run renews the pin in time.
_LEASE = 600.0
#: Seconds that a run which is stopped waits for its last checkpoint.
_PARTING = 10.0
#: Attempts for the last checkpoint of a run that ends, and seconds between two attempts.
_LAST_TRIES, _LAST_PAUSE = 5, 1.0
_NOT_STORED = (
    "the input has ended, but the last checkpoint could not be stored, as the events before tell; start the query "
    "again with the same storage, and it goes on from the checkpoint before, each row exactly once"
)


class Archivist(RunListener):
    """Takes one cut at a time, on its own thread, because storage may be slow, and the manager must not wait."""

    def __init__(
        self,
        process: ManagerProcess,
        settings: StorageSettings,
        catalogue: Catalogue[Manifest] | None,
        every: float | None,
        run: str,
    ) -> None:
        self._process, self._settings, self._every = process, settings, every
        self._catalogue = catalogue
        self._writer: Writer[Manifest] | None = catalogue.enter(run, self._notes) if catalogue is not None else None
        resume = process.program.resume
        self._pin = catalogue.pin_for_run(resume.checkpoint, f"run {run}", _LEASE) if catalogue and resume else None
        self._previous: Manifest | None = None
        #: checkpoints of abandoned lines, and the first batches that Spark pushes in this run's line
        self._abandoned: tuple[int, ...] = ()
        self._pushed: Mapping[str, int] = {}
        self._is_first, self._last_tries = True, 0
        #: the times when the next checkpoint is due without a request, and when the lease is renewed
        self._due, self._renewal = math.inf, time.monotonic() + _LEASE / 2
        #: requested checkpoints; True for a savepoint
        self._wanted: Requests[bool, Manifest] = Requests()
        #: operators whose state was requested
        self._looks: Requests[str, CutComplete] = Requests()
        self._looked = itertools.count(1)
        self._results: dict[int, CutComplete | str] = {}
        self._is_ending = False
        self._over = threading.Event()
        self._news = threading.Condition()  #: notified when something that its thread waits for may be there
        self._thread = threading.Thread(target=self._run, name="seep archivist", daemon=True)
        process.subscribe(self)

    @property
    def generation(self) -> int:
        """The number of runs of this query that have used the storage."""
        return self._writer.generation if self._writer else 1

    @property
    def _notes(self) -> dict[str, Any]:
        """Returns what a later run must know of this one, even before its first checkpoint."""
        program = self._process.program
        sinks = {name: sink.note() for name, (sink, _) in program.sinks.items()}
        return {"sinks": sinks, "sources": {name: source.content for name, (source, _) in program.sources.items()}}

    # -- the beginning ------------------------------------------------------------------------------------------------

    def begin(self, pushed: Mapping[str, int]) -> None:
        """Stores the beginning of the run, before any of its effects are visible outside.

        So there is a checkpoint to continue from whenever the driver dies. A run that continues from the newest
        checkpoint already has it, unless Spark pushes to a source that the checkpoint lacks. A run that begins from
        nothing, or goes back, makes its beginning the newest checkpoint, and abandons those after it.
        """
        if self._writer is None:
            return
        self._pushed = pushed
        assert self._catalogue is not None
        found = self._catalogue.standing(self._resume.checkpoint) if self._resume else None
        complete = self._catalogue.complete()
        self._abandoned = _given_up(found, complete)
        if found is not None and found.id == complete[0].id and pushed.keys() <= found.pushed.keys():
            return
        with self._writer.begin([] if found is None else [found.id]) as attempt:
            attempt.commit(self._beginning(attempt.id, found).to_json())

    def _beginning(self, id: int, found: Manifest | None) -> Manifest:
        """Returns the manifest of the beginning: that of the checkpoint it continues from, or of epoch 0."""
        begun = found or Manifest(query=self._process.program.name, id=id, epoch=0, created=time.time())
        update = {"id": id, "savepoint": False, "generation": self.generation, "notes": self._notes}
        return begun.model_copy(update=update | {"pushed": dict(self._pushed), "abandoned": self._abandoned})

    @property
    def _resume(self) -> Resume | None:
        return self._process.program.resume

    def start(self) -> None:
        self._tell_beginning()
        self._thread.start()

    def _tell_beginning(self) -> None:
        """Adds events for the checkpoint that the run continues from, and for later ones if it has fallen back."""
        resume = self._resume
        if resume is None or self._catalogue is None:
            return
        passed_over = sorted({*self._abandoned, *self._catalogue.damaged()})
        later = tuple(id for id in passed_over if id > resume.checkpoint)
        resumed = RunResumed(id=resume.checkpoint, epoch=resume.beginning.epoch, passed_over=later)
        self._process.events.add(resumed)

    def store_before_stop(self) -> None:
        """Stores a last checkpoint, so that a later run continues from here; takes a few seconds at most."""
        if self._writer is None or self._thread.ident is None or self._process.ended.is_set():
            return
        if self._is_ending:
            self._process.ended.wait(_PARTING)
            return
        with suppress(SeepError, TimeoutError):  # then a later run continues from the checkpoint before
            self.request(savepoint=False).result(_PARTING)

    def close(self) -> None:
        self.store_before_stop()
        self._over.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._refuse_requests()
        if self._pin is not None:
            with suppress(SeepError):  # its lease expires
                self._pin.release()

    def request(self, savepoint: bool) -> Future[Manifest]:
        """Requests a checkpoint of everything read so far; the answer comes when it is complete or has failed."""
        if self._writer is None:
            raise UserError("this run has no storage: give it one with storage=…, --storage, or in the policy file")
        return self._asked(self._wanted, savepoint)

    def look(self, operator: str) -> Future[CutComplete]:
        """Requests the state of one operator after a coming epoch, in the driver's memory."""
        return self._asked(self._looks, operator)

    def _asked(self, requests: Requests[T, A], of: T) -> Future[A]:
        """Adds a request; it is refused at once if the run is over."""
        if self._process.ended.is_set():
            self._refuse_requests()
        answer = requests.add(of)
        self._wake()
        return answer

    def _refuse_requests(self) -> None:
        over = EnvironmentFault(
            "the run is over, so its state cannot be asked for any more; its checkpoints in storage can be read with "
            "`seep state`, and another run can begin from them"
        )
        self._wanted.close(over)
        self._looks.close(over)

    def waits_for(self) -> str:
        """Describes what a request for a checkpoint, or for state, is waiting for now."""
        return self._process.cut_waits_for() or "it waits for the storage, or for a checkpoint that was begun before"

    # -- notices of the event loop -------------------------------------------------------------------------------------

    def cut(self, cut: Cut, result: CutComplete | str) -> None:
        self._results[cut.id] = result
        self._wake()

    def read(self, source: str) -> None:  # noqa: ARG002
        if self._is_first:
            self._wake()

    def ending(self) -> None:
        self._is_ending = True
        self._wake()

    def over(self) -> None:
        self._wake()

    def _wake(self) -> None:
        with self._news:
            self._news.notify_all()

    # -- on its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._refuse_requests()

    def _work(self) -> None:
        self._clean()
        self._set_due()
        while self._waited(self._is_wanted, self._seconds_left()):
            self._show()
            if time.monotonic() >= self._renewal:
                self._renewal += _LEASE / 2
                self._renew()
            if self._is_last_wanted:
                if self._ends():
                    return
            elif self._wanted or self._is_due():
                self._set_due()
                self._is_first = False
                self._serve()

    def _set_due(self) -> None:
        """Sets the next checkpoint to be due an interval from now."""
        is_never = self._writer is None or self._every is None
        self._due = math.inf if is_never else time.monotonic() + (self._every or 0.0)

    def _waited(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Waits until a condition holds, at most so long; returns whether the run continues."""
        with self._news:
            self._news.wait_for(lambda: holds() or self._is_over, seconds)
        return not self._is_over

    @property
    def _is_over(self) -> bool:
        return self._over.is_set() or self._process.ended.is_set()

    @property
    def _is_last_wanted(self) -> bool:
        return self._writer is not None and self._is_ending

    def _is_wanted(self) -> bool:
        asked = bool(self._wanted or self._looks) or self._is_last_wanted
        return asked or self._is_due() or time.monotonic() >= self._renewal

    def _seconds_left(self) -> float:
        """Returns the seconds until a checkpoint or the renewal of the lease is due."""
        return max(0.0, min(self._due, self._renewal) - time.monotonic())

    def _is_due(self) -> bool:
        """Whether a checkpoint is due; the first one of a run is due as soon as anything was read."""
        has_begun = self._is_first and self._due < math.inf and self._has_read()
        return time.monotonic() >= self._due or has_begun

    def _has_read(self) -> bool:
        before = self._resume.beginning.positions if self._resume else {}
        return any(
            rows_up_to(dict(read)) > rows_up_to(before.get(source, {}))
            for source, read in self._process.positions.items()
        )

    def _ends(self) -> bool:
        """Takes the last checkpoint of a run whose input has ended; the run finishes only when it is stored."""
        self._last_tries += 1
        manifest = self._serve(last=True)
        if manifest is not None:
            self._process.conclude(f"at epoch {manifest.epoch}")
        elif self._last_tries >= _LAST_TRIES or self._process.final_epoch() is not None:
            self._process.fail(EnvironmentFault(_NOT_STORED))
        else:
            return self._over.wait(_LAST_PAUSE)
        return True

    def _renew(self) -> None:
        """Renews the lease on the checkpoint that the run began from, as nodes may still read it."""
        if self._pin is not None:
            with suppress(SeepError):  # it is repeated well before the lease expires
                self._pin.renew()

    def _show(self) -> None:
        """Answers the requests for state, with a cut for each operator."""
        for look in self._looks.take():
            number = -next(self._looked)
            try:
                look.answer.set_result(self._cut(number, only=look.of))
            except Exception as reason:
                look.answer.set_exception(_told(reason))

    def _serve(self, last: bool = False) -> Manifest | None:
        """Takes one checkpoint for all waiting requests; if it fails, they get the error, and it becomes an event."""
        served = self._wanted.take()
        try:
            manifest = self._checkpoint(any(wanted.of for wanted in served), last)
        except Exception as raised:
            reason = _told(raised)
            for wanted in served:
                wanted.answer.set_exception(reason)
            if not self._over.is_set() and not self._process.ended.is_set():
                self._process.events.add(CheckpointFailed(why=str(reason)))
            if isinstance(reason, Fenced):
                self._process.fail(reason)
            return None
        for wanted in served:
            wanted.answer.set_result(manifest)
        return manifest

    def _checkpoint(self, savepoint: bool, last: bool) -> Manifest:
        assert self._writer is not None
        assert self._catalogue is not None
        begun = self._process.events.now
        builds_on = [self._previous.id] if self._previous is not None else []
        with self._writer.begin(builds_on) as attempt:
            complete = self._cut(attempt.id, full=self._is_full_wanted(), last=last)
            manifest = self._manifest(attempt.id, complete, savepoint)
            attempt.commit(manifest.to_json())
        self._previous = manifest
        self._compact_if_long()
        self._clean()
        stored = SavepointStored if savepoint else CheckpointPersisted
        seconds = self._process.events.now - begun
        size = sum(map(stored_bytes, manifest.components.values()))
        self._process.events.add(stored(id=manifest.id, epoch=manifest.epoch, seconds=seconds, bytes=size))
        return manifest

    def _clean(self) -> None:
        """Removes objects that are not needed, also those of dead runs; what it cannot remove it tries next time."""
        if self._catalogue is None:
            return
        try:
            self._catalogue.clean(self._settings.keep)
        except EnvironmentFault as reason:
            self._process.events.add(CleaningFailed(why=str(reason)))

    def _compact_if_long(self) -> None:
        """Merges long chains of deltas here, so that no instance has to stop and write its full state.

        The result is another checkpoint of the same epoch. If this fails, the next cut is a full one.
        """
        assert self._writer is not None
        before = self._previous
        assert before is not None
        long = [o for o, component in before.components.items() if self._is_to_be_compacted(component)]
        if not long:
            return
        begun = self._process.events.now
        try:
            with self._writer.begin([before.id]) as attempt:
                compacted = {o: self._compacted(o, before.components[o], attempt) for o in long}
                update = {"id": attempt.id, "savepoint": False, "components": {**before.components, **compacted}}
                manifest = before.model_copy(update=update)
                attempt.commit(manifest.to_json())
        except EnvironmentFault as reason:
            self._process.events.add(CompactionFailed(why=str(reason)))
            return
        self._previous = manifest
        seconds = self._process.events.now - begun
        told = Compacted(id=manifest.id, operators=tuple(long), origin=before.id, seconds=seconds)
        self._process.events.add(told)

    def _is_to_be_compacted(self, component: Component) -> bool:
        everything = SlotSet.full(component.slot_bits)
        is_long = component.needs_full(everything, self._settings.chain)
        return is_long and self._settings.chain > 0 and stored_bytes(component) <= self._settings.compact

    def _compacted(self, operator: str, component: Component, attempt: Attempt[Manifest]) -> Component:
        store = store_of(self._settings)
        assert store is not None

        def put(name: str, parts: Sequence[Any]) -> str:
            return attempt.put_blob(operator, name, parts)

        return compact_state(operator, component, store.get, put, self._settings.codec)

    def _cut(
        self, number: int, *, full: bool | None = None, only: str | None = None, last: bool = False
    ) -> CutComplete:
        """Announces a cut, and waits until it is complete, up to a deadline."""
        if self._process.persist(number, full=full, only=only, last=last) is None:
            raise EnvironmentFault("no cut can be taken now: the query is not running, or about to end")
        timeout = self._settings.timeout
        self._waited(lambda: number in self._results, timeout)
        if number not in self._results:
            self._process.abandon_cut(number, f"not complete within {timeout:g} s: {self.waits_for()}")
        result = self._results.pop(number, None)
        if result is None:
            raise EnvironmentFault("the run has ended before the cut was complete")
        if isinstance(result, str):
            raise EnvironmentFault(f"a cut was abandoned: {result}; the next one may succeed")
        return result

    def _is_full_wanted(self) -> bool:
        """Whether the next cut must be full: after a cut that was not stored, or when the chain of deltas is long."""
        outlook = self._process.cut_outlook()
        if self._previous is None or self._previous.epoch != outlook.complete_epoch:
            return True
        return any(
            component.needs_full(slots, self._settings.chain)
            for operator, component in self._previous.components.items()
            for slots in outlook.slots[operator]
        )

    def _manifest(self, id: int, complete: CutComplete, savepoint: bool) -> Manifest:
        parts = [ManifestPart.model_validate_json(part.reference) for part in complete.parts.values()]
        operators = dict.fromkeys(part.operator for part in parts)
        return Manifest(
            query=self._process.program.name,
            id=id,
            epoch=complete.cut.epoch,
            created=time.time(),
            savepoint=savepoint,
            generation=self.generation,
            sources={o: {str(p): at for p, at in read.items()} for o, read in complete.positions.items()},
            components={each: self._component([p for p in parts if p.operator == each]) for each in operators},
            pushed=dict(self._pushed),
            ended=all(_has_ended(complete.positions.get(source, {})) for source in self._process.program.sources),
            abandoned=self._abandoned,
            notes=self._notes,
        )

    def _component(self, parts: list[ManifestPart]) -> Component:
        before = self._previous.components.get(parts[0].operator) if self._previous else None
        return component_of(parts, before)


def _told(reason: Exception) -> SeepError:
    """Converts an unexpected error to an answer, because it must not end the thread that answers requests."""
    if isinstance(reason, SeepError):
        return reason
    return InternalError(f"the checkpoint failed; please report it with this trace:\n{traceback.format_exc()}")


def _given_up(found: Manifest | None, complete: Sequence[Manifest]) -> tuple[int, ...]:
    """Returns the checkpoints that a run abandons if it begins from this one: later ones, and those it abandoned."""
    there = [each.id for each in complete]
    return tuple(sorted(id for id in there if found is None or id > found.id or id in found.abandoned))


def _has_ended(positions: Mapping[int, Any]) -> bool:
    """Whether a source at these positions has ended."""
    return bool(positions) and all(Position(*position).ended for position in positions.values())
