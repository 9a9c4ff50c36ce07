"""Resume: finds the checkpoint in storage from which a run begins, and checks that the query fits it."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from formats.avro_file import Damaged
from formats.blob import empty_chunk
from formats.evolution import Evolution, check_containers
from formats.manifest import Component, Manifest, manifests_of
from primitives.errors import SeepError, UserError
from primitives.graph import Kind
from primitives.slots import SlotSet
from seep.driver.options import RunOptions
from seep.operators.base import BatchLogic
from seep.protocol.cuts import Beginning
from seep.query.program import Program, Resume
from seep.sinks.definition import SinkDefinition
from seep.storage.catalogue import Catalogue
from seep.storage.location import store_of
from seep.storage.reading import NotStanding
from seep.storage.soundness import check_content, check_files

AUTO, LATEST, NONE = "auto", "latest", "none"
#: Seconds for which a checkpoint is pinned for a starting run, and the number of attempts to find the latest.
_STARTING, _TRIES = 900.0, 5


def catalogue_of(options: RunOptions, query: str) -> Catalogue[Manifest] | None:
    """Returns the catalogue of a query's checkpoints in the storage of a run, if it has one."""
    store = store_of(options.storage)
    return Catalogue(store, query, manifests_of(query)) if store is not None else None


# --- which checkpoint -------------------------------------------------------------------------------------------------


def resume_of(options: RunOptions, query: str) -> Resume | None:
    """Returns where a run begins, by `restore`; None to begin from nothing: without storage, an empty one, or `none`.

    It checks that all files of the checkpoint exist with the right size; their content is checked when they are read.
    """
    restore = options.restore or NONE
    if restore == NONE or (restore == AUTO and options.storage.location is None):
        return None
    shelves = _StoredCheckpoints(options, query)
    return None if restore == AUTO and shelves.is_empty() else shelves.resume(restore)


def resume_before(program: Program, options: RunOptions) -> Program | None:
    """Returns the program with an earlier checkpoint, if the one it begins from is damaged.

    Returns None if it is not damaged, or if falling back is not allowed. It reads the whole checkpoint, and raises
    Damaged if there is no earlier one.
    """
    if program.resume is None or not options.fall_back or options.restore not in (AUTO, LATEST):
        return None
    shelves = _StoredCheckpoints(options, program.name)
    try:
        shelves.check_content(program.resume.checkpoint)
    except (Damaged, NotStanding) as reason:
        resume = shelves.resume(LATEST, before=program.resume.checkpoint, since=str(reason)).renamed(program.aliases)
    else:
        return None
    sinks = {name: (_sink_taking_back(sink, resume), schema) for name, (sink, schema) in program.sinks.items()}
    return replace(program, resume=resume, sinks=sinks)


def _sink_taking_back(sink: SinkDefinition, resume: Resume) -> SinkDefinition:
    """Returns the sink for another attempt, which also removes what the sink's run has written."""
    note = sink.note()
    return sink if note is None else sink.resumed(resume.beginning.epoch, note)


class _StoredCheckpoints:
    """The stored checkpoints from which a run may begin."""

    def __init__(self, options: RunOptions, query: str) -> None:
        store = store_of(options.storage)
        if store is None:
            raise UserError("there is nothing to restore from: say where the checkpoints are with storage (--storage)")
        self._store, self._catalogue = store, Catalogue(store, query, manifests_of(query))
        self._query, self._fall_back = query, options.fall_back

    def is_empty(self) -> bool:
        """Whether there is no complete or damaged checkpoint; remains of a run that failed before do not count."""
        return not self._catalogue.complete() and not self._catalogue.damaged()

    def resume(self, restore: str, before: int | None = None, since: str = "") -> Resume:
        """Returns where to begin: checkpoint `restore`, the latest, or one before a damaged one, as `since` says."""
        found = self._latest(before, since) if restore in (AUTO, LATEST) else self._pinned(_number(restore))
        positions = {source: {int(p): at for p, at in read.items()} for source, read in found.sources.items()}
        beginning = Beginning(found.epoch, positions, found.generation + 1)
        return Resume(found.id, beginning, self._sinks(), found.pushed, found.ended)

    def check_content(self, id: int) -> None:
        """Raises Damaged if the stored content is not what was written."""
        check_content(self._catalogue.standing(id), self._store)

    def _latest(self, before: int | None, since: str) -> Manifest:
        """Returns the latest checkpoint; tries repeatedly, because an earlier run may still add and remove some."""
        for _ in range(_TRIES - 1):
            with suppress(NotStanding):
                return self._newest(before, since)
        return self._newest(before, since)

    def _newest(self, before: int | None, since: str) -> Manifest:
        refusals = [since] if since else []
        for id in self._candidates(before):
            try:
                return self._pinned(id)
            except Damaged as reason:
                refusals.append(str(reason))
        raise self._none(refusals)

    def _candidates(self, before: int | None) -> list[int]:
        """Returns the newest checkpoint; if falling back is allowed, followed by all others."""
        if self._fall_back:
            complete = self._catalogue.complete()
            abandoned = complete[0].abandoned if complete else ()
            there = [found.id for found in complete if found.id not in abandoned]
            return [id for id in there if before is None or id < before]
        latest = self._catalogue.latest()
        return [] if latest is None else [latest.id]

    def _none(self, refusals: list[str]) -> SeepError:
        if not self._fall_back and refusals:
            return Damaged(f"{refusals[0]}; to begin from the one before, set fall_back (--fall-back)")
        refusals += self._catalogue.damaged().values()
        if refusals:
            return Damaged(f"{refusals[0]}; there is no other that is complete")
        return UserError(
            f"{self._store.name} has no complete checkpoint of query {self._query!r}; restore={AUTO!r} (--restore "
            f"{AUTO}) begins from nothing then"
        )

    def _pinned(self, id: int) -> Manifest:
        """Pins a checkpoint until the run has begun; returns its manifest."""
        pin = self._catalogue.pin_for_run(id, "a run that is about to begin", _STARTING)
        try:
            check_files(pin.info, self._store)
        except BaseException:
            with suppress(SeepError):  # its lease expires
                pin.release()
            raise
        return pin.info

    def _sinks(self) -> dict[str, Any]:
        """Returns the last notes of the sinks: runs after the checkpoint have written rows that must be removed."""
        found: dict[str, Any] = {}
        for notes in (
            *(manifest.notes for manifest in reversed(self._catalogue.complete())),
            self._catalogue.last_note(),
        ):
            noted = notes.get("sinks") if isinstance(notes, dict) else None
            found |= {name: note for name, note in noted.items() if note} if isinstance(noted, dict) else {}
        return found


def _number(restore: str) -> int:
    if not restore.isdecimal():
        raise UserError(f"restore is {restore!r}; say {AUTO}, {NONE}, {LATEST}, or the number of a checkpoint")
    return int(restore)


# --- checks of the query ----------------------------------------------------------------------------------------------


def check_resume(program: Program, options: RunOptions) -> None:
    """Raises UserError if the query cannot use the checkpoint; called before anything starts."""
    if program.resume is None:
        return
    catalogue = catalogue_of(options, program.name)
    if catalogue is None:
        raise UserError("a run is to begin from a checkpoint: say where it is with storage (--storage)")
    manifest = catalogue.standing(program.resume.checkpoint).renamed(program.aliases)
    operators = program.graph.operators
    keepers = [o for o in program.graph.order if operators[o].kind is Kind.STATEFUL or operators[o].keeps_extra]
    manifest.check_operators(keepers, allow_dropped=options.allow_dropped_state)
    _check_sources(program, manifest)
    for operator in keepers:
        if operator in manifest.components:
            _check_component(program, operator, manifest.components[operator], options.allow_dropped_state)


def _check_sources(program: Program, manifest: Manifest) -> None:
    """Raises if a source reads other files or partitions: stored positions would be those of other rows."""
    known = manifest.notes.get("sources")
    for name, (source, _) in program.sources.items():
        before = known.get(name) if isinstance(known, dict) and name in manifest.sources else None
        if before is not None and before != source.content:
            raise UserError(
                f"source {name!r} reads other data than that in which checkpoint {manifest.id} of {manifest.query} has "
                f"positions: {source.content}, and it was {before}. Give it what it had; or begin from nothing with "
                f"restore={NONE!r} (--restore {NONE}), or another storage"
            )


def _check_component(program: Program, operator: str, component: Component, allow_dropped: bool) -> None:
    """Converts stored state without rows, so that errors are found before the start."""
    bits = program.graph.operators[operator].slot_bits
    if component.slot_bits != bits:
        raise UserError(
            f"operator {operator!r} has 2^{bits} slots, and its state was stored in 2^{component.slot_bits}: "
            f"the number of slots cannot change; set slot_bits to {component.slot_bits}"
        )
    stored = [empty_chunk(container.avro_schema) for container in component.containers.values() if container.blobs]
    logic = program.logic(operator)
    assert isinstance(logic, BatchLogic)
    with closing(logic):
        declared = tuple(logic.state.snapshot(SlotSet.empty()))
        try:
            evolution = getattr(logic, "evolution", None) or Evolution()
            check_containers(evolution.renamed(stored), declared, allow_dropped=allow_dropped)
            evolution.adapted(stored, declared, SlotSet.empty())
        except UserError as reason:
            raise UserError(f"operator {operator!r}: {reason}") from reason
