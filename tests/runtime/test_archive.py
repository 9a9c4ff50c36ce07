"""The archive of a node: whoever asks it to write is told what became of it, whatever that is."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.durable.archive import Archive
from seep.protocol.cuts import Cut, Persist
from seep.protocol.messages import Persisted, PersistFailed
from seep.protocol.view import Incarnation
from seep.storage.settings import StorageSettings

OWNER = Incarnation(InstanceId("counter", 0), 3)


def part(chunks: Any) -> Persist:
    return Persist(OWNER, Cut(7, 20, None), SlotSet.full(2), None, chunks)


def test_what_cannot_be_written_is_told_and_the_next_part_is_written(tmp_path: Path) -> None:
    archive = Archive(StorageSettings(location=str(tmp_path)), "query", None, {})
    told = SimpleQueue[Persisted | PersistFailed]()
    try:
        archive.write(part(["no chunk"]), 2, told.put)
        archive.write(part(()), 2, told.put)
        failed, written = told.get(timeout=60.0), told.get(timeout=60.0)
    finally:
        archive.close()
    assert isinstance(failed, PersistFailed)
    assert (failed.owner, failed.cut) == (OWNER, 7)
    assert failed.why.startswith("internal error: AttributeError(")
    assert isinstance(written, Persisted)
