"""The laws of control, checked in schedules: every decision ends with an event, and requests by hand go first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from primitives.event import Event
from seep.record.events import (
    Balanced,
    BalancingBegun,
    BalancingCalledOff,
    Drained,
    DrainGivenUp,
    Migrated,
    MigrationCancelled,
    MigrationRefused,
    NothingToBalance,
    NothingToScale,
    ScaledIn,
    ScaledOut,
    ScalingCalledOff,
    ScalingFailed,
    ScalingGivenUp,
    ScalingIn,
    ScalingOut,
    ScalingRefused,
)
from seep.record.status import OpenDecision

#: By kind of decision: the events that end one.
ENDS: dict[str, tuple[type[Event], ...]] = {
    "scaling": (ScaledOut, ScaledIn, NothingToScale, ScalingRefused, ScalingCalledOff, ScalingGivenUp),
    "rebalance": (Balanced, BalancingCalledOff),
    "balance": (NothingToBalance, BalancingBegun),
    "migration": (Migrated, MigrationCancelled, MigrationRefused),
    "drain": (Drained, DrainGivenUp),
}
#: Upper bound of the seconds between two calls.
_LOOK = 0.5
#: Upper bound of the epochs until a plan has taken effect and is complete.
_EPOCHS = 25
#: Kinds of decisions of which only one may be open per operator, or node.
_ONE_EACH = ("scaling", "rebalance", "balance", "drain")
#: Kinds of decisions that end by the clock, whatever the query does.
_BY_THE_CLOCK = ("scaling", "balance", "drain")


class LawBroken(AssertionError):
    """The steward has broken a law."""


class Laws:
    """Checks the laws in one life of a query, by the open decisions at each call and the events between calls."""

    def __init__(self, timeout: float, standing: Callable[[OpenDecision], object]) -> None:
        """`standing` returns a value for a decision, whose changes are progress."""
        self._timeout, self._standing = timeout, standing
        self._open: tuple[OpenDecision, ...] = ()
        self._told: list[Event] = []
        #: kind, subject and time of an open decision -> time of its last progress, epoch committed then, and its
        #: standing
        self._touched: dict[tuple[str, str, float], tuple[float, int, object]] = {}
        #: operators that policies have scaled in since faults ended and the load is steady
        self._scaled_in: set[str] = set()
        #: the time after which no fault strikes; and the time after which the load is steady, too
        self._calm = self._steady = float("inf")

    def faults_are_over(self, now: float, is_steady: bool) -> None:
        """Records that no more faults will strike.

        If `is_steady`, the load stays constant and the policy is sound.
        """
        self._calm = min(self._calm, now)
        if is_steady:
            self._steady = min(self._steady, now)

    def hear(self, event: Event) -> None:
        """Handles an event."""
        self._told.append(event)

    def look(self, now: float, committed: int, is_open: tuple[OpenDecision, ...], late_answer: bool) -> None:
        """Raises LawBroken if a law was broken since the last call."""
        told, self._told = self._told, []
        self._check_unique(is_open)
        self._check_endings(is_open, told)
        self._check_hand(is_open)
        self._check_failures(told)
        self._check_words(told)
        if late_answer:
            self._check_lateness(now, is_open)
        self._check_progress(now, committed, is_open, told)
        self._check_steadiness(is_open, told)
        self._open = is_open

    def end(self, now: float, committed: int, is_open: tuple[OpenDecision, ...]) -> None:
        """Checks that every decision has ended at the end of the run."""
        self.look(now, committed, is_open, late_answer=False)
        if is_open:
            raise LawBroken(f"the run is over, and {is_open} are not")

    def _check_unique(self, is_open: Iterable[OpenDecision]) -> None:
        each = Counter((d.kind, d.subject) for d in is_open if d.kind in _ONE_EACH)
        if twice := [key for key, count in each.items() if count > 1]:
            raise LawBroken(f"open more than once: {twice}")

    def _check_endings(self, is_open: Iterable[OpenDecision], told: list[Event]) -> None:
        gone = Counter((d.kind, d.subject, d.since) for d in self._open)
        gone.subtract((d.kind, d.subject, d.since) for d in is_open)
        missing = Counter[tuple[str, str]]()
        for (kind, subject, _), count in gone.items():
            missing[kind, subject] += max(0, count)
        for (kind, subject), count in missing.items():
            ends = [
                event for event in told if isinstance(event, ENDS[kind]) and subject in (event.operator, event.node)
            ]
            if len(ends) < count:
                raise LawBroken(f"{kind} of {subject} is over, and nothing says how")

    def _check_hand(self, is_open: Iterable[OpenDecision]) -> None:
        by_hand = {(d.subject, d.since) for d in self._open if d.kind == "scaling" and d.by_hand}
        for each in is_open:
            if each.kind == "scaling" and (each.subject, each.since) in by_hand and not each.by_hand:
                raise LawBroken(f"a policy has changed what was asked for by hand: {each}")

    def _check_failures(self, told: list[Event]) -> None:
        """Checks that reported failures come from a policy that fails on purpose, not from the steward."""
        for event in told:
            if isinstance(event, ScalingFailed) and not ("policy" in event.why or "cannot be asked" in event.why):
                raise LawBroken(f"the steward has failed: {event.why}")

    def _check_words(self, told: list[Event]) -> None:
        """Checks that decisions that are reported as carried out have been."""
        for event in told:
            is_wrong = isinstance(event, ScaledOut) and event.after <= event.before
            if is_wrong or (isinstance(event, ScaledIn) and event.after >= event.before):
                raise LawBroken(f"what is told has not happened: {event}")

    def _check_lateness(self, now: float, is_open: Iterable[OpenDecision]) -> None:
        known = {(d.kind, d.subject, d.since) for d in self._open}
        for each in is_open:
            is_new = (each.kind, each.subject, each.since) not in known and each.since == now
            if each.kind == "scaling" and is_new and not each.by_hand:
                raise LawBroken(f"a late answer of a policy was heeded: {each}")

    def _check_progress(self, now: float, committed: int, is_open: Iterable[OpenDecision], told: list[Event]) -> None:
        """Checks that every open decision makes progress within its timeout.

        Migrations have none: once faults have ended, they progress as long as epochs do.
        """
        moved = {subject for event in told for subject in (event.operator, event.node) if subject}
        before, self._touched = self._touched, {}
        for each in is_open:
            key = (each.kind, each.subject, each.since)
            here = (now, committed, self._standing(each))
            there = before.get(key, here)
            if each.subject in moved or there[2] != here[2]:
                there = here
            self._touched[key] = there
            seconds, epochs = now - max(there[0], self._calm), committed - there[1]
            if each.kind in _BY_THE_CLOCK and now > there[0] + self._timeout + _LOOK:
                raise LawBroken(f"open for ever: {each}; at {now:.2f} it has not got on since {there[0]:.2f}")
            if seconds > self._timeout + _LOOK and epochs > _EPOCHS:
                raise LawBroken(f"open for ever: {each}; it has not got on for {epochs} epochs")

    def _check_steadiness(self, is_open: Iterable[OpenDecision], told: list[Event]) -> None:
        """Checks that under a steady load a policy does not scale an operator in and then out again.

        It may scale out because one instance has hot slots, and then in because the others have little to do.
        """
        fresh = {d.subject for d in (*self._open, *is_open) if d.kind == "scaling" and d.since > self._steady}
        hand = {d.subject for d in (*self._open, *is_open) if d.by_hand}
        for event in told:
            if isinstance(event, ScalingOut | ScalingIn) and event.operator in fresh - hand:
                if isinstance(event, ScalingIn):
                    self._scaled_in.add(event.operator)
                elif event.operator in self._scaled_in:
                    raise LawBroken(f"{event.operator} is scaled in and out again on a steady load: {event}")
