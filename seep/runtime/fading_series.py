"""A fading series keeps every item of the recent past, and of the time before fewer, the longer ago."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FadingSeries(Generic[T]):
    """Each level has twice the distance of the one before between items, and room for as many. For any thread.

    With an item each half second, 16 levels of 128 have all of the last minute, one each 16 s of an hour ago, and reach
    back 48 days; after that the oldest level thins out further. The first item stays.

    >>> series = FadingSeries[int](room=4, levels=3)
    >>> for number in range(20):
    ...     series.append(number)
    >>> list(series)
    [0, 4, 8, 10, 12, 14, 16, 17, 18, 19]
    """

    def __init__(self, room: int = 128, levels: int = 16) -> None:
        self._room = room
        self._levels: list[list[T]] = [[] for _ in range(levels)]  #: newest items first, each oldest item first
        self._lock = threading.Lock()

    def append(self, item: T) -> None:
        with self._lock:
            self._levels[0].append(item)
            for level, above in zip(self._levels, self._levels[1:], strict=False):
                if len(level) > self._room:
                    above.append(level[0])
                    del level[:2]
            if len(self._levels[-1]) > self._room:
                del self._levels[-1][1::2]

    def __iter__(self) -> Iterator[T]:
        """By time."""
        with self._lock:
            return iter([item for level in reversed(self._levels) for item in level])
