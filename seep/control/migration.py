"""A migration: a change of the owners of an operator's slots, in steps, and its progress."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from policies.migration.settings import MigrationSettings
from policies.migration.steps import MigrationSteps
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.control.pacing import Now, StepPace
from seep.control.targets import Goal
from seep.record.facts import Handover


class MigrationState(StrEnum):
    WAITING = "waiting"  #: waits for its time, for VMs, or for another migration of the operator
    MOVING = "moving"
    SETTLING = "settling"  #: all slots have moved; both sides take backups
    DONE = "done"
    CANCELLED = "cancelled"  #: moved slots stay where they are
    REFUSED = "refused"


#: Fraction of the prefetched bytes: if more is handed over again, prefetching costs more than it saves.
_MUCH, _LATELY = 1 / 3, 16

OVER = frozenset({MigrationState.DONE, MigrationState.CANCELLED, MigrationState.REFUSED})


@dataclass(slots=True)
class MigrationStep:
    """An announced step."""

    slots: int
    plan: int
    first: int  #: the epoch at which it is effective
    targets: tuple[InstanceId, ...]
    announced: float
    effective: float | None = None  #: when all sinks had committed that epoch
    complete: float | None = None  #: when both sides had a backup
    handed: Handover = field(default_factory=Handover)

    def to_json(self) -> dict[str, Any]:
        times = {"announced": self.announced, "effective": self.effective, "complete": self.complete}
        return {"epoch": self.first, "slots": self.slots} | times | _figures(self.handed)


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """The progress of a migration."""

    operator: str
    strategy: str
    state: MigrationState
    steps: int
    steps_done: int  #: steps that have taken effect
    slots_moved: int
    slots_remaining: int
    bytes: int  #: bytes handed over between two epochs, as far as nodes have reported
    bytes_ahead: int  #: bytes of prefetched backups
    held_back: int  #: rows that waited for the state of their slots
    seconds: float  #: seconds since it began, until its end
    why: str = ""
    latency: Mapping[str, float] = field(default_factory=dict)  #: p50, p95, p99 and max during it, once it has ended
    id: int = 0  #: its number in the run; that of the first of several

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True, eq=False)
class Migration:
    """A migration of one operator: its goal, pace and steps, and their progress."""

    operator: str
    pace: StepPace
    opened: float
    goal: Goal | None = None  #: the goal from which the steps are computed at the beginning; None: the steps are given
    settings: MigrationSettings = field(default_factory=MigrationSettings)  #: the settings for computing the steps
    steps: MigrationSteps | None = None
    why: str = "asked for"
    is_told: bool = True  #: whether it emits events; else it is part of a change that does
    is_urgent: bool = False  #: whether it waits neither for other migrations nor for VMs
    state: MigrationState = MigrationState.WAITING
    number: int = 0  #: number of the next step
    skipped: int = 0  #: steps that had nothing left to move
    taken: list[MigrationStep] = field(default_factory=list)  #: the other announced steps, in order
    begun: float | None = None
    moved: float | None = None  #: when the last step had taken effect
    ended: float | None = None
    usual: int = 0  #: number of open epochs at its beginning
    before: int = 0  #: number of instances at its beginning, and its end
    after: int = 0
    latency: Mapping[str, float] = field(default_factory=dict)
    is_called_off: bool = False
    unsaved: list[InstanceId] = field(default_factory=list)  #: still without a backup of the end
    asked: float = 0.0  #: when the first of them was asked to
    id: int = 0  #: its number in the run
    asks: int | None = None  #: the command whose answer it waits for
    again: float = 0.0  #: when a step that was refused is tried again
    got_on: float = field(init=False)  #: time of its last progress
    _stage: tuple[MigrationState, int, int] | None = None  #: state, steps and effective steps at that time
    _unsettled: list[MigrationStep] = field(default_factory=list)  #: steps that are not complete

    @property
    def slots(self) -> int:
        """Returns the number of slots that all steps move; 0 until the steps are known."""
        return len(self.steps.slots) if self.steps is not None else 0

    def __post_init__(self) -> None:
        self.got_on = self.opened

    def note_progress(self, now: float, is_due: bool) -> None:
        """Notes whether the migration makes progress. Until it is due, waiting counts as progress."""
        in_effect = len(self.taken) - sum(step.effective is None for step in self._unsettled)
        stage = (self.state, self.number, in_effect)
        if not is_due or stage != self._stage:
            self._stage, self.got_on = stage, now

    # -- its steps ----------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def is_planned(self) -> bool:
        """Whether all steps have been announced."""
        return self.is_called_off or (self.steps is not None and self.number == len(self.steps))

    @property
    def is_moved(self) -> bool:
        return self.is_planned and all(step.effective is not None for step in self._unsettled)

    @property
    def is_settled(self) -> bool:
        return not self._unsettled

    def due(self, now: Now) -> int | None:
        """Returns the epoch at which the next step is to be effective, if it is to be announced now."""
        before = self.taken[-1] if self.taken else None
        return None if self.is_planned else self.pace.due(self.number, before, now)

    def took(self, step: MigrationStep) -> None:
        self.number += 1
        self.taken.append(step)
        self._unsettled.append(step)

    def skip(self) -> None:
        """Skips the next step, which has nothing to move."""
        self.number += 1
        self.skipped += 1

    def note(self, now: Now, plans: Container[int]) -> None:
        """Records which steps have taken effect or are complete; `plans` are those that are not complete."""
        for step in self._unsettled:
            if step.effective is None and now.committed >= step.first:
                step.effective = now.seconds
            if step.effective is not None and step.plan not in plans:
                step.complete = now.seconds
        self._unsettled = [step for step in self._unsettled if step.complete is None]

    def given(self, index: int) -> SlotSet:
        """Returns the slots that the steps so far were to give to an instance."""
        assert self.steps is not None
        passed = slice(0, self.steps.bounds[self.number])
        return SlotSet(self.steps.slots[passed][self.steps.targets[passed] == index])

    @property
    def is_worth_preparing(self) -> bool:
        """Whether to prefetch backups: not if, in recent steps, much of them had changed by the handover."""
        handed = [step.handed for step in self.lately]
        return self.settings.prepare and not any(each.nbytes > _MUCH * each.nbytes_ahead > 0 for each in handed)

    @property
    def lately(self) -> list[MigrationStep]:
        """Returns the newest steps; their handovers decide whether backups are prefetched for the next step."""
        return self.taken[-_LATELY:]

    # -- its events and report ----------------------------------------------------------------------------------------

    def progress(self, now: float) -> MigrationProgress:
        effective = [step for step in self.taken if step.effective is not None]
        moved, handed = sum(step.slots for step in effective), self.handed
        whole = sum(step.slots for step in self.taken) + self._slots_to_come
        until = self.ended if self.ended is not None else now
        return MigrationProgress(
            operator=self.operator,
            strategy=self.pace.name,
            state=self.state,
            steps=len(self.steps) if self.steps is not None else 0,
            steps_done=len(effective) + self.skipped,
            slots_moved=moved,
            slots_remaining=whole - moved,
            bytes=handed.nbytes,
            bytes_ahead=handed.nbytes_ahead,
            held_back=handed.held_back,
            seconds=until - self.begun if self.begun is not None else 0.0,
            why=self.why,
            latency=self.latency,
            id=self.id,
        )

    @property
    def handed(self) -> Handover:
        """Returns the sum of the handovers of all steps."""
        return Handover(*(sum(counts) for counts in zip(*(step.handed for step in self.taken), strict=True)))

    @property
    def _slots_to_come(self) -> int:
        return int(self.steps.bounds[-1] - self.steps.bounds[self.number]) if self.steps is not None else 0

    def to_json(self, now: float) -> dict[str, Any]:
        """Returns the migration and its steps, in the form of the report."""
        times = {"opened": self.opened, "begun": self.begun, "moved": self.moved, "ended": self.ended}
        return self.progress(now).to_json() | times | {"timeline": [step.to_json() for step in self.taken]}


def _figures(handed: Handover) -> dict[str, int]:
    return {"bytes": handed.nbytes, "bytes_ahead": handed.nbytes_ahead, "held_back": handed.held_back}
