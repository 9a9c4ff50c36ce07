"""Mail: undelivered messages between the processes of a world. A strategy chooses the next one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from seep.protocol.bulk import BulkAcknowledged, BulkSegment
from seep.protocol.courier import LetterFrame
from seep.protocol.effects import Commit, Effect, OpenSink
from seep.protocol.instances.sink import CommitAccepted, CommitRefused, SinkOpened
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation

Stream = tuple[Incarnation, Incarnation]


class Channel(NamedTuple):
    """A sequence of items from one process to another for one purpose, delivered in the order of sending."""

    source: str
    target: str
    lane: object  #: None for letters, (sender, receiver) for a stream, a name for other lanes


class Pull(NamedTuple):
    """A request to the sender of a stream to send what it has for the receiver."""

    stream: Stream
    node: str  #: the receiver's node


class SinkAnswer(NamedTuple):
    """The answer of a sink's store."""

    sink: Incarnation
    body: SinkOpened | CommitAccepted | CommitRefused


class OwnWork(NamedTuple):
    """Postponed work of a process, and its effects."""

    work: Callable[[], list[Effect]]


class Carried(NamedTuple):
    """A segment of the bulk lane, and the message that the last segment of its transfer completes."""

    segment: BulkSegment
    message: tuple[int, Any]  #: the version of the view in which it was written, and the message


Item = LetterFrame | Pull | Data | Carried | BulkAcknowledged | OpenSink | Commit | SinkAnswer | OwnWork


class Mail(Protocol):
    """All undelivered items."""

    def send(self, channel: Channel, item: Item) -> None: ...

    def __len__(self) -> int:
        """Number of channels, or items, that may be next; 0 if nothing is left."""
        ...

    def next(self) -> tuple[Channel, Any] | None:
        """Takes the next item out; there must be one. Returns None if its channel skips its turn."""
        ...

    def remove(self, process: str) -> None:
        """Removes an ended process: items to it are dropped, items from it may still arrive."""
        ...

    def is_up(self, a: str, b: str) -> bool:
        """Whether items of one can reach the other."""
        ...


class InOrder:
    """Delivers in the order of sending, over links that never fail."""

    def __init__(self) -> None:
        self._items: deque[tuple[Channel, Item]] = deque()

    def send(self, channel: Channel, item: Item) -> None:
        """See `Mail`."""
        self._items.append((channel, item))

    def __len__(self) -> int:
        return len(self._items)

    def next(self) -> tuple[Channel, Item]:
        """See `Mail`."""
        return self._items.popleft()

    def remove(self, process: str) -> None:
        """See `Mail`."""
        self._items = deque(pair for pair in self._items if pair[0].target != process)

    def is_up(self, a: str, b: str) -> bool:  # noqa: ARG002
        """See `Mail`."""
        return True


class RandomOrder:
    """Delivers from a channel that is chosen at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._queues: dict[Channel, deque[Item]] = {}
        #: exactly the channels with items, in a list for random choice, and the index of each in it
        self._busy: list[Channel] = []
        self._where: dict[Channel, int] = {}

    def send(self, channel: Channel, item: Item) -> None:
        """See `Mail`; an item on a link that is down is lost."""
        if self.is_up(channel.source, channel.target):
            queue = self._queues.get(channel)
            if queue is None:
                queue = self._queues[channel] = deque()
                self._where[channel] = len(self._busy)
                self._busy.append(channel)
            queue.append(item)

    def __len__(self) -> int:
        return len(self._busy)

    def next(self) -> tuple[Channel, Item] | None:
        """See `Mail`."""
        channel = self._busy[int(self.rng.random() * len(self._busy))]
        return None if self.passes(channel) else (channel, self.take(channel))

    def passes(self, channel: Channel) -> bool:  # noqa: ARG002
        """Whether a channel skips its turn."""
        return False

    def take(self, channel: Channel) -> Item:
        """Takes the oldest item of a busy channel."""
        queue = self._queues[channel]
        item = queue.popleft()
        if not queue:
            self._forget(channel)
        return item

    def remove(self, process: str) -> None:
        """See `Mail`."""
        for channel in [c for c in self._queues if c.target == process]:
            self._forget(channel)

    def is_up(self, a: str, b: str) -> bool:  # noqa: ARG002
        """See `Mail`."""
        return True

    def lose(self, a: str, b: str) -> None:
        """Loses all undelivered items between two processes after a random point."""
        for channel in [c for c in self._queues if {c.source, c.target} == {a, b}]:
            queue = self._queues[channel]
            for _ in range(self.rng.randint(0, len(queue))):
                queue.pop()
            if not queue:
                self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        del self._queues[channel]
        place, last = self._where.pop(channel), self._busy.pop()
        if last is not channel:
            self._busy[place] = last
            self._where[last] = place
