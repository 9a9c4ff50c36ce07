"""Steering: the driver's shell of the steward. On the event loop, it gives it facts and carries out its commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from policies.observation import Observation
from primitives.errors import UserError
from primitives.event import Event
from seep.control.commands import Consult, EndWindow
from seep.control.migration import Migration, MigrationProgress
from seep.control.shell import StewardShell, VMs
from seep.control.steward import Steward
from seep.driver.consultants import Consultants, Consultation, Question
from seep.driver.driver import ManagerProcess
from seep.driver.listener import RunListener
from seep.protocol.effects import Effect
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.state import QueryPhase
from seep.record.facts import Answer, Facts, query_facts
from seep.record.status import Status

T = TypeVar("T")

#: Seconds between two steps, if nothing else causes one.
_ROUND = 0.05


@dataclass(slots=True)
class Awaited:
    """A migration that a caller may wait for."""

    number: int
    over: threading.Event = field(default_factory=threading.Event)
    last: MigrationProgress | None = None  #: its progress when it was over


class DriverShell(StewardShell, RunListener):
    """Connects the steward to the manager, the pool and the record. All of it runs on the event loop."""

    def __init__(self, process: ManagerProcess, steward: Steward, vms: VMs) -> None:
        super().__init__(steward, vms)
        self._process = process
        process.subscribe(self)
        process.rings["steward"] = steward.ring
        self._awaited: dict[int, Awaited] = {}
        self.consultants = Consultants(self._answered)
        self._next_look = 0.0
        self._observation: Observation | None = None

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        if not self._process.is_concluding:
            super().step()

    def round(self) -> None:
        self._look(time.monotonic())
        self.step()

    def _look(self, now: float) -> None:
        """Makes an observation when a report interval is over."""
        if now < self._next_look or self.manager.phase is not QueryPhase.RUNNING:
            return
        self._next_look = max(self._next_look + self.steward.settings.scaling.detector.report, now)
        query, warm = query_facts(self.manager), len(self.vms.available())
        self._observation = self._process.record.observe(query, warm) or self._observation

    def committed(self, epoch: int) -> None:  # noqa: ARG002
        """Takes a step after each commit while a migration is open, so that it is as fast as the epochs."""
        if self.steward.is_busy:
            self.step()

    def notice(self, node: str, seconds: float) -> None:  # noqa: ARG002
        """Drains a node whose VM will be taken away, however soon that is."""
        self.do(partial(self.steward.drain, node=node))

    def do(self, request: Callable[[Facts], T]) -> T:
        """Passes a request to the steward, and takes a step."""
        answer = request(self.facts())
        self.step()
        return answer

    def open(self, facts: Facts, migrations: Sequence[Migration]) -> tuple[Awaited, ...]:
        awaited = tuple(Awaited(number) for number in self.steward.migrate(facts, migrations))
        self._awaited |= {each.number: each for each in awaited}
        return awaited

    def _answered(self, number: int, result: object) -> None:
        """Takes an answer on the thread of a consultant, or on the asking thread."""
        self._process.put_on_loop(partial(self._take_answer, number, result))

    def _take_answer(self, number: int, result: object) -> None:
        self.answer(number, result)
        self.step()

    # -- interface of StewardShell ------------------------------------------------------------------------------------

    @property
    def manager(self) -> Manager:
        return self._process.manager

    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        record = self._process.record
        return Facts(
            at=self._process.events.now,
            query=query_facts(self.manager),
            free=tuple(self.vms.available()),
            answers=answers,
            observation=self._observation,
            recoveries=record.recoveries,
            reported=record.reported,
            state_bytes=record.state_bytes,
            handed=record.handed,
            latencies=record.latencies,
            status=record.latest,
        )

    def perform(self, effects: list[Effect]) -> None:
        self._process.perform(effects)

    def watch_slots(self, operators: frozenset[str]) -> None:
        self._process.slot_counting.balance(operators)

    def window(self, command: EndWindow) -> object:
        return self._process.record.end_window(command.operator, command.seconds, command.assignment, command.moving)

    def consult(self, question: Consult) -> None:
        self.consultants.ask(question.number, Consultation(question.kind), Question(question.name, question.work))

    def migration_ended(self, number: int) -> None:
        awaited = self._awaited.pop(number, None)
        if awaited is not None:
            awaited.last = next(iter(self.steward.progress(self.facts(), number)), None)
            awaited.over.set()

    def tell(self, event: Event) -> None:
        self._process.events.add(event)


class Steering:
    """Requests to the steward of a run, from any thread."""

    def __init__(self, process: ManagerProcess, steward: Steward, vms: VMs) -> None:
        self._process, self._steward = process, steward
        self._shell = DriverShell(process, steward, vms)

    def begin(self) -> None:
        """Starts the steward, after the launch of the query."""
        self._process.every(_ROUND, self._shell.round)

    def scale(self, operator: str, parallelism: int) -> None:
        """Scales an operator as if a policy had decided it; policies wait until it is done."""
        self._ask(partial(self._steward.scale, operator=operator, parallelism=parallelism))

    def balance(self, operator: str) -> None:
        """Balances the load of an operator's instances."""
        self._ask(partial(self._steward.balance, operator=operator))

    def drain(self, node: str) -> None:
        """Moves everything on a node elsewhere, and then ends its VM."""
        self._ask(partial(self._steward.drain, node=node))

    def migrate(self, migrations: Sequence[Migration]) -> tuple[Awaited, ...]:
        """Begins migrations together; raises UserError if one is not possible."""
        if self._process.ended.is_set():
            raise UserError("the run is over; nothing can be migrated any more")
        return self._ask(partial(self._shell.open, migrations=migrations))

    def cancel(self, number: int) -> None:
        """Cancels a migration: no further step is announced."""
        self._ask(partial(self._steward.cancel, number=number))

    def progress(self, *numbers: int) -> tuple[MigrationProgress, ...]:
        """Returns the progress of these migrations; without numbers, of all that are remembered, oldest first."""
        return self._process.on_loop(partial(self._progress, *numbers))

    def report(self) -> Mapping[str, Any]:
        """Returns the part of the report about migrations."""
        return self._process.on_loop(self._report)

    def facts(self) -> Facts:
        """Returns everything that is known of the run now, as one immutable value."""
        return self._process.on_loop(self._shell.facts)

    def status(self, vms: Mapping[str, int], vm_seconds: float) -> Status:
        """Returns the status of the run; the caller gives the figures of the pool."""
        return self._process.on_loop(partial(self._status, vms, vm_seconds))

    def end(self) -> None:
        """Ends everything that is open, when the run is over."""
        self._process.on_loop(self._shell.end)

    def close(self) -> None:
        self.end()
        self._shell.consultants.close()

    def _ask(self, request: Callable[[Facts], T]) -> T:
        return self._process.on_loop(partial(self._shell.do, request))

    # -- on the event loop --------------------------------------------------------------------------------------------

    def _progress(self, *numbers: int) -> tuple[MigrationProgress, ...]:
        return self._steward.progress(self._shell.facts(), *numbers)

    def _report(self) -> Mapping[str, Any]:
        return self._steward.report(self._shell.facts())

    def _status(self, vms: Mapping[str, int], vm_seconds: float) -> Status:
        query, decisions = query_facts(self._process.manager), self._steward.decisions()
        full, balanced = self._steward.settings.scaling.detector.cpu, self._process.slot_counting.balanced
        return self._process.record.status(query, vms, balanced, decisions, vm_seconds, full)
