"""The catalogue's records of runs, attempts, readers and manifests: writes and reads them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from primitives.errors import Damaged, EnvironmentFault
from seep.storage import layout
from seep.storage.layout import CheckpointKeys, ClaimKey, Contents, ManifestKey, PinKey, RemovalKey, RunKey, StoredKey
from seep.storage.store import AlreadyThere, BlobStore, NotThere

#: Attempts to read a run's record while later runs keep replacing it.
_TRIES = 20
#: The first line of the catalogue's own files: kind, checksum and length of the content.
_LINE = re.compile(rb"seep-([a-z]+) 1 ([0-9a-f]{64}) (\d{1,15})\n")


@dataclass(frozen=True, slots=True)
class Claim:
    """The owner of a checkpoint in progress."""

    run: str
    generation: int
    builds_on: tuple[int, ...] = ()  #: checkpoints whose blobs it may refer to


@dataclass(frozen=True, slots=True)
class Lease:
    """The reader of a checkpoint, and the end of its lease in seconds since 1970."""

    reader: str
    until: float
    #: of the newest run, if that is the reader; the lease then ends when another run begins
    generation: int | None = None

    def counts(self, now: float, newest: int) -> bool:
        return self.until > now and (self.generation is None or self.generation >= newest)


@dataclass(frozen=True, slots=True)
class Seal:
    """The reason why a checkpoint will never be complete."""

    reason: str


class Records:
    """The records of one query in one store."""

    def __init__(self, store: BlobStore, query: str) -> None:
        self.store, self.query = store, query

    def contents(self) -> Contents:
        """Lists everything that exists. Keys that were added or removed meanwhile may be in it or not."""
        return self._contents(layout.query_prefix(self.query))

    def parts(self, id: int) -> CheckpointKeys:
        """Returns the keys of one checkpoint that exist, except its blobs."""
        return self._contents(layout.parts_prefix(self.query, id)).checkpoint(id)

    def blobs(self, id: int) -> list[str]:
        """Returns the keys of the blobs of one checkpoint."""
        return self._contents(layout.blobs_prefix(self.query, id)).checkpoint(id).blobs

    def generation(self) -> int:
        """Returns the generation of the newest run; 0 if there was none."""
        return max(self._contents(layout.runs_prefix(self.query)).generations, default=0)

    def enter(self, run: str, note: Any = None) -> int:
        """Claims the next generation for this run and returns it; stores the run's note for later runs."""
        content = {"run": run, "note": note, "last": self.last()}
        generation = self.generation() + 1
        while not self._new(RunKey(self.query, generation), "run", content):
            generation += 1
        return generation

    def run_of(self, generation: int) -> str:
        """Returns the name of the run with this generation, or "" if its record is gone."""
        with suppress(NotThere, Damaged):
            return str(self._read(RunKey(self.query, generation), "run")["run"])
        return ""

    def last(self) -> int:
        """Returns the highest id that was ever used for a checkpoint, which may have been removed."""
        claimed = max(self.contents().checkpoints, default=0)
        return max(claimed, self.last_of_newest_run())

    def last_of_newest_run(self) -> int:
        """Returns the highest id that had been used when the newest run began; 0 if that is not known.

        If a run's record is gone, another run came after it.
        """
        for _ in range(_TRIES):
            with suppress(NotThere):
                return self._last_before(self.generation())
        raise EnvironmentFault(f"runs of {self.query} in {self.store.name} begin all the time; start one at a time")

    def _last_before(self, generation: int) -> int:
        with suppress(Damaged):
            return int(self._read(RunKey(self.query, generation), "run").get("last", 0)) if generation else 0
        return 0

    def last_note(self) -> Any:
        """Returns the note of the newest run that left a readable one; None if there is none."""
        for generation in sorted(self._contents(layout.runs_prefix(self.query)).generations, reverse=True):
            with suppress(NotThere, Damaged):
                if (note := self._read(RunKey(self.query, generation), "run").get("note")) is not None:
                    return note
        return None

    def claim(self, id: int, claim: Claim) -> bool:
        """Claims a checkpoint's id; returns False if another claim has it."""
        return self._new(ClaimKey(self.query, id), "claim", asdict(claim))

    def claim_of(self, id: int) -> Claim:
        found = self._read(ClaimKey(self.query, id), "claim")
        return Claim(found["run"], found["generation"], tuple(found["builds_on"]))

    def seal(self, id: int, reason: str) -> None:
        """Seals a checkpoint: it can no longer become complete. A complete checkpoint stays complete."""
        self._new(ManifestKey(self.query, id), "seal", asdict(Seal(reason)))

    def commit(self, id: int, manifest: bytes) -> None:
        """Stores the manifest of a checkpoint; storing it twice is fine.

        Raises AlreadyThere if the checkpoint has another manifest, or a seal.
        """
        try:
            self.store.put(str(ManifestKey(self.query, id)), [wrap("manifest", manifest)], new=True)
        except AlreadyThere:
            if self.manifest(id) != manifest:
                raise

    def manifest(self, id: int) -> bytes | Seal:
        """Returns the manifest of a checkpoint, or its seal. Raises NotThere or Damaged."""
        key = ManifestKey(self.query, id)
        kind, content = self._unwrapped(key)
        match kind:
            case "manifest":
                return content
            case "seal":
                return Seal(str(json.loads(content)["reason"]))
        raise Damaged(f"{self.where(key)} is damaged: it is a {kind}, and no manifest")

    def pin(self, id: int, token: str, lease: Lease) -> str:
        """Stores a reader's pin of a checkpoint, or its renewed lease; returns the key."""
        key = str(PinKey(self.query, id, token))
        self.store.put(key, [_wrapped("pin", asdict(lease))])
        return key

    def leases(self, keys: CheckpointKeys) -> Iterator[tuple[str, Lease]]:
        """Returns the keys and leases of a checkpoint's pins. A damaged lease never expires."""
        for key in keys.pins:
            try:
                found = self._read(key, "pin")
                yield key, Lease(found["reader"], found["until"], found.get("generation"))
            except NotThere:
                continue
            except Damaged as reason:
                yield key, Lease(str(reason), float("inf"))

    def announce_removal(self, id: int, token: str) -> str:
        """Stores the announcement that a checkpoint is about to be removed; returns its key."""
        key = str(RemovalKey(self.query, id, token))
        self.store.put(key, [_wrapped("removal", {})])
        return key

    def remove_manifests(self, ids: Iterable[int]) -> None:
        self.store.delete([str(ManifestKey(self.query, id)) for id in ids])

    def where(self, key: StoredKey | str) -> str:
        """Returns store and key for messages."""
        return f"{self.store.name}/{key}"

    def _contents(self, prefix: str) -> Contents:
        return layout.contents(self.store.list(prefix)).get(self.query) or Contents()

    def _new(self, key: StoredKey, kind: str, content: dict[str, Any]) -> bool:
        try:
            self.store.put(str(key), [_wrapped(kind, content)], new=True)
        except AlreadyThere:
            return False
        return True

    def _read(self, key: StoredKey | str, kind: str) -> dict[str, Any]:
        found, content = self._unwrapped(key)
        if found != kind:
            raise Damaged(f"{self.where(key)} is damaged: it is a {found}, and no {kind}")
        return dict(json.loads(content))

    def _unwrapped(self, key: StoredKey | str) -> tuple[str, bytes]:
        return unwrap(self.store.get(str(key)), self.where(key))


def _wrapped(kind: str, content: dict[str, Any]) -> bytes:
    return wrap(kind, json.dumps(content).encode())


def wrap(kind: str, content: bytes) -> bytes:
    """Returns a file of the catalogue: a first line with kind, checksum and length, then the content.

    >>> wrap("seal", b"why").splitlines()[1]
    b'why'
    """
    return b"seep-%s 1 %s %d\n%s" % (kind.encode(), _checksum(kind, content), len(content), content)


def unwrap(data: bytes | memoryview, name: str) -> tuple[str, bytes]:
    """Returns kind and content; raises Damaged if a single bit has changed.

    >>> unwrap(wrap("seal", b"why"), "orders/000000000012.manifest")
    ('seal', b'why')
    """
    found = _LINE.match(data)
    if not found:
        raise Damaged(f"{name} is damaged: it does not begin as a file of seep does")
    kind, content = found[1].decode(), bytes(data[found.end() :])
    if len(content) != int(found[3]):
        raise Damaged(f"{name} is damaged: after its first line come {len(content)} bytes, and not {int(found[3])}")
    if _checksum(kind, content) != found[2]:
        raise Damaged(f"{name} is damaged: its checksum is not that of its content")
    return kind, content


def _checksum(kind: str, content: bytes) -> bytes:
    return hashlib.sha256(kind.encode() + b"\n" + content).hexdigest().encode()
