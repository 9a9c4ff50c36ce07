"""A ring: the newest items of an endless sequence, and the count of all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """Keeps the newest items, up to `most` in total size, and at least the last one. Thread-safe.

    >>> ring = Ring[str](3)
    >>> for word in "abcde":
    ...     ring.append(word)
    >>> list(ring), ring.total, ring.dropped
    (['c', 'd', 'e'], 5, 2)
    """

    def __init__(self, most: int, size: Callable[[T], int] = lambda _: 1) -> None:
        self._most, self._size = most, size
        self._items: deque[tuple[T, int]] = deque()
        self._kept = 0  #: size of all kept items
        self._dropped = 0
        self._lock = threading.Lock()

    def append(self, item: T) -> None:
        with self._lock:
            self._items.append((item, self._size(item)))
            self._kept += self._items[-1][1]
            while self._kept > self._most and len(self._items) > 1:
                self._kept -= self._items.popleft()[1]
                self._dropped += 1

    def numbered(self, number: int) -> T | None:
        """Returns the item with a number, counted from 0 over all items so far; None if it is not kept any more."""
        with self._lock:
            at = number - self._dropped
            return self._items[at][0] if 0 <= at < len(self._items) else None

    def since(self, number: int) -> tuple[int, list[T]]:
        """Returns the kept items from a number on, with the number of the first of them."""
        with self._lock:
            first = max(number, self._dropped)
            return first, [item for item, _ in islice(self._items, first - self._dropped, None)]

    def newest(self, is_new: Callable[[T], bool]) -> list[T]:
        """Returns the newest items, oldest first, up to the last one that is not `is_new`."""
        with self._lock:
            return [item for item, _ in takewhile(lambda each: is_new(each[0]), reversed(self._items))][::-1]

    @property
    def total(self) -> int:
        """The number of all items so far."""
        with self._lock:
            return self._dropped + len(self._items)

    @property
    def dropped(self) -> int:
        """The number of items that are not kept any more."""
        return self._dropped

    def __iter__(self) -> Iterator[T]:
        """Yields the kept items, oldest first."""
        with self._lock:
            return iter([item for item, _ in self._items])

    def __len__(self) -> int:
        return len(self._items)
