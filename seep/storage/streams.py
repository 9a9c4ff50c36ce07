"""Conversions between values, parts and streams that all back ends share."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

#: Bytes that a stream requests from its store at a time, so that a small read does not cost a request.
READ_AHEAD = 8 * 2**20


def views(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Returns each part as plain bytes, without a copy, whatever its element type is; leaves out empty parts."""
    for part in parts:
        view = memoryview(part).cast("B")
        if view.nbytes:
            yield view


def pieces(parts: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Returns the same bytes in pieces of equal size, the last one shorter; each piece is copied once.

    >>> list(pieces([b"abc", b"", b"defgh"], 3))
    [b'abc', b'def', b'gh']
    """
    gathered: list[memoryview] = []
    room = size
    for view in views(parts):
        while view.nbytes >= room:
            yield b"".join([*gathered, view[:room]])
            gathered, view, room = [], view[room:], size
        if view.nbytes:
            gathered.append(view)
            room -= view.nbytes
    if gathered:
        yield b"".join(gathered)


def stream_of(get: Callable[[int, int], memoryview], size: int) -> BinaryIO:
    """Returns a stream over a value of `size` bytes, which fetches ranges of it as they are read.

    >>> stream = stream_of(lambda start, length: memoryview(b"a value")[start : start + length], 7)
    >>> stream.seek(2), stream.read(3), stream.read()
    (2, b'val', b'ue')
    """
    return io.BufferedReader(_Ranges(get, size), READ_AHEAD)


class _Ranges(io.RawIOBase):
    """A raw stream whose reads are calls of `get(start, length)`."""

    def __init__(self, get: Callable[[int, int], memoryview], size: int) -> None:
        self._get, self._size, self._at = get, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed has a type of its own for it
        wanted = min(len(buffer), max(0, self._size - self._at))
        found = self._get(self._at, wanted) if wanted else memoryview(b"")
        buffer[: found.nbytes] = found
        self._at += found.nbytes
        return found.nbytes
