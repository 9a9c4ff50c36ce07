"""The simulated network: links that fail, slow channels, and nodes that do not accept messages.

When a link fails, undelivered items after some point are lost; items before it may still be read after the link is
back, like bytes in a socket buffer. Streams lose their items for good; letters are sent again by their courier.
"""

from __future__ import annotations

import random

from seep.kernel.mail import Channel, RandomOrder

_PACES = (1.0, 1.0, 1.0, 1.0, 0.5, 0.1)


class Network(RandomOrder):
    """Queues of undelivered items; the next one is chosen at random."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        #: nodes that do nothing at all, and nodes that mostly do nothing
        self.frozen: set[str] = set()
        self.slow: set[str] = set()
        self._down: set[frozenset[str]] = set()
        #: probability that a channel delivers in its turn: high for most, low for some
        self._pace: dict[tuple[str, str], float] = {}

    def passes(self, channel: Channel) -> bool:
        """See `RandomOrder`."""
        target = channel.target
        if target in self.frozen or (target in self.slow and self.rng.random() < 0.9):
            return True
        return channel.source != target and (self._dawdles(channel) or not self.is_up(channel.source, target))

    def is_up(self, a: str, b: str) -> bool:
        """See `Mail`."""
        return not self._down or frozenset((a, b)) not in self._down

    def cut(self, a: str, b: str) -> None:
        self._down.add(frozenset((a, b)))
        self.lose(a, b)

    def mend(self, a: str, b: str) -> None:
        self._down.discard(frozenset((a, b)))

    def _dawdles(self, channel: Channel) -> bool:
        """Whether a channel skips its turn. Some channels are always slow, in one direction."""
        ends = (channel.source, channel.target)
        pace = self._pace.get(ends)
        if pace is None:
            pace = self._pace[ends] = self.rng.choice(_PACES)
        return pace < 1.0 and self.rng.random() >= pace
