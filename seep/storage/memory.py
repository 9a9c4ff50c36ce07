"""Stores values in this process: for tests, and for queries whose savepoints need not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from seep.storage.keys import checked_key, checked_range
from seep.storage.store import AlreadyThere, NotThere
from seep.storage.streams import stream_of


class MemoryStore:
    """A `BlobStore` in memory; several threads may use it.

    >>> store = MemoryStore("demo")
    >>> store.put("orders/1", [b"a ", b"value"])
    7
    >>> bytes(store.get("orders/1", start=2)), list(store.list("ord"))
    (b'value', ['orders/1'])
    """

    def __init__(self, label: str = "") -> None:
        self.name = f"memory://{label}"
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        checked_key(key)
        value = b"".join(parts)  # outside of the lock, as the parts may come slowly or fail
        with self._lock:
            if new and key in self._values:
                raise AlreadyThere(f"{self.name} has something under {key} already")
            self._values[key] = value
        return len(value)

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        checked_range(start, length)
        return memoryview(self._value(key))[start : None if length is None else start + length]

    def open(self, key: str) -> BinaryIO:
        value = memoryview(self._value(key))
        return stream_of(lambda start, length: value[start : start + length], value.nbytes)

    def size(self, key: str) -> int:
        return len(self._value(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        with self._lock:
            found = sorted(key for key in self._values if key.startswith(prefix))
        return iter(found)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._lock:
                self._values.pop(checked_key(key), None)

    def close(self) -> None:
        """Does nothing: the values stay for later stores of the same name."""

    def _value(self, key: str) -> bytes:
        try:
            return self._values[checked_key(key)]
        except KeyError:
            raise NotThere(f"{self.name} has nothing under {key}") from None
