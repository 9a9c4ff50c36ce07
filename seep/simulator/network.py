"""The simulated network: links that can be cut, slow channels, and nodes that do not take what arrives.

When a link is cut, what was under way is lost from some point on; the part before that point may still be read after
the link is back, as bytes in a socket buffer are. Streams lose it for good, letters come again by their courier.
"""

from __future__ import annotations

import random

from seep.kernel.mail import Channel, RandomOrder

_PACES = (1.0, 1.0, 1.0, 1.0, 0.5, 0.1)


class Network(RandomOrder):
    """Queues of what is under way; the next one to move is chosen at random."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        #: nodes that do nothing at all, and those that mostly do nothing
        self.frozen: set[str] = set()
        self.slow: set[str] = set()
        self._down: set[frozenset[str]] = set()
        #: how likely a channel delivers when it is its turn: most at once, some only now and then
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
        """Whether a channel lets its turn pass. Some channels are slow all the time, in one direction."""
        ends = (channel.source, channel.target)
        pace = self._pace.get(ends)
        if pace is None:
            pace = self._pace[ends] = self.rng.choice(_PACES)
        return pace < 1.0 and self.rng.random() >= pace
