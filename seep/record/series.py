"""A coarsening series: every item of the last minutes, and fewer items of earlier times, the older they are."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class SeriesLevel(NamedTuple):
    """A period of the past, with its kept items."""

    every: float  #: least seconds between two items
    span: float  #: most seconds between the newest item of the level and its oldest


#: All items of the last five minutes; one per ten seconds of two hours, per minute of a day, per hour of three months.
LEVELS = (
    SeriesLevel(0.0, 300.0),
    SeriesLevel(10.0, 7_200.0),
    SeriesLevel(60.0, 86_400.0),
    SeriesLevel(3_600.0, 92 * 86_400.0),
)


class CoarseningSeries(Generic[T]):
    """Items with their times, in rings that get coarser with age; the very first item is kept. Thread-safe.

    >>> series = CoarseningSeries[str]([SeriesLevel(0.0, 2.0), SeriesLevel(10.0, 20.0)])
    >>> for at in range(60):
    ...     series.append(float(at), f"item {at}")
    >>> list(series)
    ['item 0', 'item 30', 'item 40', 'item 50', 'item 57', 'item 58', 'item 59']
    """

    def __init__(self, levels: Sequence[SeriesLevel] = LEVELS) -> None:
        self._levels = tuple(levels)
        self._rings: tuple[deque[tuple[float, T]], ...] = tuple(deque() for _ in levels)
        self._first: tuple[float, T] | None = None
        self._lock = threading.Lock()

    def append(self, at: float, item: T) -> None:
        """Adds an item that is later than all before."""
        with self._lock:
            if self._first is None:
                self._first = (at, item)
            leaving = [(at, item)]
            for level, ring in zip(self._levels, self._rings, strict=True):
                leaving = list(_through(level, ring, leaving))

    def __iter__(self) -> Iterator[T]:
        """The kept items, in order of time."""
        with self._lock:
            kept = [each for ring in reversed(self._rings) for each in ring]
            first = [self._first] if self._first is not None and (not kept or kept[0][0] > self._first[0]) else []
            return iter([item for _, item in (*first, *kept)])

    def __len__(self) -> int:
        return sum(map(len, self._rings))


def _through(
    level: SeriesLevel, ring: deque[tuple[float, T]], arriving: list[tuple[float, T]]
) -> Iterator[tuple[float, T]]:
    """Adds items that are not too close to the one before; yields those that are too old for the level now."""
    for at, item in arriving:
        if not ring or at - ring[-1][0] >= level.every:
            ring.append((at, item))
            while at - ring[0][0] > level.span:
                yield ring.popleft()
