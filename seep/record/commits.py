"""Commits: how evenly the sinks of a run get on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Commits:
    """How evenly the sinks get on: told of every commit, knows the longest pause between two.

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
        """All sinks have committed `epoch`, perhaps for a while already."""
        if epoch <= self.epoch:
            return
        if self.at is not None:
            self.largest_gap = max(self.largest_gap, at - self.at)
        self.epoch, self.at = epoch, at
