"""Opens the store at a location, as settings or a command name it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from primitives.errors import EnvironmentFault, UserError
from seep.storage.cached import CachedStore
from seep.storage.layout import is_blob
from seep.storage.local import LocalStore
from seep.storage.memory import MemoryStore
from seep.storage.settings import S3Settings, StorageSettings
from seep.storage.store import BlobStore

_IN_MEMORY: dict[str, MemoryStore] = {}
_LOCK = threading.Lock()


def open_store(location: str, *, cache: int = 0, s3: S3Settings | None = None) -> BlobStore:
    """Opens the store at a location; `cache` is the number of bytes of a cache in memory for blobs.

    Nothing is created or requested yet. A store's `name` is a location too, and means the same in other processes,
    whatever their working directory; only memory stores are local to a process.

    >>> open_store("memory://tests").name, open_store("/data/checkpoints/").name
    ('memory://tests', 'file:///data/checkpoints')
    """
    scheme, separator, _ = location.partition("://")
    if not separator:
        scheme = "file"
    if scheme not in _OPENERS:
        raise UserError(
            f"location {location!r}: nothing is known of {scheme}://; choose a directory, or one of "
            f"{', '.join(f'{each}://' for each in _OPENERS)}"
        )
    store = _OPENERS[scheme](location, s3 or S3Settings())
    return CachedStore(store, cache, is_blob) if cache else store


def store_of(settings: StorageSettings) -> BlobStore | None:
    """Opens the store that settings name; None if they name none."""
    if settings.location is None:
        return None
    return open_store(settings.location, cache=settings.cache, s3=settings.s3)


def _file(location: str, _: S3Settings) -> BlobStore:
    if "://" not in location:
        return LocalStore(Path(_given(location, location)).expanduser())
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        raise UserError(
            f"location {location!r} names a machine, {parts.netloc!r}; a path has three slashes: file:///directory"
        )
    return LocalStore(unquote(_given(parts.path, location)))


def _memory(location: str, _: S3Settings) -> BlobStore:
    label = location.partition("://")[2]
    with _LOCK:
        return _IN_MEMORY.setdefault(label, MemoryStore(label))


def _s3(location: str, settings: S3Settings) -> BlobStore:
    from seep.storage.s3 import S3Store

    parts = urlsplit(location)
    return S3Store(_given(parts.netloc, location), parts.path, settings)


def _arrow(location: str, _: S3Settings) -> BlobStore:
    from pyarrow import fs

    from seep.storage.arrow_fs import ArrowStore

    _given(urlsplit(location).netloc + urlsplit(location).path.strip("/"), location)
    try:
        files, root = fs.FileSystem.from_uri(location)
    except (OSError, ValueError) as reason:
        first = str(reason).strip().partition("\n")[0]
        raise EnvironmentFault(f"{location} cannot be used ({first}); {_NEEDS[urlsplit(location).scheme]}") from reason
    return ArrowStore(files, root, location)


def _given(part: str, location: str) -> str:
    if not part:
        raise UserError(f"location {location!r} is not complete; write a directory, or such as s3://bucket/prefix")
    return part


_OPENERS: dict[str, Callable[[str, S3Settings], BlobStore]] = {
    "file": _file,
    "memory": _memory,
    "s3": _s3,
    "gs": _arrow,
    "hdfs": _arrow,
}
_NEEDS = {
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run on a machine with a service account",
    "hdfs": "it needs Java and Hadoop: set JAVA_HOME, HADOOP_HOME and CLASSPATH (as `hadoop classpath --glob` says)",
}
