"""Damage to what a store keeps: of every kind, to every kind of file, drawn by lot."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from seep.storage.store import BlobStore

Files = Mapping[str, bytes]
#: Given all files, one of them and a source of chance: what is different afterwards; None: it is gone.
How = Callable[[Files, str, random.Random], Mapping[str, bytes | None]]


def flip(files: Files, key: str, rng: random.Random) -> Mapping[str, bytes | None]:
    """One bit is not as it was."""
    data = bytearray(files[key])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return {key: bytes(data)}


def truncate(files: Files, key: str, rng: random.Random) -> Mapping[str, bytes | None]:
    """The end is missing, perhaps all of it."""
    return {key: files[key][: rng.randrange(len(files[key]))]}


def append(files: Files, key: str, rng: random.Random) -> Mapping[str, bytes | None]:
    """Something comes after the end."""
    return {key: files[key] + rng.randbytes(rng.randint(1, 50))}


def overwrite(files: Files, key: str, rng: random.Random) -> Mapping[str, bytes | None]:
    """A piece is something else, of the same length."""
    data = bytearray(files[key])
    start, length = rng.randrange(len(data)), rng.randint(1, 4096)
    data[start : start + length] = bytes(byte ^ rng.randint(1, 255) for byte in data[start : start + length])
    return {key: bytes(data)}


def delete(files: Files, key: str, rng: random.Random) -> Mapping[str, bytes | None]:  # noqa: ARG001
    """The file is gone."""
    return {key: None}


def swap(files: Files, key: str, rng: random.Random) -> Mapping[str, bytes | None]:
    """Two files have changed places: with one of the same kind, or with any."""
    alike = [other for other in files if other != key and kind_of(other) == kind_of(key)]
    other = rng.choice(alike if alike and rng.random() < 0.7 else [each for each in files if each != key])
    return {key: files[other], other: files[key]}


WAYS: tuple[How, ...] = (flip, truncate, append, overwrite, delete, swap)

KINDS = {
    "run": r"/runs/\d+$",
    "claim": r"\.claim$",
    "manifest": r"\.manifest$",
    "pin": r"\.pin-\w+$",
    "removal": r"\.removal-\w+$",
    "blob": r"/\d{12}/[^/]+/",
}


def kind_of(key: str) -> str:
    """What the file is, by its key."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, key))


@contextmanager
def damaged(store: BlobStore, files: Files, kind: str, how: How, seed: int) -> Iterator[dict[str, bytes | None]]:
    """What is different within the block; after it, the store has its files again and no others."""
    rng = random.Random(f"{kind} {how.__name__} {seed}")
    key = rng.choice([each for each in files if kind_of(each) == kind])
    different = {each: data for each, data in how(files, key, rng).items() if data != files[each]}
    for each, data in different.items():
        _put(store, each, data)
    try:
        yield different
    finally:
        for each in different:
            _put(store, each, files[each])
        store.delete([each for each in store.list() if each not in files])


def _put(store: BlobStore, key: str, data: bytes | None) -> None:
    if data is None:
        store.delete([key])
    else:
        store.put(key, [data])
