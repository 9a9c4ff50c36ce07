"""Migrations: every change of who owns which slots, carried out as a sequence of moves, whatever fails meanwhile.

A step is announced when its course says so. Each look is at how things are: what is effective by now, which plans are
complete, who owns what. It is taken on the manager's thread, with every commit, so that a migration of many steps is
as quick as the epochs are; in between by the coordinator, for what waits for the time or for VMs.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from policies.migration.steps import Steps
from policies.migration.strategies import cut
from policies.observation import Change
from primitives.errors import UserError
from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.manager import Manager
from seep.protocol.plans import Accepted, Refusal, Refused
from seep.runtime.courses import Now, StepByStep
from seep.runtime.driver import ManagerProcess
from seep.runtime.goals import Parts, latest
from seep.runtime.metrics import percentiles
from seep.runtime.migration import OVER, Migration, MigrationProgress, State, Step
from seep.runtime.migration_words import tell_begun, tell_over
from seep.runtime.ring import Ring
from seep.runtime.waiting import Room

#: Refusals that pass by themselves.
_PASSING = (Refusal.BUSY, Refusal.NOT_RUNNING, Refusal.NO_NODE, Refusal.TOO_SOON)
#: Slots of migrations that are over and kept, for the report: one with more is kept if it is the last one.
_KEPT = 100_000
#: Seconds that the nodes' reports on what was handed over are waited for.
_REPORTS = 2.0
#: Seconds that the backup of one instance is waited for at the end of a migration.
_IN_TURN = 5.0


class _Outset(NamedTuple):
    """What a migration begins with."""

    assignment: Assignment
    change: Parts
    fresh: int  #: new instances
    is_due: bool  #: else it is near, and VMs are got ready


class Migrations:
    """All of a run. `open` and `cancel` are for any thread, `round` for one."""

    def __init__(self, process: ManagerProcess, room: Room) -> None:
        self._process, self._room = process, room
        self._lock = threading.Lock()
        #: the newest of those that are over
        self._over = Ring[Migration](_KEPT, lambda migration: 1 + migration.slots)
        #: those that are not
        self._open: list[Migration] = []
        process.on_commit = self._on_commit

    # -- any thread ---------------------------------------------------------------------------------------------------

    def open(self, *migrations: Migration) -> None:
        """They begin in the next round, all in the same one if nothing is in their way."""
        with self._lock:
            self._open.extend(migrations)

    def cancel(self, migration: Migration, why: str = "called off") -> None:
        """No further step is announced; what has moved stays where it is."""
        self._process.ask(lambda manager: self._call_off(manager, migration, why))

    def progress(self, *migrations: Migration) -> tuple[MigrationProgress, ...]:
        """Of these; of all that are kept, oldest first, if none is given."""
        now = self._process.events.now
        return self._process.ask(lambda _: tuple(each.progress(now) for each in self._up_to_date(migrations)))

    def to_json(self) -> list[dict[str, object]]:
        """All that are kept, with their timelines, for the report."""
        now = self._process.events.now
        return self._process.ask(lambda _: [each.to_json(now) for each in self._up_to_date()])

    @property
    def changes(self) -> tuple[Change, ...]:
        """Those that were asked for, as policies are to know of them."""
        return tuple(
            Change(each.operator, each.begun, each.before, each.after, each.ended)
            for each in self._listed()
            if each.is_told and each.begun is not None
        )

    def end(self) -> None:
        """The run is over, and with it whatever is open."""
        self._process.ask(self._end_all)

    @property
    def total(self) -> int:
        """How many there ever were."""
        with self._lock:
            return self._over.total + len(self._open)

    def _listed(self) -> list[Migration]:
        """The newest that are over, and all that are not, by when they were asked for."""
        with self._lock:
            return sorted((*self._over, *self._open), key=lambda migration: migration.opened)

    def _up_to_date(self, migrations: Sequence[Migration] = ()) -> Sequence[Migration]:
        """With what nodes have reported until now."""
        found = migrations or self._listed()
        for migration in found:
            if migration.state not in OVER:
                self._ask_what_was_handed(migration.taken)
        return found

    def _opened(self, *states: State) -> list[Migration]:
        with self._lock:
            return [each for each in self._open if each.state in states]

    # -- one thread: a round ------------------------------------------------------------------------------------------

    def round(self) -> None:
        """Begins what can begin, and carries all others on."""
        for migration in self._opened(State.WAITING):
            self._begin_if_possible(migration)
        if self._open:
            self._process.ask(self._carry_on)

    def _begin_if_possible(self, migration: Migration) -> None:
        """Many slots take a while to be cut into steps, so the manager's thread is not the place for it."""
        try:
            outset = self._process.ask(lambda manager: self._look(manager, migration))
            if outset is not None and not outset.is_due:
                self._room.expect(migration.operator, outset.fresh)
            if outset is None or not (outset.is_due and self._has_room(migration, outset.fresh)):
                return
            steps = migration.steps or cut(outset.assignment, outset.change, migration.settings)
        except UserError as reason:
            refusal = str(reason)
            self._process.ask(lambda manager: self._refuse(manager, migration, refusal))
        else:
            self._process.ask(lambda manager: self._begin(manager, migration, steps))

    def _has_room(self, migration: Migration, fresh: int) -> bool:
        at_once = migration.is_urgent or migration.settings.vertical
        return at_once or self._room.is_there(migration.operator, fresh, migration.why)

    # -- the manager's thread: its beginning --------------------------------------------------------------------------

    def _look(self, manager: Manager, migration: Migration) -> _Outset | None:
        """None if it cannot begin soon."""
        now = self._now(manager, migration)
        if migration.state is not State.WAITING or not migration.course.is_near(now):
            return None
        if not migration.is_urgent and self._has_to_wait(manager, migration):
            return None
        is_due = migration.course.may_begin(now)
        if migration.goal is None:
            return _Outset(latest(manager, migration.operator), {}, 0, is_due)
        change, first_fresh = migration.goal(manager), manager.fresh_index(migration.operator)
        fresh = sum(bool(slots) and index >= first_fresh for index, slots in change.items())
        return _Outset(latest(manager, migration.operator), change, fresh, is_due)

    def _has_to_wait(self, manager: Manager, migration: Migration) -> bool:
        """One after another goes step by step through an operator; those by the clock wait for nobody."""
        if not isinstance(migration.course, StepByStep):
            return False
        those = [
            each
            for each in self._opened(State.WAITING, State.MOVING)
            if each.operator == migration.operator and isinstance(each.course, StepByStep)
        ]
        earlier, now = those[: those.index(migration)], self._now(manager, migration)
        is_moving = any(each.state is State.MOVING for each in those)
        return is_moving or any(each.course.may_begin(now) for each in earlier)

    def _begin(self, manager: Manager, migration: Migration, steps: Steps) -> None:
        if migration.state is not State.WAITING:
            return
        migration.state, migration.steps, migration.begun = State.MOVING, steps, self._process.events.now
        migration.usual = manager.ticked - self._process.committed()
        migration.before = migration.after = len(latest(manager, migration.operator).parts)
        if migration.is_told:
            tell_begun(self._process.events, migration)
        self._advance_or_refuse(manager, migration)

    def _now(self, manager: Manager, migration: Migration) -> Now:
        ahead = manager.settings.lead + manager.settings.window
        return Now(
            seconds=self._process.events.now,
            ticked=manager.ticked,
            committed=self._process.committed(),
            soonest=manager.soonest(migration.operator),
            horizon=manager.ticked + 1 + ahead,
            epoch_length=self._process.options.epoch,
            usual=migration.usual,
        )

    # -- the manager's thread: its steps ------------------------------------------------------------------------------

    def _on_commit(self) -> None:
        if self._open:
            self._process.ask(self._carry_on)

    def _carry_on(self, manager: Manager) -> None:
        for migration in self._opened(State.MOVING, State.SETTLING):
            self._advance_or_refuse(manager, migration)

    def _advance_or_refuse(self, manager: Manager, migration: Migration) -> None:
        """The manager itself must not fail of it."""
        try:
            self._advance(manager, migration)
        except Exception as reason:
            self._refuse(manager, migration, f"{type(reason).__name__}: {reason}\n{traceback.format_exc()}")

    def _advance(self, manager: Manager, migration: Migration) -> None:
        now = self._now(manager, migration)
        migration.note(now, manager.moves)
        while (first := migration.due(now)) is not None and self._announce(manager, migration, first):
            now = self._now(manager, migration)
        if migration.state is State.MOVING and migration.is_moved:
            self._settle(manager, migration)
        if migration.state is State.SETTLING and migration.unsaved and not migration.is_settled:
            self._back_up(manager, migration)
        if migration.state is State.SETTLING and self._is_over(manager, migration):
            done = migration.number == len(migration.steps or ())
            self._close(manager, migration, State.DONE if done else State.CANCELLED)

    def _announce(self, manager: Manager, migration: Migration, first: int) -> bool:
        """Whether the step is behind us; if not, it is tried again."""
        assert migration.steps is not None
        parts = _present(manager, migration, migration.steps[migration.number])
        self._ask_what_was_handed(migration.lately)
        how = {"prepare": migration.is_worth_preparing, "vertical": migration.settings.vertical}
        answer = self._process.change(lambda manager: manager.move(migration.operator, parts, first, **how))
        match answer:
            case Accepted(plan):
                move = manager.moves[plan]
                targets = tuple(InstanceId(move.operator, index) for index in parts)
                migration.took(Step(len(move.slots), plan, move.first, targets, self._process.events.now))
            case Refused(Refusal.NOTHING):
                migration.skip()
            case Refused(Refusal.ENDING):
                self._call_off(manager, migration, "the query is about to end")
            case Refused(why) if why not in _PASSING:
                self._refuse(manager, migration, why.value)
        return isinstance(answer, Accepted) or answer.why is Refusal.NOTHING

    # -- the manager's thread: its end --------------------------------------------------------------------------------

    def _settle(self, manager: Manager, migration: Migration) -> None:
        """The sooner both sides have a backup, the sooner its plans are complete.

        Those with new slots come first: then those that had them need not back them up any more. Operators without
        state are safe when those after them are, so all that have any take one.
        """
        migration.state, migration.moved = State.SETTLING, self._process.events.now
        keeps_state = manager.graph.kind(migration.operator) is Kind.STATEFUL
        gain = {target for step in migration.taken for target in step.targets}
        present = [i for i in manager.kept_instances if not keeps_state or i.operator == migration.operator]
        migration.unsaved = sorted(present, key=lambda instance: instance not in gain)
        self._ask_for_next(migration)

    def _back_up(self, manager: Manager, migration: Migration) -> None:
        """One instance after the other, for all at once would hold the query up; and no longer than is any use."""
        now = self._now(manager, migration)
        if now.seconds > migration.asked + _IN_TURN:
            self._ask_for(migration.unsaved)
            migration.unsaved = []
        elif _is_saved(manager, migration, migration.unsaved[0]) and now.has_settled(migration.asked):
            del migration.unsaved[0]
            self._ask_for_next(migration)

    def _ask_for_next(self, migration: Migration) -> None:
        migration.asked = self._process.events.now
        self._ask_for(migration.unsaved[:1])

    def _ask_for(self, instances: Collection[InstanceId]) -> None:
        if instances:
            self._process.change(lambda manager: (None, manager.checkpoint(only=instances)))

    def _is_over(self, manager: Manager, migration: Migration) -> bool:
        """When its plans are complete, and what was handed over is known, and the latency at the sinks."""
        if not migration.is_settled or not migration.taken:
            return migration.is_settled
        last, reported = migration.taken[-1], self._process.metrics.reported
        assert last.complete is not None
        is_late = self._process.events.now > last.complete + _REPORTS
        sinks = [each for each in manager.placement if manager.graph.kind(each.operator) is Kind.SINK]
        those = [*sinks, *(each for each in last.targets if each in manager.placement)]
        return is_late or all(reported(each) > last.first for each in those)

    def _close(self, manager: Manager, migration: Migration, state: State) -> None:
        now = self._process.events.now
        migration.state, migration.ended = state, now
        migration.after = len(latest(manager, migration.operator).parts)
        self._ask_what_was_handed(migration.taken)
        migration.latency = percentiles(self._process.latencies(now if migration.begun is None else migration.begun))
        with self._lock:
            self._open.remove(migration)
            self._over.append(migration)
        if migration.begun is None:
            self._room.forget(migration.operator)
        if migration.is_told:
            tell_over(self._process.events, migration)
        migration.over.set()

    def _ask_what_was_handed(self, steps: Sequence[Step]) -> None:
        for step in steps:
            step.handed = self._process.metrics.handed(step.targets[0].operator, step.first)

    def _call_off(self, manager: Manager, migration: Migration, why: str) -> None:
        if migration.state is State.WAITING:
            migration.why = why
            self._close(manager, migration, State.CANCELLED)
        elif migration.state is State.MOVING and not migration.is_planned:
            migration.why, migration.is_called_off = why, True
            self._advance_or_refuse(manager, migration)

    def _refuse(self, manager: Manager, migration: Migration, why: str) -> None:
        if migration.state not in OVER:
            migration.why = why
            self._close(manager, migration, State.REFUSED)

    def _end_all(self, manager: Manager) -> None:
        for migration in self._opened(State.WAITING, State.MOVING, State.SETTLING):
            migration.note(self._now(manager, migration), ())
            if not migration.is_moved:
                migration.why = "the run is over"
            self._close(manager, migration, State.DONE if migration.is_moved else State.CANCELLED)


def _is_saved(manager: Manager, migration: Migration, instance: InstanceId) -> bool:
    """Whether its backups have what the last step changed; who has no slots left is not there any more then."""
    last = max((step.first for step in migration.taken), default=0)
    if instance.index not in latest(manager, instance.operator).parts:
        last -= 1
    return instance not in manager.placement or manager.safe.of(instance) >= last


def _present(manager: Manager, migration: Migration, parts: Parts) -> Parts:
    """What a step is to give, and to whom: an instance that has given up all its slots meanwhile has an heir."""
    owned, found = latest(manager, migration.operator), dict[int, SlotSet]()
    for index, slots in parts.items():
        is_gone = index not in owned.parts and manager.roster.was_born(InstanceId(migration.operator, index))
        taker = _heir(manager, migration, index, owned) if is_gone else index
        found[taker] = found.get(taker, SlotSet.empty()) | slots
    return found


def _heir(manager: Manager, migration: Migration, index: int, owned: Assignment) -> int:
    """Who has most of what an instance was given so far; a new instance, if that was nothing."""
    given = migration.given(index)
    return int(np.bincount(owned.owners[given.array]).argmax()) if given else manager.fresh_index(migration.operator)
