"""Checks that the files of a checkpoint exist and have the content that was written."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import BinaryIO

from formats.avro_file import Damaged
from formats.manifest import BlobRef, Manifest
from seep.storage.store import BlobStore, NotThere

#: The number of files that are checked at the same time, because a remote store is slow.
_AT_ONCE = 16

Check = Callable[[], None]


def check_files(manifest: Manifest, store: BlobStore) -> None:
    """Raises Damaged, with the file's name, if a file is missing or has another length. Costs one request per file."""
    _all(manifest, (partial(_check_size, store, key, size) for key, size in manifest.files.items()))


def check_content(manifest: Manifest, store: BlobStore) -> None:
    """Raises Damaged, with the file's name, if a file is missing or has other content. Reads all files."""
    files: dict[str, BlobRef] = {}
    for component in manifest.components.values():
        files |= {blob.key: blob for blob in component.every_blob()}
    _all(manifest, (partial(_check_pieces, store, key, list(_pieces(file))) for key, file in files.items()))


def _all(manifest: Manifest, checks: Iterable[Check]) -> None:
    with ThreadPoolExecutor(_AT_ONCE, "seep soundness") as pool:
        found = [pool.submit(check) for check in checks]
    try:
        for each in found:
            each.result()
    except (Damaged, NotThere) as reason:
        raise Damaged(f"checkpoint {manifest.id} of {manifest.query} is damaged: {reason}") from reason


def _check_size(store: BlobStore, key: str, size: int) -> None:
    there = store.size(key)
    if there != size:
        raise Damaged(f"{store.name}/{key} has {there} bytes, and {size} were written")


def _pieces(file: BlobRef) -> Iterator[tuple[int, int]]:
    """Yields the length and checksum of each part of a file."""
    yield file.index.header, file.index.header_crc
    yield from ((block.length, block.crc) for block in file.index.blocks)


def _check_pieces(store: BlobStore, key: str, pieces: Iterable[tuple[int, int]]) -> None:
    with closing(store.open(key)) as stream:
        start = 0
        for length, crc in pieces:
            if zlib.crc32(stream.read(length)) != crc:
                raise Damaged(f"{store.name}/{key} has another checksum in its {length} bytes from {start} on")
            start += length
        _check_end(stream, store, key, start)


def _check_end(stream: BinaryIO, store: BlobStore, key: str, size: int) -> None:
    if stream.read(1):
        raise Damaged(f"{store.name}/{key} has more than the {size} bytes that were written")
