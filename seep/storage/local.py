"""Stores values as files of a directory, on a disk of this machine or on one that all machines share."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from formats.files import sync_directory
from primitives.errors import EnvironmentFault
from seep.storage.keys import checked_key, checked_range, directory_of
from seep.storage.store import AlreadyThere, NotThere
from seep.storage.streams import views

#: The folder of unfinished files. No key leads there, as no part of a key begins with a dot.
_PARTIAL = ".partial"
#: Seconds without a write after which a partial file counts as left by a dead writer.
_ABANDONED = 24 * 3600.0
#: Attempts to create a directory that concurrent calls of `delete` remove as empty.
_TRIES = 100

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, keep fewer checkpoints, or choose another location",
    errno.EDQUOT: "the quota is used up: free some space, keep fewer checkpoints, or choose another location",
    errno.EACCES: "this user may not do that there: change the rights of the directory, or choose another location",
    errno.EPERM: "this user may not do that there, or the file system has no hard links: choose another location",
    errno.EOPNOTSUPP: "the file system has no hard links: choose another location",
    errno.EROFS: "the file system is read-only: choose another location",
    errno.EEXIST: "a part of this path is a file: no key may go on where another one ends",
    errno.ENOTDIR: "a part of this path is a file: no key may go on where another one ends",
    errno.EISDIR: "there is a directory of this name: no key may end where another one goes on",
}
#: Function that gives a written file its name: (source, target).
Naming = Callable[[Path, Path], None]
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """A `BlobStore` on a directory; several threads and processes may use it.

    A value is written to a temporary file, flushed to the disk, and only then given its name, so it survives a crash of
    the machine once `put` has returned.
    """

    def __init__(self, root: Path | str) -> None:
        self._root = Path(root).absolute()
        self.name = self._root.as_uri()
        self._swept = False

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        target = self._path(key)
        with self._in_words("written", target):
            partial = self._partial()
            try:
                size = _write(partial, parts)
                self._publish(partial, target, _name_as_new if new else os.rename)
            finally:
                partial.unlink(missing_ok=True)
        return size

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        checked_range(start, length)
        with self._reading(key) as (file, size):
            end = size if length is None else min(size, start + length)
            return _read(file, start, max(0, end - start))

    def open(self, key: str) -> BinaryIO:
        with self._reading(key) as (file, _):
            return os.fdopen(os.dup(file), "rb")

    def size(self, key: str) -> int:
        with self._reading(key) as (_, size):
            return size

    def list(self, prefix: str = "") -> Iterator[str]:
        above = directory_of(prefix)
        found = () if above is None else self._below(above + "/" * bool(above))
        return (key for key in found if key.startswith(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes values and flushes that to the disk, so these are never deleted after the values of a later call."""
        parents = set()
        for target in map(self._path, keys):
            with self._in_words("deleted", target), suppress(*_ABSENT):
                target.unlink()
                parents.add(target.parent)
        for parent in sorted(parents):
            with self._in_words("deleted", parent):
                self._sync(parent)
                self._remove_empty(parent)

    def close(self) -> None:
        """Does nothing: no file is held open."""

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _partial(self) -> Path:
        """Returns a new path for an unfinished file; the first call removes files of dead writers."""
        directory = self._root / _PARTIAL
        if not self._root.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            sync_directory(self._root.parent)
        directory.mkdir(exist_ok=True)
        if not self._swept:
            self._swept = True
            _sweep(directory)
        return directory / uuid.uuid4().hex

    def _publish(self, source: Path, target: Path, name: Naming) -> None:
        """Gives a written file its name, and flushes all directories on the path to it."""
        for left in reversed(range(_TRIES)):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                name(source, target)
                return self._sync(target.parent)
            except (FileNotFoundError, FileExistsError):  # the directory was removed meanwhile
                if not left:
                    raise
        return None

    def _sync(self, directory: Path) -> None:
        """Flushes the entries of a directory and of those above it."""
        for each in (directory, *directory.parents):
            with suppress(FileNotFoundError):  # the directory was removed because it was empty
                sync_directory(each)
            if each == self._root:
                return

    def _remove_empty(self, directory: Path) -> None:
        for each in itertools.takewhile(lambda path: path != self._root, (directory, *directory.parents)):
            try:
                each.rmdir()
            except OSError:  # not empty, or removed by another process
                return

    def _below(self, above: str) -> Iterator[str]:
        """Returns the keys in a directory in order.

        A directory sorts with a slash after it: `a-b` comes before `a/b`.
        """
        directory, names = self._root / above, list[str]()
        with self._in_words("listed", directory), suppress(*_ABSENT), os.scandir(directory) as entries:
            names = sorted(each.name + "/" * each.is_dir() for each in entries if not each.name.startswith("."))
        for name in names:
            yield from self._below(above + name) if name.endswith("/") else (above + name,)

    @contextmanager
    def _reading(self, key: str) -> Iterator[tuple[int, int]]:
        """Opens the file of a value; gives its descriptor and its size."""
        target = self._path(key)
        with self._in_words("read", target):
            try:
                file = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            except _ABSENT:
                raise NotThere(f"{self.name} has nothing under {key}") from None
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise NotThere(f"{self.name} has nothing under {key}")
                yield file, status.st_size
            finally:
                os.close(file)

    @contextmanager
    def _in_words(self, done: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as reason:
            advice = _ADVICE.get(reason.errno or 0, "look at the disk and at the rights of this user")
            raise EnvironmentFault(f"{path} cannot be {done}: {reason.strerror or reason}; {advice}") from reason


def _write(path: Path, parts: Iterable[bytes | memoryview]) -> int:
    """Writes a new file and flushes it to the disk; returns its size."""
    size = 0
    with open(path, "xb") as stream:
        for view in views(parts):
            size += stream.write(view)
        stream.flush()
        os.fsync(stream.fileno())
    return size


def _name_as_new(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise AlreadyThere(f"{target} is there already") from None


def _read(file: int, start: int, length: int) -> memoryview:
    """Reads by copy. With a mapped file, an error of the disk would end the process instead of raising an exception."""
    found = np.empty(length, np.uint8).data
    at = 0
    while at < length and (count := os.preadv(file, [found[at:]], start + at)):
        at += count
    return found[:at]


def _sweep(directory: Path) -> None:
    """Removes unfinished files of dead writers."""
    long_ago = time.time() - _ABANDONED
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < long_ago:
                path.unlink()
