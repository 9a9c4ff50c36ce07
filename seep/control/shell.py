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
        """So many are needed now."""
        ...

    def leaving(self, node: str) -> None:
        """The VM of a node will go; it is to be ended when nothing is left on it."""
        ...


class StewardShell(ABC):
    """Between the steward on one side, and the manager and the pool on the other; who it is tells the rest."""

    def __init__(self, steward: Steward, vms: VMs) -> None:
        self.steward, self.vms = steward, vms
        self._answers: list[Answer] = []
        self._is_stepping = False

    # -- what each shell has of its own -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def manager(self) -> Manager:
        """Of the query as it is now."""

    @abstractmethod
    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        """How things are."""

    @abstractmethod
    def perform(self, effects: list[Effect]) -> None:
        """What the manager wants done."""

    @abstractmethod
    def watch_slots(self, operators: frozenset[str]) -> None:
        """Of these operators the rows of each slot are counted from now on."""

    @abstractmethod
    def window(self, command: EndWindow) -> object:
        """What was counted; None if some instance has told nothing."""

    @abstractmethod
    def consult(self, question: Consult) -> None:
        """Has a question answered by `answer`, now, later or never."""

    @abstractmethod
    def migration_ended(self, number: int) -> None:
        """Nobody need wait for it any more."""

    @abstractmethod
    def tell(self, event: Event) -> None:
        """Something that people should know."""

    # -- what all have ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Has the steward decide until it has nothing more to say for now."""
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
        """The run is over, and with it whatever is open."""
        self._carry_out_all(self.steward.end(self.facts()))

    def answer(self, number: int, value: object) -> None:
        """The steward hears of it in its next step."""
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
