"""Commits: the last epoch that all sinks have committed, and the longest pause between two commits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Commits:
    """Records every commit, and the longest pause between two.

    >>> commits = Commits()
    >>> for epoch, at in [(1, 0.0), (2, 0.1), (2, 0.2), (5, 0.5)]:
    ...     commits.note(epoch, at)
    >>> commits.largest_gap
    0.4
    """

    epoch: int = 0  #: the last epoch that all sinks have committed
    at: float | None = None  #: when they committed it
    largest_gap: float = 0.0

    def note(self, epoch: int, at: float) -> None:
        """Notes that all sinks have committed `epoch`; an epoch that was noted before changes nothing."""
        if epoch <= self.epoch:
            return
        if self.at is not None:
            self.largest_gap = max(self.largest_gap, at - self.at)
        self.epoch, self.at = epoch, at
