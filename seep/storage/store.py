"""The interface of stores: keys and values, with no knowledge of queries, instances or topologies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, Protocol

from primitives.errors import EnvironmentFault


class NotThere(EnvironmentFault):
    """The key has no value; the message names store and key."""


class AlreadyThere(EnvironmentFault):
    """A key that was to be new already has a value: another writer was faster."""


class BlobStore(Protocol):
    """A back end. Keys are paths such as `orders/00000012/counter/0-frame`; readers see a whole value or none."""

    @property
    def name(self) -> str:
        """The store's location, for messages, such as `file:///data/checkpoints`."""
        ...

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        """Stores a value, given in parts, atomically; returns its size.

        With `new`, raises AlreadyThere if the key has a value.
        """
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        """Returns the value, or a range of it, which is cut at the value's end. Raises NotThere."""
        ...

    def open(self, key: str) -> BinaryIO:
        """Returns the value as a stream, for values that do not fit into memory. Raises NotThere."""
        ...

    def size(self, key: str) -> int:
        """Returns the size of a value in bytes. Raises NotThere."""
        ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """Returns all keys with this prefix, in order."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Removes values; keys without a value are ignored."""
        ...

    def close(self) -> None: ...
