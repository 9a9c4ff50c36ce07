"""The archive of a node: writes its instances' parts of cuts to storage, and reads the state that a run begins from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from formats.evolution import Evolution
from formats.manifest import Manifest, manifests_of
from formats.persist import persist_state, retrieve_state
from primitives.checkpoint import Checkpoint
from primitives.errors import InternalError, SeepError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from seep.protocol.cuts import CutPart, Persist, Recalled
from seep.protocol.messages import Persisted, PersistFailed
from seep.protocol.view import Incarnation
from seep.storage.catalogue import Catalogue
from seep.storage.layout import BlobKey
from seep.storage.location import store_of
from seep.storage.settings import StorageSettings
from seep.storage.store import BlobStore
from seep.threads.worker import Worker

Tell = Callable[[Persisted | PersistFailed], None]


class Archive:
    """A reader and writer of cuts on a thread of its own, one request after another, because each takes long."""

    def __init__(
        self,
        settings: StorageSettings,
        query: str,
        begins_from: int | None,
        aliases: Mapping[str, Sequence[str]],
    ) -> None:
        self._settings, self._query, self._begins_from, self._aliases = settings, query, begins_from, aliases
        self._worker = Worker("seep archive")

    def write(self, part: Persist, slot_bits: int, tell: Tell) -> None:
        """Stores an instance's part of a cut, and calls `tell` with the result."""
        self._worker.put(lambda: tell(self._written(part, slot_bits)))

    def read(
        self,
        operator: str,
        slots: SlotSet,
        declared: Sequence[Chunk],
        evolution: Evolution | None,
        give: Callable[[Recalled], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Calls `give` with the checkpoint's state of these slots, in the form that the operator now declares."""

        def work() -> None:
            try:
                give(self._state(operator, slots, declared, evolution or Evolution()))
            except BaseException as reason:
                fail(reason)

        self._worker.put(work)

    def close(self) -> None:
        """Ends the thread after the requests so far are done."""
        self._worker.close()

    def _written(self, part: Persist, slot_bits: int) -> Persisted | PersistFailed:
        owner, cut = part.owner.instance, part.cut
        checkpoint = Checkpoint(
            owner, part.owner.number, 0, cut.epoch, part.base, part.slots, part.chunks, (), trimmed=cut.epoch
        )
        try:
            put = self._putter(part.owner, cut.id)
            written = persist_state(checkpoint, put, self._settings.codec, slot_bits=slot_bits)
        except Exception as reason:  # the manager must learn of any failure, or it would wait for this part
            words = str(reason) if isinstance(reason, SeepError) else f"internal error: {reason!r}"
            return PersistFailed(part.owner, cut.id, words)
        return Persisted(part.owner, cut.id, CutPart(part.slots, part.base, written.model_dump_json()))

    def _putter(self, owner: Incarnation, checkpoint: int) -> Callable[[str, Sequence[Any]], str]:
        """Returns a writer with names of its incarnation: one that was given up may still be writing."""

        def put(name: str, parts: Sequence[Any]) -> str:
            key = str(BlobKey(self._query, checkpoint, owner.instance.operator, f"{name}-{owner.number}"))
            self._store.put(key, parts)
            return key

        return put

    def _state(self, operator: str, slots: SlotSet, declared: Sequence[Chunk], evolution: Evolution) -> Recalled:
        component = self._beginning.components.get(operator)
        if component is None:
            return Recalled(())
        return Recalled(evolution.adapted(retrieve_state(component, slots, self._store.get), declared, slots))

    @cached_property
    def _store(self) -> BlobStore:
        """The store; opened once, because that is expensive and its cache is useful only while it is open."""
        store = store_of(self._settings)
        if store is None:
            raise InternalError("state is to be written or read, and there is no storage")
        return store

    @cached_property
    def _beginning(self) -> Manifest:
        """The manifest of the checkpoint from which the run begins."""
        if self._begins_from is None:
            raise InternalError("a run is to begin from a checkpoint, and there is none")
        catalogue = Catalogue(self._store, self._query, manifests_of(self._query))
        return catalogue.standing(self._begins_from).renamed(self._aliases)
