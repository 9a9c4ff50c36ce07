"""A store whose user dies at a chosen call, just before it takes effect or just after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar

from primitives.errors import EnvironmentFault
from seep.storage.store import BlobStore

T = TypeVar("T")


class Dead(EnvironmentFault):
    """From here on the process does nothing any more."""


class DyingStore:
    """Implements `seep.storage.store.BlobStore` on another one. Deletes one value at a time, each of them a call."""

    def __init__(self, inner: BlobStore, calls: int, *, done: bool) -> None:
        self.inner, self.left, self._done = inner, calls, done
        self.name = inner.name

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        return self._call(lambda: self.inner.put(key, parts, new=new))

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        return self._call(lambda: self.inner.get(key, start, length))

    def open(self, key: str) -> BinaryIO:
        return self._call(lambda: self.inner.open(key))

    def size(self, key: str) -> int:
        return self._call(lambda: self.inner.size(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        return self._call(lambda: self.inner.list(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._call(lambda key=key: self.inner.delete([key]))

    def close(self) -> None:
        self.inner.close()

    def _call(self, call: Callable[[], T]) -> T:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self._done):
            raise Dead("the process is dead")
        answer = call()
        if self.left == 0:
            raise Dead("the process died")
        return answer
