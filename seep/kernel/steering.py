"""Steering in a world: gives the steward facts, and carries out its commands on the manager and the VMs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from policies.balance.loads import SlotLoads
from policies.observation import Observation
from primitives.event import Event
from primitives.graph import InstanceId
from seep.control.commands import Consult, EndWindow
from seep.control.shell import StewardShell, VMs
from seep.control.steward import Steward
from seep.kernel.kernel import Kernel
from seep.protocol.effects import Effect
from seep.protocol.events import Rebound
from seep.protocol.manager.manager import Manager
from seep.protocol.view import MANAGER
from seep.record.events import InstanceRecovered
from seep.record.facts import Answer, Facts, query_facts
from seep.record.recoveries import RecoveryChanges


class Senses(Protocol):
    """The measurements of a world, and the answers to the steward's questions."""

    def observation(self) -> Observation | None:
        """Returns the observation of the last report interval."""
        ...

    def state_bytes(self) -> Mapping[InstanceId, int]: ...

    def watch_slots(self, operators: frozenset[str]) -> None:
        """Makes the rows of these operators counted by slot from now on, and of no others."""
        ...

    def slot_loads(self, window: EndWindow) -> SlotLoads | None:
        """Returns the counts since the last call; None if some instance has not reported yet."""
        ...

    def consult(self, question: Consult, answer: Callable[[object], None]) -> None:
        """Answers the question, now, later or never."""
        ...


class KernelSteering(StewardShell):
    """The steward's shell in a kernel. There is one for each life of a query."""

    def __init__(
        self,
        kernel: Kernel,
        steward: Steward,
        vms: VMs,
        senses: Senses,
        clock: Callable[[], float],
        tell: Callable[[Event], None],
    ) -> None:
        super().__init__(steward, vms)
        self._kernel, self._senses, self._clock, self._tell = kernel, senses, clock, tell
        self._recoveries = RecoveryChanges()
        #: open recoveries: their start, and the epochs that were open then
        self._recovering: dict[InstanceId, tuple[float, int]] = {}
        #: numbers of ended migrations
        self.over: set[int] = set()

    @property
    def manager(self) -> Manager:
        return self._kernel.manager

    def hear(self, event: Event) -> None:
        """Handles an event of the manager; a recovery ends when the sinks are past the epochs open at its beginning."""
        if isinstance(event, Rebound):
            self._recovering.setdefault(event.subject, (self._clock(), self._kernel.manager.ticked))
            self._recoveries.hear(event.dated(self._clock()))

    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        kernel, at = self._kernel, self._clock()
        query = query_facts(kernel.manager)
        self._note_recovered(at, query.committed)
        reported = {i.instance: each.processed for n in kernel.live() for i, each in kernel.nodes[n].instances.items()}
        return Facts(
            at=at,
            query=query,
            free=tuple(self.vms.available()),
            answers=answers,
            observation=self._senses.observation(),
            recoveries=tuple(self._recoveries),
            reported=reported,
            state_bytes=self._senses.state_bytes(),
        )

    def _note_recovered(self, at: float, committed: int) -> None:
        for instance, (since, ticked) in list(self._recovering.items()):
            if committed >= ticked:
                del self._recovering[instance]
                seconds = at - since
                over = InstanceRecovered(
                    subject=instance, seconds=seconds, detected=0.0, restored=0.0, replayed=seconds
                )
                self._recoveries.hear(over.dated(at))

    def perform(self, effects: list[Effect]) -> None:
        self._kernel.perform(MANAGER, effects)

    def watch_slots(self, operators: frozenset[str]) -> None:
        self._senses.watch_slots(operators)

    def window(self, command: EndWindow) -> SlotLoads | None:
        return self._senses.slot_loads(command)

    def consult(self, question: Consult) -> None:
        self._senses.consult(question, lambda value: self.answer(question.number, value))

    def migration_ended(self, number: int) -> None:
        self.over.add(number)

    def tell(self, event: Event) -> None:
        self._tell(event)
