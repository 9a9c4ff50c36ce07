"""The common part of the steward's shells: gives it the facts, and carries out its commands, until there are none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, assert_never

from primitives.event import Event
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
from seep.control.steward import Steward
from seep.protocol.effects import Effect
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Accepted, Refused
from seep.record.facts import Answer, Facts

#: The most steps in a row while there are answers; then other work gets its turn.
IN_A_ROW = 64


class VMs(Protocol):
    """The pool, as the steward needs it."""

    def available(self) -> Sequence[str]:
        """Warm nodes that new instances may take."""
        ...

    def want(self, count: int) -> None:
        """Sets the number of free nodes that are needed now, beyond the reserve."""
        ...

    def leaving(self, node: str) -> None:
        """Marks a node as leaving; its VM is stopped when nothing is left on it."""
        ...


class StewardShell(ABC):
    """Carries out the steward's commands on manager and pool. Subclasses provide facts and perform effects."""

    def __init__(self, steward: Steward, vms: VMs) -> None:
        self.steward, self.vms = steward, vms
        self._answers: list[Answer] = []
        self._is_stepping = False

    # -- implemented by each shell ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def manager(self) -> Manager:
        """The manager of the present run of the query."""

    @abstractmethod
    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        """Returns the present facts."""

    @abstractmethod
    def perform(self, effects: list[Effect]) -> None:
        """Performs the manager's effects."""

    @abstractmethod
    def watch_slots(self, operators: frozenset[str]) -> None:
        """Makes nodes count the rows of these operators by slot from now on, and of no others."""

    @abstractmethod
    def window(self, command: EndWindow) -> object:
        """Returns the counts since the last call; None if some instance has not reported yet."""

    @abstractmethod
    def consult(self, question: Consult) -> None:
        """Passes a question to another thread; its result comes by `answer`, now, later or never."""

    @abstractmethod
    def migration_ended(self, number: int) -> None:
        """Wakes those who wait for a migration, which has ended."""

    @abstractmethod
    def tell(self, event: Event) -> None:
        """Records an event."""

    # -- common -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Runs the steward until it gives no more commands that are answered at once."""
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            for _ in range(IN_A_ROW):
                answers, self._answers = tuple(self._answers), []
                self._carry_out_all(self.steward.step(self.facts(answers)))
                if not self._answers:
                    return
        finally:
            self._is_stepping = False

    def end(self) -> None:
        """Makes the steward end everything that is open, at the end of the run."""
        self._carry_out_all(self.steward.end(self.facts()))

    def answer(self, number: int, value: object) -> None:
        """Keeps an answer for the steward's next step."""
        self._answers.append(Answer(number, value))

    def _carry_out_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        manager = self.manager
        match command:
            case MoveSlots(number, operator, parts, first, prepare, vertical):
                self._planned(number, *manager.move(operator, parts, first, prepare=prepare, vertical=vertical))
            case SplitBackup(number, origin, parts):
                self._planned(number, *manager.split(origin, parts))
            case TakeCheckpoints(instances):
                self.perform(manager.checkpoint(only=instances))
            case PlaceBackups(groups):
                self.perform(manager.replicate(groups))
            case LeaveNode(node):
                self.perform(manager.node_leaving(node))
                self.vms.leaving(node)
            case WantNodes(count):
                self.vms.want(count)
            case WatchSlots(operators):
                self.watch_slots(operators)
            case EndWindow():
                self.answer(command.number, self.window(command))
            case Consult():
                self.consult(command)
            case MigrationEnded(number):
                self.migration_ended(number)
            case Tell(event):
                self.tell(event)
            case _:
                assert_never(command)

    def _planned(self, number: int, answer: Accepted | Refused, effects: list[Effect]) -> None:
        self.perform(effects)
        self.answer(number, answer)
