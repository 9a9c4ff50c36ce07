"""The state of a running query as a checkpoint in the memory of this process, to be inspected like a stored one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from formats.avro_file import Piece
from formats.manifest import Component, Manifest, component_of
from formats.persist import persist_state
from primitives.checkpoint import Checkpoint
from primitives.errors import UserError
from seep.inspection.stored import Stored
from seep.running.remote_control import RunListing, find
from seep.storage.layout import BlobKey
from seep.storage.memory import MemoryStore

#: The name that stands for the running query instead of the number of a checkpoint.
LIVE = "live"


class Live(Stored):
    """The state of some operators of a running query, each after a recent epoch, which may differ."""

    @classmethod
    def of(cls, query: str, operator: str | None = None) -> Self:
        """Reads the state of one operator, or of all, from the run with that query or id on this machine."""
        run, store = find(query), MemoryStore(LIVE)
        stateful = list(run.tell("operators")["stateful"])
        if operator not in (None, *stateful):
            raise UserError(
                f"{operator!r} keeps no state in {run.query}; those that do: {', '.join(stateful) or 'none'}"
            )
        components = {o: _component(run, o, store) for o in ([operator] if operator else stateful)}
        epoch = max((component.epoch for component in components.values()), default=0)
        return cls(store, Manifest(query=run.query, id=0, epoch=epoch, created=time.time(), components=components))

    def __enter__(self) -> Self:
        return self

    def __str__(self) -> str:
        return f"the running query {self.manifest.query}"


def _component(run: RunListing, operator: str, store: MemoryStore) -> Component:
    looked = run.tell("look", operator=operator)

    def put(name: str, parts: Sequence[Piece]) -> str:
        key = str(BlobKey(run.query, 0, operator, name))
        store.put(key, [memoryview(part) for part in parts])
        return key

    checkpoints = _checkpoints(looked["epoch"], looked["parts"])
    return component_of([persist_state(each, put, slot_bits=looked["slot_bits"]) for each in checkpoints])


def _checkpoints(epoch: int, parts: Sequence[Sequence[Any]]) -> Iterator[Checkpoint]:
    for instance, slots, chunks in parts:
        yield Checkpoint(instance, 0, 0, epoch, None, slots, tuple(chunks), (), trimmed=epoch)
