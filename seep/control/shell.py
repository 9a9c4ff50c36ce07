"""What every shell of the steward does: shows it the facts, and carries out what it says, until it comes to rest."""

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

#: Steps in a row, as long as there are answers; then everything else has its turn.
IN_A_ROW = 64


class VMs(Protocol):
    """What the steward needs of the pool."""

    def available(self) -> Sequence[str]:
        """Warm nodes that new instances may take."""
        ...

    def want(self, count: int) -> None:
        """Says how many free nodes are needed now, beyond the reserve."""
        ...

    def leaving(self, node: str) -> None:
        """The VM of a node will go; it is to be ended when nothing is left on it."""
        ...


class StewardShell(ABC):
    """Carries out the steward's commands on manager and pool. Subclasses say where facts come from and effects go."""

    def __init__(self, steward: Steward, vms: VMs) -> None:
        self.steward, self.vms = steward, vms
        self._answers: list[Answer] = []
        self._is_stepping = False

    # -- what each shell has of its own -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def manager(self) -> Manager:
        """The manager of the present run of the query."""

    @abstractmethod
    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        """The facts of this moment."""

    @abstractmethod
    def perform(self, effects: list[Effect]) -> None:
        """Does what the manager asks for."""

    @abstractmethod
    def watch_slots(self, operators: frozenset[str]) -> None:
        """Has the rows of these operators counted by slot from now on, and of no others."""

    @abstractmethod
    def window(self, command: EndWindow) -> object:
        """The counts since the last call; None if some instance has not reported yet."""

    @abstractmethod
    def consult(self, question: Consult) -> None:
        """Has a question answered by `answer`, now, later or never."""

    @abstractmethod
    def migration_ended(self, number: int) -> None:
        """A migration has ended: tells whoever waits for it."""

    @abstractmethod
    def tell(self, event: Event) -> None:
        """Records an event."""

    # -- what all have ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Has the steward take steps until it gives no more commands that are answered at once."""
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
        """Has the steward end all that is open, as the run is over."""
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
