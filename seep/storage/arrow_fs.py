"""Stores values as files of one of Arrow's file systems: Google Cloud Storage, HDFS."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import pyarrow as pa
from pyarrow import fs

from primitives.errors import EnvironmentFault
from seep.storage.keys import checked_key, checked_range, directory_of
from seep.storage.store import AlreadyThere, NotThere
from seep.storage.streams import stream_of, views

#: The folder of unfinished files. No key leads there, as no part of a key begins with a dot.
_PARTIAL = ".partial"
#: File systems that have no real directories, only names with slashes.
_FLAT = ("gcs", "s3", "abfs")


class ArrowStore:
    """A `BlobStore` on an Arrow file system; several threads may use it.

    A value is written to another place and then moved. These file systems do not decide between two writers of the same
    `new` key at the same time, because each writer only looks first.
    """

    def __init__(self, files: fs.FileSystem, root: str, name: str) -> None:
        self.name = name.rstrip("/")
        self._files = files
        self._root = root.rstrip("/")
        self._has_directories = files.type_name not in _FLAT

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        target = self._path(key)
        partial = f"{self._root}/{_PARTIAL}/{uuid.uuid4().hex}"
        with self._in_words("written", key):
            if new and self._is_file(target):
                raise AlreadyThere(f"{self.name} has something under {key} already")
            try:
                size = self._write(partial, parts)
                self._make_directory(target)
                self._files.move(partial, target)
            except BaseException:
                with suppress(OSError):  # the temporary file may not exist yet
                    self._files.delete_file(partial)
                raise
        return size

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        checked_range(start, length)
        with self._in_words("read", key), self._opened(key) as file:
            size = file.size()
            end = size if length is None else min(size, start + length)
            return memoryview(file.read_at(end - start, start)) if start < end else memoryview(b"")

    def open(self, key: str) -> BinaryIO:
        return stream_of(lambda start, length: self.get(key, start, length), self.size(key))

    def size(self, key: str) -> int:
        path = self._path(key)
        with self._in_words("read", key):
            found = self._files.get_file_info(path)
        if found.type is not fs.FileType.File:
            raise NotThere(f"{self.name} has nothing under {key}")
        return int(found.size)

    def list(self, prefix: str = "") -> Iterator[str]:
        above = directory_of(prefix)
        if above is None:
            return iter(())
        below = fs.FileSelector(f"{self._root}/{above}".rstrip("/"), allow_not_found=True, recursive=True)
        with self._in_words("listed", prefix):
            found = self._files.get_file_info(below)
        keys = (each.path.removeprefix(self._root + "/") for each in found if each.type is fs.FileType.File)
        return iter(sorted(key for key in keys if key.startswith(prefix) and not key.startswith(_PARTIAL)))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            with self._in_words("deleted", key):
                if self._is_file(path):
                    self._files.delete_file(path)

    def close(self) -> None:
        """Does nothing: no connection is held open."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _is_file(self, path: str) -> bool:
        return bool(self._files.get_file_info(path).type is fs.FileType.File)

    def _write(self, path: str, parts: Iterable[bytes | memoryview]) -> int:
        self._make_directory(path)
        size = 0
        with self._files.open_output_stream(path) as stream:
            for view in views(parts):
                stream.write(view)
                size += view.nbytes
        return size

    def _make_directory(self, path: str) -> None:
        if self._has_directories:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)

    def _opened(self, key: str) -> pa.NativeFile:
        path = self._path(key)
        if not self._is_file(path):
            raise NotThere(f"{self.name} has nothing under {key}")
        return self._files.open_input_file(path)

    @contextmanager
    def _in_words(self, done: str, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as reason:
            raise NotThere(f"{self.name} has nothing under {key}") from reason
        except (OSError, pa.ArrowException) as reason:
            raise EnvironmentFault(
                f"{self.name}/{key} cannot be {done} ({' '.join(str(reason).split())}); look at the credentials, "
                "their rights, and the network"
            ) from reason
