"""What the catalogue writes down about runs, attempts, readers and manifests, and reads back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from primitives.errors import Damaged
from seep.storage import layout
from seep.storage.envelope import unwrap, wrap
from seep.storage.layout import Contents, Part, Shelf
from seep.storage.store import AlreadyThere, BlobStore, NotThere


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose a checkpoint is."""

    run: str
    generation: int
    builds_on: tuple[int, ...] = ()  #: checkpoints whose blobs it may refer to


@dataclass(frozen=True, slots=True)
class Lease:
    """Who reads a checkpoint, and until when (seconds since 1970)."""

    reader: str
    until: float


@dataclass(frozen=True, slots=True)
class Seal:
    """Why a checkpoint will never be complete."""

    reason: str


class Records:
    """Those of one query in one store."""

    def __init__(self, store: BlobStore, query: str) -> None:
        self.store, self.query = store, query

    def contents(self) -> Contents:
        """What there is. What was there all the time is in it; of what came or went meanwhile, this or that."""
        return layout.contents(self.query, self.store.list(f"{self.query}/"))

    def parts(self, id: int) -> Shelf:
        """What there is of one checkpoint, but for its blobs."""
        return layout.contents(self.query, self.store.list(layout.parts_prefix(self.query, id))).shelf(id)

    def blobs(self, id: int) -> list[str]:
        """Keys of the blobs of one checkpoint."""
        return list(self.store.list(layout.blobs_prefix(self.query, id)))

    def generation(self) -> int:
        """That of the newest run; 0 if there was none."""
        return max(layout.contents(self.query, self.store.list(f"{self.query}/runs/")).generations, default=0)

    def enter(self, run: str, note: Any = None) -> int:
        """The next generation, and it is this run's, which leaves a note for those after it."""
        generation = self.generation() + 1
        while not self._new(layout.run_key(self.query, generation), "run", {"run": run, "note": note}):
            generation += 1
        return generation

    def run_of(self, generation: int) -> str:
        """What a run calls itself; empty if nobody knows any more."""
        with suppress(NotThere, Damaged):
            return str(self._read(layout.run_key(self.query, generation), "run")["run"])
        return ""

    def last_note(self) -> Any:
        """That of the newest run which has left one that can be read; None if there is none."""
        keys = sorted(self.store.list(f"{self.query}/runs/"), reverse=True)
        for key in keys:
            with suppress(NotThere, Damaged):
                if (note := self._read(key, "run").get("note")) is not None:
                    return note
        return None

    def claim(self, id: int, claim: Claim) -> bool:
        """Whether the checkpoint is now this claim's, and was nobody's."""
        return self._new(self._key(id, Part.CLAIM), "claim", asdict(claim))

    def claim_of(self, id: int) -> Claim:
        found = self._read(self._key(id, Part.CLAIM), "claim")
        return Claim(found["run"], found["generation"], tuple(found["builds_on"]))

    def seal(self, id: int, reason: str) -> None:
        """From now on the checkpoint cannot become complete; if it is, it stays so."""
        self._new(self._key(id, Part.MANIFEST), "seal", asdict(Seal(reason)))

    def commit(self, id: int, manifest: bytes) -> None:
        """Makes this the manifest of the checkpoint. Twice is once; AlreadyThere if there is another, or a seal."""
        try:
            self.store.put(self._key(id, Part.MANIFEST), [wrap("manifest", manifest)], new=True)
        except AlreadyThere:
            if self.manifest(id) != manifest:
                raise

    def manifest(self, id: int) -> bytes | Seal:
        """What a checkpoint has as its manifest; NotThere, Damaged."""
        key = self._key(id, Part.MANIFEST)
        kind, content = self._unwrapped(key)
        match kind:
            case "manifest":
                return content
            case "seal":
                return Seal(str(json.loads(content)["reason"]))
        raise Damaged(f"{self.where(key)} is damaged: it is a {kind}, and no manifest")

    def pin(self, id: int, token: str, lease: Lease) -> str:
        """Writes down who reads a checkpoint, or that it takes longer; the key of that."""
        key = self._key(id, Part.PIN, token)
        self.store.put(key, [_wrapped("pin", asdict(lease))])
        return key

    def leases(self, shelf: Shelf) -> Iterator[tuple[str, Lease]]:
        """Those of a checkpoint, with their keys. A damaged one is of a reader who never leaves."""
        for key in shelf.parts.get(Part.PIN, ()):
            try:
                found = self._read(key, "pin")
                yield key, Lease(found["reader"], found["until"])
            except NotThere:
                continue
            except Damaged as reason:
                yield key, Lease(str(reason), float("inf"))

    def announce_removal(self, id: int, token: str) -> str:
        """Says that a checkpoint is about to be removed; the key of that."""
        key = self._key(id, Part.REMOVAL, token)
        self.store.put(key, [_wrapped("removal", {})])
        return key

    def remove_manifests(self, ids: Iterable[int]) -> None:
        self.store.delete([self._key(id, Part.MANIFEST) for id in ids])

    def where(self, key: str) -> str:
        """For messages."""
        return f"{self.store.name}/{key}"

    def _key(self, id: int, part: Part, token: str = "") -> str:
        return layout.part_key(self.query, id, part, token)

    def _new(self, key: str, kind: str, content: dict[str, Any]) -> bool:
        try:
            self.store.put(key, [_wrapped(kind, content)], new=True)
        except AlreadyThere:
            return False
        return True

    def _read(self, key: str, kind: str) -> dict[str, Any]:
        found, content = self._unwrapped(key)
        if found != kind:
            raise Damaged(f"{self.where(key)} is damaged: it is a {found}, and no {kind}")
        return dict(json.loads(content))

    def _unwrapped(self, key: str) -> tuple[str, bytes]:
        return unwrap(self.store.get(key), self.where(key))


def _wrapped(kind: str, content: dict[str, Any]) -> bytes:
    return wrap(kind, json.dumps(content).encode())
