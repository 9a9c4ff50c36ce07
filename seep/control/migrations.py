"""Migrations: each change of owners of slots, carried out as a sequence of moves, despite any failures.

A step is announced when its pace allows. Each call examines the present state: effective epochs, complete plans, owners
of slots. So nothing depends on having received an event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from policies.migration.steps import MigrationSteps
from policies.migration.strategies import cut
from policies.observation import Change
from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.control.commands import Consult, MigrationEnded, MoveSlots, TakeCheckpoints
from seep.control.migration import Migration, MigrationProgress, MigrationState, MigrationStep
from seep.control.orders import Orders
from seep.control.pacing import ByTheClock, Now, StepByStep
from seep.control.targets import Parts
from seep.control.vm_needs import VMNeeds
from seep.protocol.manager.plans import Accepted, Refusal, Refused
from seep.record.events import Migrated, MigrationBegun, MigrationCancelled, MigrationOver, MigrationRefused
from seep.record.facts import Facts, Handover, QueryFacts
from seep.record.ring import Ring

#: Refusals that pass by themselves, and the seconds until a refused step is tried again.
_PASSING = (Refusal.BUSY, Refusal.NOT_RUNNING, Refusal.NO_NODE, Refusal.TOO_SOON)
_AGAIN = 0.02
#: The most slots of ended migrations that are kept for the report; the last migration is kept even if it has more.
_KEPT = 100_000
#: Seconds to wait for the nodes' reports on handovers.
_REPORTS = 2.0
#: Seconds to wait for the backup of one instance at the end of a migration.
_IN_TURN = 5.0
_EVENTS: Mapping[MigrationState, type[MigrationOver]] = {
    MigrationState.DONE: Migrated,
    MigrationState.CANCELLED: MigrationCancelled,
    MigrationState.REFUSED: MigrationRefused,
}


class _Outset(NamedTuple):
    """The plan with which a migration would begin now."""

    assignment: Assignment
    change: Parts
    fresh: int  #: new instances
    is_due: bool  #: else it will be due soon, and VMs are prepared


@dataclass(slots=True)
class Migrations:
    """All migrations of a run: the open ones, and the newest ended ones."""

    orders: Orders
    vm_needs: VMNeeds
    epoch_length: float  #: seconds
    timeout: float  #: seconds without progress until a migration is given up
    _open: list[Migration] = field(default_factory=list)
    #: the newest of the ended ones
    _over: Ring[Migration] = field(
        default_factory=lambda: Ring[Migration](_KEPT, lambda migration: 1 + migration.slots)
    )

    # -- requests -----------------------------------------------------------------------------------------------------

    def open(self, *migrations: Migration) -> tuple[int, ...]:
        """Opens migrations, which begin with the next step if nothing prevents it; returns their numbers."""
        for migration in migrations:
            migration.id = self.total
            self._open.append(migration)
        return tuple(migration.id for migration in migrations)

    def cancel(self, facts: Facts, migration: Migration, why: str) -> None:
        """Ends a migration: announces no further step; moved slots stay where they are."""
        if migration.state is MigrationState.WAITING:
            migration.why = why
            self._close(facts, migration, MigrationState.CANCELLED)
        elif migration.state is MigrationState.MOVING and not migration.is_planned:
            migration.why, migration.is_called_off = why, True

    def find(self, id: int) -> Migration | None:
        """Returns the migration with a number; None if it is not kept any more."""
        return next((migration for migration in (*self._open, *self._over) if migration.id == id), None)

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """The number of all migrations so far."""
        return self._over.total + len(self._open)

    @property
    def is_idle(self) -> bool:
        return not self._open

    def listed(self) -> list[Migration]:
        """Returns the newest ended migrations, and all open ones, in the order of their opening."""
        return sorted((*self._over, *self._open), key=lambda migration: migration.opened)

    def under_way(self) -> Sequence[Migration]:
        """The open migrations."""
        return tuple(self._open)

    def progress(self, facts: Facts, migration: Migration) -> MigrationProgress:
        self._note_handed(facts, migration)
        return migration.progress(facts.at)

    def to_json(self, facts: Facts) -> list[dict[str, Any]]:
        """Returns all kept migrations with their timelines, for the report."""
        for migration in self._open:
            self._note_handed(facts, migration)
        return [migration.to_json(facts.at) for migration in self.listed()]

    @property
    def changes(self) -> Iterator[Change]:
        """Returns the requested migrations, in the form that policies see."""
        for each in (*self._over, *self._open):
            if each.is_told and each.begun is not None:
                yield Change(each.operator, each.begun, each.before, each.after, each.ended)

    # -- a step -------------------------------------------------------------------------------------------------------

    def step(self, facts: Facts) -> None:
        """Begins migrations that can begin, and continues the others. One that raises is refused."""
        for migration in tuple(self._open):
            try:
                self._step_one(facts, migration)
            except UserError as reason:
                self._refuse(facts, migration, str(reason))
            except Exception as reason:
                self._refuse(facts, migration, f"{type(reason).__name__}: {reason}")
                raise

    def _step_one(self, facts: Facts, migration: Migration) -> None:
        if self._is_stuck(facts, migration):
            self._give_up(facts, migration)
        elif migration.state is not MigrationState.WAITING:
            self._advance(facts, migration)
        elif migration.asks is None:
            self._begin_if_possible(facts, migration)

    def end(self, facts: Facts) -> None:
        """Ends all open migrations at the end of the run."""
        for migration in tuple(self._open):
            migration.asks = None
            migration.note(self._now(facts, migration), ())
            if not migration.is_moved:
                migration.why = "the run is over"
            self._close(facts, migration, MigrationState.DONE if migration.is_moved else MigrationState.CANCELLED)

    def _is_stuck(self, facts: Facts, migration: Migration) -> bool:
        """Whether a migration is due and has made no step for too long. One that follows the clock is never stuck."""
        is_due = migration.state is not MigrationState.WAITING or migration.pace.may_begin(self._now(facts, migration))
        migration.note_progress(facts.at, is_due)
        pause = self.timeout + (migration.settings.gap or 0.0)
        return facts.at > migration.got_on + pause and not isinstance(migration.pace, ByTheClock)

    def _give_up(self, facts: Facts, migration: Migration) -> None:
        """Ends a stuck migration. Moved slots stay where they are; announced moves may still take effect."""
        vms = self.vm_needs.missing(migration.operator)
        awaited = {
            MigrationState.WAITING: f"{vms} VM{'s' * (vms > 1)}" if vms else "another change of its slots",
            MigrationState.MOVING: "its next step to be possible, or to take effect",
        }.get(migration.state, "backups of what has moved")
        migration.why = f"for {self.timeout:g} s it waited for {awaited}"
        is_done = migration.state is MigrationState.SETTLING and migration.number == len(migration.steps or ())
        self._close(facts, migration, MigrationState.DONE if is_done else MigrationState.CANCELLED)

    # -- its beginning ------------------------------------------------------------------------------------------------

    def _begin_if_possible(self, facts: Facts, migration: Migration) -> None:
        """Begins a migration; the steps are computed on another thread, as that takes a while for many slots."""
        outset = self._look(facts, migration)
        if outset is not None and not outset.is_due and not _needs_no_vm(migration):
            self.vm_needs.expect(migration.operator, outset.fresh)
        if outset is None or not (outset.is_due and self._has_room(facts, migration, outset.fresh)):
            return
        if migration.steps is not None:
            self._begin(facts, migration, migration.steps)
            return
        work = partial(cut, outset.assignment, outset.change, migration.settings)
        name = f"the steps of {migration.operator}"
        migration.asks = self.orders.request(
            lambda number: Consult(number, "steps", name, work), partial(self._on_steps, migration)
        )

    def _has_room(self, facts: Facts, migration: Migration, fresh: int) -> bool:
        return _needs_no_vm(migration) or self.vm_needs.is_there(facts, migration.operator, fresh, migration.why)

    def _look(self, facts: Facts, migration: Migration) -> _Outset | None:
        """Returns the plan with which a migration would begin now; None if it cannot begin soon."""
        now, query, operator = self._now(facts, migration), facts.query, migration.operator
        if not migration.pace.is_near(now):
            return None
        if not migration.is_urgent and self._has_to_wait(facts, migration):
            return None
        is_due = migration.pace.may_begin(now)
        if migration.goal is None:
            return _Outset(query.latest(operator), {}, 0, is_due)
        change, first_fresh = migration.goal(query), query.fresh[operator]
        fresh = sum(bool(slots) and index >= first_fresh for index, slots in change.items())
        return _Outset(query.latest(operator), change, fresh, is_due)

    def _has_to_wait(self, facts: Facts, migration: Migration) -> bool:
        """Whether another migration of the operator must end first. Migrations that follow the clock never wait."""
        if not isinstance(migration.pace, StepByStep):
            return False
        those = [each for each in self._open if each.operator == migration.operator and _goes_by_turns(each)]
        earlier, now = those[: those.index(migration)], self._now(facts, migration)
        is_moving = any(each.state is MigrationState.MOVING for each in those)
        return is_moving or any(each.state is MigrationState.WAITING and each.pace.may_begin(now) for each in earlier)

    def _on_steps(self, migration: Migration, facts: Facts, answer: object) -> None:
        migration.asks = None
        if migration.state is not MigrationState.WAITING:
            return
        if isinstance(answer, MigrationSteps):
            self._begin(facts, migration, answer)
        else:
            self._refuse(facts, migration, _in_words(answer))

    def _begin(self, facts: Facts, migration: Migration, steps: MigrationSteps) -> None:
        migration.state, migration.steps, migration.begun = MigrationState.MOVING, steps, facts.at
        migration.usual = facts.query.ticked - facts.query.committed
        migration.before = migration.after = facts.query.instances(migration.operator)
        if migration.is_told:
            self.orders.tell(
                MigrationBegun(
                    operator=migration.operator,
                    strategy=migration.pace.name,
                    slots=len(steps.slots),
                    steps=len(steps),
                    why=migration.why,
                    migration=migration.id,
                )
            )
        self._advance(facts, migration)

    def _now(self, facts: Facts, migration: Migration) -> Now:
        query = facts.query
        return Now(
            seconds=facts.at,
            ticked=query.ticked,
            committed=query.committed,
            soonest=query.soonest(migration.operator),
            horizon=query.ticked + 1 + query.lead + query.window,
            epoch_length=self.epoch_length,
            usual=migration.usual,
        )

    # -- its steps ----------------------------------------------------------------------------------------------------

    def _advance(self, facts: Facts, migration: Migration) -> None:
        now = self._now(facts, migration)
        migration.note(now, facts.query.moves)
        if migration.asks is None and facts.at >= migration.again and (first := migration.due(now)) is not None:
            self._announce(facts, migration, first)
        if migration.state is MigrationState.MOVING and migration.is_moved:
            self._settle(facts, migration)
        if migration.state is MigrationState.SETTLING and migration.unsaved and not migration.is_settled:
            self._back_up(facts, migration)
        if migration.state is MigrationState.SETTLING and self._is_over(facts, migration):
            done = migration.number == len(migration.steps or ())
            self._close(facts, migration, MigrationState.DONE if done else MigrationState.CANCELLED)

    def _announce(self, facts: Facts, migration: Migration, first: int) -> None:
        assert migration.steps is not None
        parts = _present(facts.query, migration, migration.steps[migration.number])
        self._note_handed_in(facts, migration.lately)
        prepare, vertical = migration.is_worth_preparing, migration.settings.vertical
        migration.asks = self.orders.request(
            lambda number: MoveSlots(number, migration.operator, parts, first, prepare, vertical),
            partial(self._on_announced, migration, parts),
        )

    def _on_announced(self, migration: Migration, parts: Parts, facts: Facts, answer: object) -> None:
        """Handles the answer to a move. If it was refused for a reason that passes, the step is tried again later."""
        migration.asks = None
        if migration.is_over:
            return
        match answer:
            case Accepted(plan):
                migration.took(_step_of(facts, migration.operator, plan, parts))
            case Refused(Refusal.NOTHING):
                migration.skip()
            case Refused(Refusal.ENDING):
                self.cancel(facts, migration, "the query is about to end")
            case Refused(why) if why in _PASSING:
                migration.again = facts.at + _AGAIN
            case Refused(why):
                self._refuse(facts, migration, why.value)
            case _:
                self._refuse(facts, migration, _in_words(answer))

    # -- its end ------------------------------------------------------------------------------------------------------

    def _settle(self, facts: Facts, migration: Migration) -> None:
        """Makes instances take checkpoints, so that the open plans are complete soon.

        The new owners come first: then the old owners need not back up these slots any more. Operators without state
        are safe when the operators after them are, so every operator with state takes one.
        """
        migration.state, migration.moved = MigrationState.SETTLING, facts.at
        keeps_state = facts.query.graph.kind(migration.operator) is Kind.STATEFUL
        gain = {target for step in migration.taken for target in step.targets}
        present = [i for i in facts.query.kept if not keeps_state or i.operator == migration.operator]
        migration.unsaved = sorted(present, key=lambda instance: instance not in gain)
        self._ask_for_next(facts, migration)

    def _back_up(self, facts: Facts, migration: Migration) -> None:
        """Requests checkpoints of one instance after the other, or of all that are left if one takes too long."""
        now = self._now(facts, migration)
        if now.seconds > migration.asked + _IN_TURN:
            self._ask_for(migration.unsaved)
            migration.unsaved = []
        elif _is_saved(facts.query, migration, migration.unsaved[0]) and now.has_settled(migration.asked):
            del migration.unsaved[0]
            self._ask_for_next(facts, migration)

    def _ask_for_next(self, facts: Facts, migration: Migration) -> None:
        migration.asked = facts.at
        self._ask_for(migration.unsaved[:1])

    def _ask_for(self, instances: Collection[InstanceId]) -> None:
        if instances:
            self.orders.give(TakeCheckpoints(tuple(instances)))

    def _is_over(self, facts: Facts, migration: Migration) -> bool:
        """Whether all plans are complete, and the reports on handovers and latency have arrived, or are late."""
        if not migration.is_settled or not migration.taken:
            return migration.is_settled
        last, query = migration.taken[-1], facts.query
        assert last.complete is not None
        those = [*query.of_kind(Kind.SINK), *(each for each in last.targets if each in query.placement)]
        is_late = facts.at > last.complete + _REPORTS
        return is_late or all(facts.reported.get(each, 0) > last.first for each in those)

    def _refuse(self, facts: Facts, migration: Migration, why: str) -> None:
        if not migration.is_over:
            migration.why = why
            self._close(facts, migration, MigrationState.REFUSED)

    def _close(self, facts: Facts, migration: Migration, state: MigrationState) -> None:
        migration.state, migration.ended = state, facts.at
        migration.after = facts.query.instances(migration.operator)
        self._note_handed_in(facts, migration.taken)
        migration.latency = facts.latencies.percentiles_since(facts.at if migration.begun is None else migration.begun)
        self._open.remove(migration)
        self._over.append(migration)
        if migration.asks is not None:
            self.orders.forget(migration.asks)
        if migration.begun is None:
            self.vm_needs.forget(migration.operator)
        if migration.is_told:
            self.orders.tell(_over_event(migration))
        self.orders.give(MigrationEnded(migration.id))

    def _note_handed(self, facts: Facts, migration: Migration) -> None:
        if not migration.is_over:
            self._note_handed_in(facts, migration.taken)

    @staticmethod
    def _note_handed_in(facts: Facts, steps: Sequence[MigrationStep]) -> None:
        for step in steps:
            step.handed = facts.handed.get((step.targets[0].operator, step.first), Handover())

    # -- checks -------------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises InternalError with a rule that does not hold."""
        moving = [
            each.operator
            for each in self._open
            if each.state is MigrationState.MOVING and not each.is_urgent and _goes_by_turns(each)
        ]
        if len(moving) > len(set(moving)):
            raise InternalError(f"two migrations move slots of one operator step by step: {moving}")
        if any(each.is_over for each in self._open) or not all(each.is_over for each in self._over):
            raise InternalError("a migration is open and over, or neither")


def _needs_no_vm(migration: Migration) -> bool:
    """Whether the migration needs no free nodes: it uses nodes in use, or is urgent."""
    return migration.is_urgent or migration.settings.vertical


def _goes_by_turns(migration: Migration) -> bool:
    return isinstance(migration.pace, StepByStep)


def _step_of(facts: Facts, operator: str, plan: int, parts: Parts) -> MigrationStep:
    """Returns the record of a step that was just announced."""
    move = facts.query.moves[plan]
    assert move.first is not None
    targets = tuple(InstanceId(operator, index) for index in parts)
    return MigrationStep(len(move.slots), plan, move.first, targets, facts.at)


def _is_saved(query: QueryFacts, migration: Migration, instance: InstanceId) -> bool:
    """Whether an instance has backed up the changes of the last step, or is gone as it has no slots left."""
    last = max((step.first for step in migration.taken), default=0)
    if instance.index not in query.latest(instance.operator).parts:
        last -= 1
    return instance not in query.placement or query.safe[instance] >= last


def _present(query: QueryFacts, migration: Migration, parts: Parts) -> Parts:
    """Returns the parts of a step that are possible now: an heir replaces an instance that has lost all its slots."""
    owned, found = query.latest(migration.operator), dict[int, SlotSet]()
    for index, slots in parts.items():
        is_gone = index not in owned.parts and query.was_born(InstanceId(migration.operator, index))
        taker = _heir(query, migration, index, owned) if is_gone else index
        found[taker] = found.get(taker, SlotSet.empty()) | slots
    return found


def _heir(query: QueryFacts, migration: Migration, index: int, owned: Assignment) -> int:
    """Returns the owner of most slots given to an instance so far; a new instance if it was given none."""
    given = migration.given(index)
    return int(np.bincount(owned.owners[given.array]).argmax()) if given else query.fresh[migration.operator]


def _over_event(migration: Migration) -> MigrationOver:
    assert migration.ended is not None
    progress, begun, moved = migration.progress(migration.ended), migration.begun, migration.moved
    is_whole = begun is not None and moved is not None
    return _EVENTS[migration.state](
        operator=migration.operator,
        seconds=None if begun is None else progress.seconds,
        why=progress.why,
        steps=progress.steps,
        steps_done=progress.steps_done,
        slots_moved=progress.slots_moved,
        slots_remaining=progress.slots_remaining,
        bytes=progress.bytes,
        bytes_ahead=progress.bytes_ahead,
        held_back=progress.held_back,
        waited=begun - migration.opened if is_whole and begun is not None else None,
        moved=moved - begun if moved is not None and begun is not None else None,
        settled=migration.ended - moved if is_whole and moved is not None else None,
        latency=progress.latency,
        migration=migration.id,
    )


def _in_words(reason: object) -> str:
    return str(reason) if isinstance(reason, UserError) else f"{type(reason).__name__}: {reason}"
