"""Cuts of a query in this process, written to storage as a run writes them, and read as a run reads them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from formats.avro_file import Compression
from formats.evolution import Evolution
from formats.manifest import Manifest, ManifestPart, component_of, manifests_of
from formats.persist import persist_state, retrieve_state
from primitives.checkpoint import Checkpoint
from primitives.slots import SlotSet
from seep.kernel.cut_storage import CutStorage
from seep.protocol import cuts
from seep.protocol.cuts import Beginning, CutComplete, Persist, Recalled
from seep.query.program import Program
from seep.storage.attempt import Attempt
from seep.storage.catalogue import Catalogue
from seep.storage.layout import BlobKey
from seep.storage.store import BlobStore

#: When all of it was written, in seconds since 1970.
CREATED = 1_800_000_000.0


def catalogue_of(store: BlobStore, query: str) -> Catalogue[Manifest]:
    return Catalogue(store, query, manifests_of(query), clock=lambda: CREATED)


class StoredCuts(CutStorage):
    """The checkpoints of one query, for `InProcess`: each complete cut becomes a checkpoint in a catalogue."""

    def __init__(self, program: Program, store: BlobStore, codec: Compression = Compression.NONE) -> None:
        super().__init__()
        self._program, self._store, self._codec = program, store, codec
        self._catalogue, self._state = catalogue_of(store, program.name), StoredState(program, store)
        self._latest = self._catalogue.latest()
        self._writer = None if self._latest is not None else self._catalogue.enter("golden", self._notes)
        self._attempt: Attempt[Manifest] | None = None

    @property
    def _notes(self) -> dict[str, Any]:
        sinks = {name: sink.note() for name, (sink, _) in self._program.sinks.items()}
        return {"sinks": sinks, "sources": {name: each.content for name, (each, _) in self._program.sources.items()}}

    def write(self, part: Persist) -> cuts.CutPart:
        """See `CutStorage`."""
        number, owner = self._under_way().id, part.owner.instance
        checkpoint = Checkpoint(owner, 1, 0, part.cut.epoch, part.base, part.slots, part.chunks, (), part.cut.epoch)

        def put(name: str, data: Any) -> str:
            key = str(BlobKey(self._program.name, number, owner.operator, name))
            self._store.put(key, data)
            return key

        bits = self._program.graph.operators[owner.operator].slot_bits
        written = persist_state(checkpoint, put, self._codec, slot_bits=bits)
        return cuts.CutPart(part.slots, part.base, written.model_dump_json())

    def _under_way(self) -> Attempt[Manifest]:
        """The checkpoint that is being written."""
        if self._attempt is None:
            assert self._writer is not None, "a query that goes on is restored here, and saves nothing more"
            self._attempt = self._writer.begin([self._latest.id] if self._latest else [])
        return self._attempt

    def complete(self, cut: CutComplete) -> None:
        """See `CutStorage`."""
        attempt = self._under_way()
        parts = [ManifestPart.model_validate_json(part.reference) for part in cut.parts.values()]
        before = self._latest.components if self._latest else {}
        manifest = Manifest(
            query=self._program.name,
            id=attempt.id,
            epoch=cut.cut.epoch,
            created=CREATED + attempt.id,
            savepoint=True,
            generation=1,
            sources={source: {str(p): at for p, at in read.items()} for source, read in cut.positions.items()},
            components={
                each: component_of([part for part in parts if part.operator == each], before.get(each))
                for each in dict.fromkeys(part.operator for part in parts)
            },
            notes=self._notes,
        )
        self._latest = attempt.commit(manifest.to_json())
        self._attempt = None

    def beginning(self, generation: int) -> Beginning:
        """See `CutStorage`."""
        manifest = self._latest
        assert manifest is not None
        positions = {source: {int(p): at for p, at in read.items()} for source, read in manifest.sources.items()}
        return Beginning(manifest.epoch, positions, generation)

    def read(self, operator: str, slots: SlotSet) -> Recalled:
        """See `CutStorage`."""
        assert self._latest is not None
        return self._state.recall(self._latest, operator, slots)


class StoredState:
    """What checkpoints of a query have, as its operators of today declare their state."""

    def __init__(self, program: Program, store: BlobStore) -> None:
        self._program, self._store = program, store
        self._declared: dict[str, tuple[tuple[Any, ...], Evolution]] = {}

    def recall(self, manifest: Manifest, operator: str, slots: SlotSet) -> Recalled:
        """What there is of some slots of an operator."""
        component = manifest.components.get(operator)
        if component is None:
            return Recalled(())
        declared, evolution = self._declaration(operator)
        return Recalled(evolution.adapted(retrieve_state(component, slots, self._store.get), declared, slots))

    def _declaration(self, operator: str) -> tuple[tuple[Any, ...], Evolution]:
        """Chunks without rows, and how stored ones become such; made once, as it opens files of containers on disk."""
        if operator not in self._declared:
            logic: Any = self._program.logic(operator)
            with closing(logic):
                evolution = getattr(logic, "evolution", None) or Evolution()
                self._declared[operator] = tuple(logic.state.snapshot(SlotSet.empty())), evolution
        return self._declared[operator]
