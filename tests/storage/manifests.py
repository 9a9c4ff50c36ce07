"""Manifests that say no more than the catalogue needs, and a catalogue of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from seep.storage.attempt import Attempt, Writer
from seep.storage.catalogue import Catalogue
from seep.storage.store import BlobStore

QUERY = "orders"


class Info(NamedTuple):
    """Implements `seep.storage.reading.ManifestInfo`."""

    id: int
    savepoint: bool
    blobs: tuple[str, ...]
    pushed: tuple[str, ...] = ()


def text(id: int, blobs: Iterable[str] = (), *, savepoint: bool = False, pushed: Iterable[str] = ()) -> bytes:
    """A manifest."""
    return json.dumps([id, savepoint, sorted(blobs), sorted(pushed)]).encode()


def describe(manifest: bytes, _: str) -> Info:
    """What one says."""
    id, savepoint, blobs, pushed = json.loads(manifest)
    return Info(id, savepoint, tuple(blobs), tuple(pushed))


def catalogue(store: BlobStore, clock: Callable[[], float] = lambda: 0.0) -> Catalogue[Info]:
    """That of the query, as another process would have it."""
    return Catalogue(store, QUERY, describe, clock)


def fill(attempt: Attempt[Info], count: int = 2) -> set[str]:
    """Blobs of two instances."""
    return {attempt.put_blob("counter", f"{index}-totals", [b"state of %d" % attempt.id]) for index in range(count)}


def take(run: Writer[Info], *builds_on: Info, savepoint: bool = False) -> Info:
    """A checkpoint from the first to the last step; an incremental one refers to all blobs of its bases."""
    with run.begin(each.id for each in builds_on) as attempt:
        blobs = fill(attempt).union(*(each.blobs for each in builds_on))
        return attempt.commit(text(attempt.id, blobs, savepoint=savepoint))


def ids(infos: Iterable[Info]) -> list[int]:
    return [info.id for info in infos]
