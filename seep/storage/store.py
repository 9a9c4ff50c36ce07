"""The interface to whoever keeps bytes: keys and values, and nothing of queries, instances or topologies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from primitives.errors import EnvironmentFault


class NotThere(EnvironmentFault):
    """There is nothing under a key; the message names store and key."""


class AlreadyThere(EnvironmentFault):
    """Somebody else was faster: there is something under a key that was to be new."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a back end can do beyond the minimum."""

    ranged: bool = True  #: `get` of a range reads only (about) that much
    exclusive: bool = True  #: `put` with `new=True` is decided by the back end, so concurrent writers are fenced
    append: bool = False  #: `append` works


class BlobStore(Protocol):
    """A back end. Keys are paths such as `orders/00000012/counter/0-frame`; a value is visible whole or not at all."""

    @property
    def name(self) -> str:
        """For messages, such as `file:///data/checkpoints`."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def put(self, key: str, parts: Iterable[bytes | memoryview], *, new: bool = False) -> int:
        """Stores a value, given in parts, atomically; returns its size. With `new`, AlreadyThere if the key has one."""
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> memoryview:
        """The value, or a range of it; NotThere. A range beyond the end is cut."""
        ...

    def open(self, key: str) -> BinaryIO:
        """The value as a stream, for those that are larger than memory; NotThere."""
        ...

    def size(self, key: str) -> int:
        """Bytes of a value; NotThere."""
        ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that begin so, in order."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Removes values; keys without one are ignored."""
        ...

    def append(self, key: str, data: bytes) -> None:
        """Adds to a value, or begins it; only with the capability `append`."""
        ...

    def close(self) -> None: ...
