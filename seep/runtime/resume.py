"""Resume: finds the checkpoint in storage that a run is to begin from, and checks that the query fits it."""

from __future__ import annotations

from primitives.blob import empty_chunk
from primitives.errors import UserError
from primitives.evolution import resolve
from primitives.graph import Kind
from primitives.manifest import Component, Manifest, read_manifest
from primitives.slots import SlotSet
from seep.protocol.cuts import Beginning
from seep.query.program import Program, Resume
from seep.runtime.options import RunOptions
from seep.storage.catalogue import Catalogue
from seep.storage.location import store_of
from seep.storage.reading import NotStanding

LATEST = "latest"
#: Seconds for which a checkpoint is kept for a run that is starting, and how often the latest one is looked for.
_STARTING, _TRIES = 900.0, 5


def catalogue_of(options: RunOptions, query: str) -> Catalogue[Manifest] | None:
    """The checkpoints of a query in the storage of a run, if it has one."""
    store = store_of(options.storage)
    return Catalogue(store, query, read_manifest) if store is not None else None


def resume_of(options: RunOptions, query: str) -> Resume | None:
    """Where the run begins, by `restore`; None: from nothing."""
    manifest = _pinned(options, query)
    if manifest is None:
        return None
    positions = {source: {int(p): at for p, at in read.items()} for source, read in manifest.sources.items()}
    beginning = Beginning(manifest.epoch, positions, manifest.generation + 1)
    sinks = manifest.notes.get("sinks")
    return Resume(manifest.id, beginning, sinks if isinstance(sinks, dict) else {})


def check_resume(program: Program, options: RunOptions) -> None:
    """UserError if the query cannot take over what the checkpoint has, before anything starts."""
    manifest = _manifest(options, program.name)
    if manifest is None:
        return
    stateful = [o for o in program.graph.order if program.graph.kind(o) is Kind.STATEFUL]
    manifest.check_operators(stateful, allow_dropped=options.allow_dropped_state)
    for operator in stateful:
        if operator in manifest.components:
            _check_component(program, operator, manifest.components[operator])


def _pinned(options: RunOptions, query: str) -> Manifest | None:
    """The checkpoint, which stays until the run has begun, even if an earlier run still adds and removes some."""
    for attempt in range(_TRIES):
        manifest, catalogue = _manifest(options, query), catalogue_of(options, query)
        if manifest is None or catalogue is None:
            return None
        try:
            catalogue.pin(manifest.id, "a run that is about to begin", _STARTING)
        except NotStanding:
            if options.restore != LATEST or attempt == _TRIES - 1:
                raise
        else:
            return manifest
    return None


def _manifest(options: RunOptions, query: str) -> Manifest | None:
    if options.restore is None:
        return None
    catalogue = catalogue_of(options, query)
    if catalogue is None:
        raise UserError("there is nothing to restore from: say where the checkpoints are with storage (--storage)")
    if options.restore == LATEST:
        latest = catalogue.latest(fall_back=options.fall_back)
        if latest is None:
            raise UserError(f"{options.storage.location} has no complete checkpoint of query {query!r}")
        return latest
    if not options.restore.isdecimal():
        raise UserError(f"restore is {options.restore!r}; say {LATEST}, or the number of a checkpoint")
    number = int(options.restore)
    return read_manifest(catalogue.read_manifest(number), f"checkpoint {number} of {query}")


def _check_component(program: Program, operator: str, component: Component) -> None:
    """Resolves the columns of stored state without any rows: what cannot work is said now."""
    bits = program.graph.operators[operator].slot_bits
    if component.slot_bits != bits:
        raise UserError(
            f"operator {operator!r} has 2^{bits} slots, and its state was stored in 2^{component.slot_bits}: "
            f"the number of slots cannot change; set slot_bits to {component.slot_bits}"
        )
    logic = program.logic(operator)
    stored = {name: empty_chunk(container.avro_schema) for name, container in component.containers.items()}
    try:
        for declared in logic.state.snapshot(SlotSet.empty()):
            if declared.name in stored:
                resolve([stored[declared.name]], declared, migrate=getattr(logic, "migrate_state", None))
    except UserError as reason:
        raise UserError(f"operator {operator!r}: {reason}") from reason
