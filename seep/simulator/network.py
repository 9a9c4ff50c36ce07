"""The simulated network: one FIFO channel per direction and purpose, over links that can be cut.

When a link is cut, what was under way is lost from some point on; the part before that point may still be read after
the link is back, as bytes in a socket buffer are. Streams lose it for good, letters come again by their courier.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any, NamedTuple

_PACES = (1.0, 1.0, 1.0, 1.0, 0.5, 0.1)


class Channel(NamedTuple):
    """From a process to another; `lane` tells the streams between the same two processes apart."""

    source: str
    target: str
    lane: Any  #: None for letters, (sender, receiver) for a stream


class Network:
    """Queues of what is under way. Which queue moves next is the scheduler's choice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._queues: dict[Channel, deque[Any]] = {}
        #: exactly the channels with something in them, in a list for random choice, and where each is in it
        self.busy: list[Channel] = []
        self._where: dict[Channel, int] = {}
        self.down: set[frozenset[str]] = set()
        #: how likely a channel delivers when it is its turn: most at once, some only now and then
        self._pace: dict[tuple[str, str], float] = {}

    def send(self, channel: Channel, item: Any) -> None:
        """Puts an item on its way; into a link that is down it is lost."""
        if self.is_up(channel.source, channel.target):
            queue = self._queues.get(channel)
            if queue is None:
                queue = self._queues[channel] = deque()
                self._where[channel] = len(self.busy)
                self.busy.append(channel)
            queue.append(item)

    def take(self, channel: Channel) -> Any:
        """The oldest item of a busy channel."""
        queue = self._queues[channel]
        item = queue.popleft()
        if not queue:
            self._forget(channel)
        return item

    def dawdles(self, channel: Channel) -> bool:
        """Whether a channel lets its turn pass; some are slow for good, each direction by itself."""
        ends = (channel.source, channel.target)
        pace = self._pace.get(ends)
        if pace is None:
            pace = self._pace[ends] = self._rng.choice(_PACES)
        return pace < 1.0 and self._rng.random() >= pace

    def is_up(self, a: str, b: str) -> bool:
        return frozenset((a, b)) not in self.down

    def cut(self, a: str, b: str) -> None:
        self.down.add(frozenset((a, b)))
        for channel in self._between(a, b):
            queue = self._queues[channel]
            for _ in range(self._rng.randint(0, len(queue))):
                queue.pop()
            if not queue:
                self._forget(channel)

    def mend(self, a: str, b: str) -> None:
        self.down.discard(frozenset((a, b)))

    def remove(self, process: str) -> None:
        """A process has ended; what it had sent may still arrive, what was sent to it goes nowhere."""
        for channel in [c for c in self._queues if c.target == process]:
            self._forget(channel)

    def _between(self, a: str, b: str) -> list[Channel]:
        return [c for c in self._queues if {c.source, c.target} == {a, b}]

    def _forget(self, channel: Channel) -> None:
        del self._queues[channel]
        place, last = self._where.pop(channel), self.busy.pop()
        if last is not channel:
            self.busy[place] = last
            self._where[last] = place
