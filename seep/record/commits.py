"""Commits: the last epoch that all sinks have committed, and the longest pause between two commits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Commits:
    """Is told of every commit, and knows the longest pause between two.

    >>> commits = Commits()
    >>> for epoch, at in [(1, 0.0), (2, 0.1), (2, 0.2), (5, 0.5)]:
    ...     commits.note(epoch, at)
    >>> commits.largest_gap
    0.4
    """

    epoch: int = 0  #: all sinks have committed it
    at: float | None = None  #: when they had
    largest_gap: float = 0.0

    def note(self, epoch: int, at: float) -> None:
        """Notes that all sinks have committed `epoch`; an epoch that was noted before changes nothing."""
        if epoch <= self.epoch:
            return
        if self.at is not None:
            self.largest_gap = max(self.largest_gap, at - self.at)
        self.epoch, self.at = epoch, at
