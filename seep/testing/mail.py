"""Mail: what is under way between processes that are none, in the order of sending or in a seeded one."""

from __future__ import annotations

import random
from collections import deque
from itertools import count
from typing import Any, NamedTuple


class Channel(NamedTuple):
    """What goes from one process to another for one purpose; it arrives in the order of sending."""

    source: str
    target: str
    lane: object


class Mail:
    """First come, first served; with a seed, the next channel is chosen by lot."""

    def __init__(self, seed: int | None = None) -> None:
        self._lots = None if seed is None else random.Random(seed)
        self._numbers = count()
        self._queues: dict[Channel, deque[tuple[int, Any]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, channel: Channel, item: object) -> None:
        self._queues.setdefault(channel, deque()).append((next(self._numbers), item))

    def take(self) -> tuple[Channel, Any]:
        """The next item; there must be one."""
        if self._lots is None:
            channel = min(self._queues, key=lambda c: self._queues[c][0][0])
        else:
            channel = self._lots.choice(list(self._queues))
        queue = self._queues[channel]
        _, item = queue.popleft()
        if not queue:
            del self._queues[channel]
        return channel, item

    def forget(self, target: str) -> None:
        """A process is gone, and what was sent to it goes nowhere."""
        for channel in [c for c in self._queues if c.target == target]:
            del self._queues[channel]
