"""A set that keeps only the most recently added items."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Recent(Generic[Item]):
    """A set of at most `size` items; the one that was added first is dropped first.

    >>> seen = Recent[str](2)
    >>> for word in ("one", "two", "two", "three"):
    ...     seen.add(word)
    >>> [word in seen for word in ("one", "two", "three")]
    [False, True, True]
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: dict[Item, None] = {}

    def add(self, item: Item) -> None:
        self._items[item] = None
        if len(self._items) > self._size:
            del self._items[next(iter(self._items))]

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)
