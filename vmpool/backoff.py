"""Back-off: computes when to retry after failures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Waits `first` seconds after a failure, and twice as long after each further one, up to `most`.

    >>> waits = Backoff(1.0, 60.0)
    >>> waits.failed(10.0), waits.is_ready(10.5), waits.is_ready(11.0)
    (True, False, True)
    """

    first: float
    most: float
    wait: float = field(default=0.0, init=False)  #: seconds to wait after the last failure; 0 if there was none
    _until: float = field(default=-math.inf, init=False)

    def is_ready(self, now: float) -> bool:
        return now >= self._until

    def failed(self, now: float, *, again: bool = True) -> bool:
        """Records a failure, and returns whether it is new: concurrent attempts that all fail count as one.

        With `again` false the next attempt waits for `changed`.
        """
        is_news = self.is_ready(now) or (not again and self._until < math.inf)
        if self.is_ready(now):
            self.wait = min(self.most, 2 * self.wait or self.first)
            self._until = now + self.wait
        if not again:
            self._until = math.inf
        return is_news

    def succeeded(self, now: float) -> None:
        """Resets the failures, except those of concurrent attempts."""
        if self.is_ready(now):
            self.wait = 0.0

    def changed(self) -> None:
        """Resets permanent failures, as their cause may be gone."""
        if self._until == math.inf:
            self._until = -math.inf
