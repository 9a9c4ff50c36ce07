"""Checkpoints of a query, written as a run writes them, of containers of all kinds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from formats.avro_file import Compression
from formats.manifest import Component, Manifest, ManifestPart, component_of, read_manifest
from formats.persist import persist_state
from primitives.checkpoint import checkpoint_state
from primitives.graph import InstanceId
from primitives.outbox import Outbox
from primitives.slots import SlotSet, split_evenly
from primitives.state.frame import Frame
from primitives.state.processing import Containers
from primitives.state.rows import Rows
from primitives.state.timers import Timers
from primitives.state.values import Values
from seep.storage.attempt import Attempt, Writer
from seep.storage.catalogue import Catalogue
from seep.storage.location import open_store

QUERY = "orders"
SLOT_BITS = 4
ALL = SlotSet.full(SLOT_BITS)
WORDS = [f"word {number}" for number in range(60)]


class Counter:
    """An operator with one container of each kind, all keyed by word."""

    def __init__(self) -> None:
        word = {"word": pa.string()}
        self.counts = Frame("counts", word, {"n": pa.int64(), "score": pa.float64()}, slot_bits=SLOT_BITS)
        self.pages = Values("last page", word, slot_bits=SLOT_BITS)
        self.lists = Values("lists", word, value=pa.list_(pa.int64()), slot_bits=SLOT_BITS)
        self.bids = Rows("bids", word, {"price": pa.float64()}, slot_bits=SLOT_BITS)
        self.timers = Timers("timers", word, slot_bits=SLOT_BITS)
        self.state = Containers(self.counts, self.pages, self.lists, self.bids, self.timers)

    def see(self, *words: str) -> Counter:
        """A word comes, and is in every container."""
        for word in words:
            self.counts.add({"word": [word]}, n=[1], score=[0.5])
            self.pages[word] = {"page": len(word), "tags": {"b", "a"}, "day": date(2026, 1, 31), "raw": b"\x01"}
            self.lists[word] = [*self.lists.get(word, []), len(word)]
            self.timers.schedule(10 * len(word), word, ("late", 2))
        prices = pa.array([float(len(word)) for word in words], pa.float64())
        self.bids.add(pa.record_batch({"word": pa.array(words, pa.string()), "price": prices}))
        return self

    def forget(self, *words: str) -> Counter:
        """A word goes from where it is told by its key."""
        self.counts.delete({"word": list(words)})
        for word in words:
            del self.pages[word], self.lists[word]
        return self


class Stage:
    """A run of the query that writes checkpoints when told to."""

    def __init__(self, root: Path, codec: Compression = Compression.NONE) -> None:
        self.location = str(root)
        self.store = open_store(self.location)
        self.catalogue = Catalogue(self.store, QUERY, read_manifest)
        self._codec = codec
        self._run: Writer[Manifest] | None = None
        self._previous: Manifest | None = None
        self._epoch = 0

    def take(self, counter: Counter, *, parts: int = 2, savepoint: bool = False) -> Manifest:
        """A checkpoint of so many instances: the first in full, later ones of what changed."""
        self._epoch += 7
        run = self._run = self._run or self.catalogue.enter("tests")
        previous = self._previous
        with run.begin([previous.id] if previous else []) as attempt:
            base = previous.epoch if previous else None
            component = component_of(
                [*self._parts(counter, attempt, parts, base)], previous.components["counter"] if previous else None
            )
            self._previous = attempt.commit(self._manifest(attempt.id, component, savepoint).to_json())
        return self._previous

    def _parts(
        self, counter: Counter, attempt: Attempt[Manifest], parts: int, base: int | None
    ) -> Iterable[ManifestPart]:
        for index, slots in enumerate(split_evenly(ALL, parts)):
            checkpoint = checkpoint_state(
                counter.state,
                Outbox(),
                owner=InstanceId("counter", index),
                incarnation=1,
                serial=self._epoch,
                epoch=self._epoch,
                slots=slots,
                base=base,
            )

            def put(name: str, data: Any) -> str:
                return attempt.put_blob("counter", name, data)

            yield persist_state(checkpoint, put, self._codec, slot_bits=SLOT_BITS)

    def _manifest(self, id: int, component: Component, savepoint: bool) -> Manifest:
        return Manifest(
            query=QUERY,
            id=id,
            epoch=self._epoch,
            created=1_800_000_000.0 + id,
            savepoint=savepoint,
            generation=1,
            sources={"lines": {"0": 5}},
            components={"counter": component},
            notes={"sinks": {}},
        )

    def blob(self, container: str) -> Path:
        """The file of a blob of a container."""
        return next(path for path in Path(self.location).rglob(f"*{container}*") if path.is_file())


def counts(counter: Counter) -> dict[str, int]:
    """The content of one container."""
    return {row["word"]: row["n"] for row in counter.counts.to_arrow().to_pylist()}
