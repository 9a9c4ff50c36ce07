"""Steering: the driver's shell of the steward. On the event loop, it shows it the facts and does what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar, assert_never

from policies.observation import Observation
from primitives.errors import UserError
from seep.control.commands import (
    Command,
    Consult,
    EndWindow,
    LeaveNode,
    MigrationEnded,
    MoveSlots,
    PlaceBackups,
    SplitBackup,
    TakeCheckpoints,
    Tell,
    WantNodes,
    WatchSlots,
)
from seep.control.migration import Migration, MigrationProgress
from seep.control.steward import Steward
from seep.protocol.core import Phase
from seep.record.facts import Answer, Facts, query_facts
from seep.record.status import Status
from seep.runtime.consultants import Consultants, Consultation, Question
from seep.runtime.driver import ManagerProcess
from seep.runtime.listener import RunListener

T = TypeVar("T")

#: Seconds between two steps, if nothing else calls for one.
_ROUND = 0.05
#: Steps in a row, as long as there are answers; then everything else has its turn.
_IN_A_ROW = 64


class VMs(Protocol):
    """What the steward's shell needs of the pool."""

    def available(self) -> list[str]:
        """Warm nodes that new instances may take."""
        ...

    def want(self, count: int) -> None:
        """So many are needed now."""
        ...

    def leaving(self, node: str) -> None:
        """The VM of a node will go; it is to be ended when nothing is left on it."""
        ...


@dataclass(slots=True)
class Awaited:
    """A migration that somebody may wait for."""

    number: int
    over: threading.Event = field(default_factory=threading.Event)
    last: MigrationProgress | None = None  #: how far it had come, when it was over


class Steering(RunListener):
    """Between the steward and the manager, the pool, the record and those who answer its questions."""

    def __init__(self, process: ManagerProcess, steward: Steward, vms: VMs) -> None:
        self._process, self._steward, self._vms = process, steward, vms
        process.subscribe(self)
        process.rings["steward"] = steward.ring
        self._answers: list[Answer] = []
        self._awaited: dict[int, Awaited] = {}
        self._consultants = Consultants(self._answered)
        self._next_look = 0.0
        self._observation: Observation | None = None
        self._is_stepping = False

    # -- any thread ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The query has been launched: from now on the steward decides what changes."""
        self._process.every(_ROUND, self._round)

    def scale(self, operator: str, parallelism: int) -> None:
        """As if a policy had decided it; policies that decide otherwise wait until it is done."""
        self._ask(partial(self._steward.scale, operator=operator, parallelism=parallelism))

    def balance(self, operator: str) -> None:
        """Evens out what the instances of an operator have to do."""
        self._ask(partial(self._steward.balance, operator=operator))

    def drain(self, node: str) -> None:
        """Moves all that lives on a node elsewhere, and has its VM ended then."""
        self._ask(partial(self._steward.drain, node=node))

    def migrate(self, migrations: Sequence[Migration]) -> tuple[Awaited, ...]:
        """They begin together; UserError if one cannot."""
        if self._process.ended.is_set():
            raise UserError("the run is over; nothing can be migrated any more")
        return self._ask(partial(self._open, migrations=migrations))

    def cancel(self, number: int) -> None:
        """No further step of a migration is announced."""
        self._ask(partial(self._steward.cancel, number=number))

    def progress(self, *numbers: int) -> tuple[MigrationProgress, ...]:
        """Of these migrations; of all that are kept, oldest first, if none is given."""
        return self._process.on_loop(partial(self._progress, *numbers))

    def report(self) -> Mapping[str, Any]:
        """What is to be told of migrations in the report."""
        return self._process.on_loop(self._report)

    def facts(self) -> Facts:
        """What is known of the run now, as one value that does not change."""
        return self._process.on_loop(self._facts)

    def status(self, vms: Mapping[str, int], vm_seconds: float) -> Status:
        """How the run is now; of the pool its owner tells."""
        return self._process.on_loop(partial(self._status, vms, vm_seconds))

    def end(self) -> None:
        """The run is over, and with it whatever is open."""
        self._process.on_loop(self._end)

    def close(self) -> None:
        self.end()
        self._consultants.close()

    def _ask(self, request: Callable[[Facts], T]) -> T:
        """Has the steward do something for somebody, and what follows from it."""

        return self._process.on_loop(partial(self._do, request))

    def _answered(self, number: int, result: object) -> None:
        self._process.put_on_loop(partial(self._take_answer, Answer(number, result)))

    # -- on the event loop --------------------------------------------------------------------------------------------

    def _do(self, request: Callable[[Facts], T]) -> T:
        answer = request(self._facts())
        self._step()
        return answer

    def _progress(self, *numbers: int) -> tuple[MigrationProgress, ...]:
        return self._steward.progress(self._facts(), *numbers)

    def _status(self, vms: Mapping[str, int], vm_seconds: float) -> Status:
        query, decisions = query_facts(self._process.manager), self._steward.decisions()
        return self._process.record.status(query, vms, self._process.counted, decisions, vm_seconds)

    def _report(self) -> Mapping[str, Any]:
        return self._steward.report(self._facts())

    def committed(self, epoch: int) -> None:  # noqa: ARG002
        """A migration of many steps is as quick as the epochs are."""
        if self._steward.is_busy:
            self._step()

    def notice(self, node: str, seconds: float) -> None:  # noqa: ARG002
        """A node whose VM will be taken away is drained, however soon that is."""
        self.drain(node)

    def _round(self) -> None:
        self._look(time.monotonic())
        self._step()

    def _look(self, now: float) -> None:
        """Makes an observation when a report interval is over."""
        if now < self._next_look or self._process.manager.phase is not Phase.RUNNING:
            return
        self._next_look = max(self._next_look + self._steward.settings.scaling.detector.report, now)
        query, warm = query_facts(self._process.manager), len(self._vms.available())
        self._observation = self._process.record.observe(query, warm) or self._observation

    def _open(self, facts: Facts, migrations: Sequence[Migration]) -> tuple[Awaited, ...]:
        awaited = tuple(Awaited(number) for number in self._steward.migrate(facts, migrations))
        self._awaited |= {each.number: each for each in awaited}
        return awaited

    def _take_answer(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._step()

    def _step(self) -> None:
        """Has the steward decide until it has nothing more to say for now."""
        if self._is_stepping or self._process.is_concluding:
            return
        self._is_stepping = True
        try:
            for _ in range(_IN_A_ROW):
                answers, self._answers = tuple(self._answers), []
                for command in self._steward.step(self._facts(answers)):
                    self._carry_out(command)
                if not self._answers:
                    return
        finally:
            self._is_stepping = False

    def _end(self) -> None:
        for command in self._steward.end(self._facts()):
            self._carry_out(command)

    def _facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        """How things are."""
        record = self._process.record
        return Facts(
            at=self._process.events.now,
            query=query_facts(self._process.manager),
            free=tuple(self._vms.available()),
            answers=answers,
            observation=self._observation,
            recoveries=record.recoveries,
            reported=record.reported,
            state_bytes=record.state_bytes,
            handed=record.handed,
            latencies=record.latencies,
            status=record.latest,
        )

    def _carry_out(self, command: Command) -> None:
        process, manager = self._process, self._process.manager
        match command:
            case MoveSlots(number, operator, parts, first, prepare, vertical):
                answer, effects = manager.move(operator, parts, first, prepare=prepare, vertical=vertical)
                process.perform(effects)
                self._answers.append(Answer(number, answer))
            case SplitBackup(number, origin, parts):
                answer, effects = manager.split(origin, parts)
                process.perform(effects)
                self._answers.append(Answer(number, answer))
            case TakeCheckpoints(instances):
                process.perform(manager.checkpoint(only=instances))
            case PlaceBackups(groups):
                process.perform(manager.replicate(groups))
            case LeaveNode(node):
                process.perform(manager.node_leaving(node))
                self._vms.leaving(node)
            case WantNodes(count):
                self._vms.want(count)
            case WatchSlots(operators):
                process.count_slots(operators)
            case EndWindow():
                self._answers.append(Answer(command.number, self._window(command)))
            case Consult(number, kind, name, work):
                self._consultants.ask(number, Consultation(kind), Question(name, work))
            case MigrationEnded(number):
                self._tell_waiting(number)
            case Tell(event):
                process.events.add(event)
            case _:
                assert_never(command)

    def _window(self, command: EndWindow) -> object:
        """None while there are instances that have told nothing."""
        return self._process.record.end_window(command.operator, command.seconds, command.assignment, command.moving)

    def _tell_waiting(self, number: int) -> None:
        awaited = self._awaited.pop(number, None)
        if awaited is not None:
            awaited.last = next(iter(self._steward.progress(self._facts(), number)), None)
            awaited.over.set()
