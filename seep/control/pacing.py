"""Pacing: computes when each step of a migration is due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from policies.migration.move_stream import Clock, MoveStream
from policies.migration.settings import MigrationSettings

#: Seconds before its time at which a migration requests VMs.
_AHEAD = 60.0
#: The most epochs above the usual number that may be open in a settled query; and seconds after which it counts as
#: settled anyway.
_SLACK, _PATIENCE = 2, 1.0


class Now(NamedTuple):
    """The present state, as a pace sees it."""

    seconds: float  #: since the query began to run
    ticked: int
    committed: int
    soonest: int  #: the epoch at which a move can be effective if it is announced now
    horizon: int  #: moves up to this epoch are announced now, as it may be open before the next call
    epoch_length: float = 0.05  #: seconds of an epoch if the query keeps up
    usual: int = 0  #: number of open epochs when the migration began

    def has_settled(self, since: float) -> bool:
        """Whether about as many epochs are open as usual, or this has been waited for long enough."""
        is_calm = self.ticked - self.committed <= self.usual + _SLACK
        return is_calm or self.seconds >= since + _PATIENCE


class Before(Protocol):
    """The state of the previous step, as a pace sees it."""

    @property
    def first(self) -> int:
        """The epoch at which the step is effective."""
        ...

    @property
    def effective(self) -> float | None:
        """The time at which all sinks had committed that epoch, or None."""
        ...


class StepPace(Protocol):
    """Decides when the next step is announced."""

    @property
    def name(self) -> str: ...

    def may_begin(self, now: Now) -> bool: ...

    def is_near(self, now: Now) -> bool:
        """Whether the first step is so near that VMs must be started for it."""
        ...

    def due(self, number: int, before: Before | None, now: Now) -> int | None:
        """Returns the epoch at which step `number` is to be effective; None if it is not to be announced yet."""
        ...


@dataclass(frozen=True, slots=True)
class StepByStep:
    """Announces each step when the one before has taken effect and the gap after it is over.

    Without a given gap, it waits until the query has processed its backlog; otherwise the pauses would add up.
    """

    settings: MigrationSettings
    at: float | None = None  #: seconds since the query began to run
    epoch: int | None = None  #: epoch at which the first step is effective

    @property
    def name(self) -> str:
        return self.settings.strategy.value

    def may_begin(self, now: Now) -> bool:
        return self.due(0, None, now) is not None

    def is_near(self, now: Now) -> bool:
        to_go = ((self.epoch or 0) - now.ticked) * now.epoch_length
        return max(to_go, (self.at or 0.0) - now.seconds) <= _AHEAD

    def due(self, number: int, before: Before | None, now: Now) -> int | None:  # noqa: ARG002
        is_time = self._may_follow(before, now) if before else self._is_its_moment(now)
        if not is_time:
            return None
        soonest = max(now.soonest, now.ticked + 1 + (self.settings.lead or 0))
        return soonest if before or self.epoch is None else max(soonest, self.epoch)

    def _is_its_moment(self, now: Now) -> bool:
        return now.seconds >= (self.at or 0.0) and now.horizon + (self.settings.lead or 0) >= (self.epoch or 0)

    def _may_follow(self, before: Before, now: Now) -> bool:
        if before.effective is None:
            return False
        gap, epochs = self.settings.gap, self.settings.gap_epochs
        if gap is None and not epochs:
            return now.has_settled(before.effective)
        return now.committed >= before.first + epochs and now.seconds >= before.effective + (gap or 0.0)


@dataclass(frozen=True, slots=True)
class ByTheClock:
    """Announces each step at its own time, whatever happened to the steps before."""

    stream: MoveStream

    @property
    def name(self) -> str:
        return "stream"

    def may_begin(self, now: Now) -> bool:  # noqa: ARG002
        return True

    def is_near(self, now: Now) -> bool:  # noqa: ARG002
        return True

    def due(self, number: int, before: Before | None, now: Now) -> int | None:  # noqa: ARG002
        moment = self.stream.moments[number]
        if self.stream.clock is Clock.EPOCH:
            return max(int(moment), now.soonest) if now.horizon >= moment else None
        return now.soonest if now.seconds >= moment else None
