"""A cache in memory over another store: values that were read lately are not fetched again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from seep.storage.store import BlobStore
from seep.storage.streams import stream_of


class Range(NamedTuple):
    """The range that a `get` asked for. Without a length, it extends to the end of the value."""

    key: str
    start: int
    length: int | None


class CachedStore:
    """A `BlobStore` that caches another one; several threads may use it.

    Keeps at most `budget` bytes and evicts the least recently read values first. Only keys that are `cacheable` are
    kept. Changes by other processes are not seen, so these must be keys whose value never changes.

    >>> from seep.storage.memory import MemoryStore
    >>> store = CachedStore(MemoryStore("demo"), budget=1000)
    >>> store.put("a", [b"value"])
    5
    >>> bytes(store.get("a")), bytes(store.get("a", start=1, length=2)), (store.hits, store.misses)
    (b'value', b'al', (1, 1))
    """

    def __init__(self, inner: BlobStore, budget: int, cacheable: Callable[[str], bool] = lambda _: True) -> None:
        self.hits = self.misses = 0
        self._inner, self._budget, self._cacheable = inner, budget, cacheable
        #: Cached values, the least recently read first.
        self._kept: OrderedDict[Range, memoryview] = OrderedDict()
        self._nbytes = 0
        #: Reads in progress whose key has not changed since they began.
        self._reads: dict[object, str] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def nbytes(self) -> int:
        """Cached bytes; never more than the budget."""
        return self._nbytes

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        with self._changing([key]):
            return self._inner.put(key, parts, new=new)

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        asked = Range(key, start, length)
        if not self._cacheable(key):
            return self._inner.get(*asked)
        found = self._find(asked)
        return self._fetch(asked) if found is None else found

    def open(self, key: str) -> BinaryIO:
        if not self._cacheable(key):
            return self._inner.open(key)
        return stream_of(lambda start, length: self.get(key, start, length), self.size(key))

    def size(self, key: str) -> int:
        return self._inner.size(key)

    def list(self, prefix: str = "") -> Iterator[str]:
        return self._inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        gone = list(keys)
        with self._changing(gone):
            self._inner.delete(gone)

    def close(self) -> None:
        with self._lock:
            self._kept.clear()
            self._nbytes = 0
        self._inner.close()

    def _find(self, asked: Range) -> memoryview | None:
        with self._lock:
            for kept in (asked, Range(asked.key, 0, None)):
                if (value := self._kept.get(kept)) is not None:
                    self._kept.move_to_end(kept)
                    self.hits += 1
                    return value if kept == asked else _cut(value, asked)
            self.misses += 1
            return None

    def _fetch(self, asked: Range) -> memoryview:
        read = object()
        with self._lock:
            self._reads[read] = asked.key
        try:
            value = self._inner.get(*asked)
        except BaseException:
            self._reads.pop(read, None)
            raise
        with self._lock:
            if self._reads.pop(read, None) is not None:
                self._keep(asked, value)
        return value

    def _keep(self, asked: Range, value: memoryview) -> None:
        if value.nbytes > self._budget:
            return
        self._drop(asked)
        while self._nbytes + value.nbytes > self._budget:
            self._drop(next(iter(self._kept)))
        self._kept[asked] = value
        self._nbytes += value.nbytes

    def _drop(self, kept: Range) -> None:
        value = self._kept.pop(kept, None)
        self._nbytes -= 0 if value is None else value.nbytes

    @contextmanager
    def _changing(self, keys: Collection[str]) -> Iterator[None]:
        """Drops cached values of keys that change, or may have changed; reads that began before are not cached."""
        try:
            yield
        finally:
            changed = set(keys)
            with self._lock:
                for kept in [kept for kept in self._kept if kept.key in changed]:
                    self._drop(kept)
                self._reads = {read: key for read, key in self._reads.items() if key not in changed}


def _cut(value: memoryview, asked: Range) -> memoryview:
    return value[asked.start : None if asked.length is None else asked.start + asked.length]
