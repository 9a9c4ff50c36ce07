"""Steering in a world: shows the steward the facts, and does what it says on the manager and the VMs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, assert_never

from policies.balance.loads import SlotLoads
from policies.observation import Observation
from primitives.event import Event
from primitives.graph import InstanceId
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
from seep.kernel.kernel import Kernel
from seep.protocol.effects import Effect
from seep.protocol.events import Rebound
from seep.protocol.view import MANAGER
from seep.record.events import InstanceRecovered
from seep.record.facts import Answer, Facts, query_facts
from seep.record.recoveries import RecoveryChanges

#: Steps of the steward in a row, as long as there are answers.
_IN_A_ROW = 64


class WarmNodes(Protocol):
    """What the steward needs of the VMs."""

    def available(self) -> Sequence[str]: ...

    def want(self, count: int) -> None: ...

    def leaving(self, node: str) -> None: ...


class Senses(Protocol):
    """What is measured in a world, and who is asked."""

    def observation(self) -> Observation | None:
        """Of the last report interval that is over."""
        ...

    def state_bytes(self) -> Mapping[InstanceId, int]: ...

    def watch_slots(self, operators: frozenset[str]) -> None:
        """Of these operators the rows of each slot are counted from now on."""
        ...

    def slot_loads(self, window: EndWindow) -> SlotLoads | None:
        """What was counted; None if some instance has told nothing."""
        ...

    def consult(self, question: Consult, answer: Callable[[object], None]) -> None:
        """Has the question answered, now, later or never."""
        ...


class KernelSteering:
    """Between a steward and the kernel. One for each life of a query."""

    def __init__(
        self,
        kernel: Kernel,
        steward: Steward,
        vms: WarmNodes,
        senses: Senses,
        clock: Callable[[], float],
        tell: Callable[[Event], None],
    ) -> None:
        self._kernel, self.steward, self._vms, self._senses = kernel, steward, vms, senses
        self._clock, self._tell = clock, tell
        self._recoveries = RecoveryChanges()
        #: recoveries that are not over: since when, and the epochs that were open then
        self._recovering: dict[InstanceId, tuple[float, int]] = {}
        self._answers: list[Answer] = []
        #: numbers of migrations that are over
        self.over: set[int] = set()

    def hear(self, event: Event) -> None:
        """The manager has told an event; a recovery is over when the sinks are past what was open at its beginning."""
        if isinstance(event, Rebound):
            self._recovering.setdefault(event.subject, (self._clock(), self._kernel.manager.ticked))
            self._recoveries.hear(event.dated(self._clock()))

    def _note_recovered(self, facts: Facts) -> None:
        for instance, (since, ticked) in list(self._recovering.items()):
            if facts.query.committed >= ticked:
                del self._recovering[instance]
                seconds = facts.at - since
                over = InstanceRecovered(
                    subject=instance, seconds=seconds, detected=0.0, restored=0.0, replayed=seconds
                )
                self._recoveries.hear(over.dated(facts.at))

    def step(self) -> None:
        """Has the steward decide until it has nothing more to say for now."""
        for _ in range(_IN_A_ROW):
            answers, self._answers = tuple(self._answers), []
            facts = self.facts(answers)
            self._note_recovered(facts)
            for command in self.steward.step(facts):
                self._carry_out(command)
            if not self._answers:
                return

    def end(self) -> None:
        """The run is over, and with it whatever is open."""
        for command in self.steward.end(self.facts()):
            self._carry_out(command)

    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        """How things are."""
        kernel = self._kernel
        reported = {i.instance: each.processed for n in kernel.live() for i, each in kernel.nodes[n].instances.items()}
        return Facts(
            at=self._clock(),
            query=query_facts(kernel.manager),
            free=tuple(self._vms.available()),
            answers=answers,
            observation=self._senses.observation(),
            recoveries=tuple(self._recoveries),
            reported=reported,
            state_bytes=self._senses.state_bytes(),
        )

    def _carry_out(self, command: Command) -> None:
        manager = self._kernel.manager
        match command:
            case MoveSlots(number, operator, parts, first, prepare, vertical):
                self._answer(number, *manager.move(operator, parts, first, prepare=prepare, vertical=vertical))
            case SplitBackup(number, origin, parts):
                self._answer(number, *manager.split(origin, parts))
            case TakeCheckpoints(instances):
                self._perform(manager.checkpoint(only=instances))
            case PlaceBackups(groups):
                self._perform(manager.replicate(groups))
            case LeaveNode(node):
                self._perform(manager.node_leaving(node))
                self._vms.leaving(node)
            case WantNodes(count):
                self._vms.want(count)
            case WatchSlots(operators):
                self._senses.watch_slots(operators)
            case EndWindow():
                self._answers.append(Answer(command.number, self._senses.slot_loads(command)))
            case Consult():
                self._senses.consult(command, lambda value: self._answers.append(Answer(command.number, value)))
            case MigrationEnded(number):
                self.over.add(number)
            case Tell(event):
                self._tell(event)
            case _:
                assert_never(command)

    def _answer(self, number: int, value: Any, effects: list[Effect]) -> None:
        self._perform(effects)
        self._answers.append(Answer(number, value))

    def _perform(self, effects: list[Effect]) -> None:
        self._kernel.perform(MANAGER, effects)
