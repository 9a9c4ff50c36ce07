"""A steward over a real manager that is driven by hand, without nodes; time passes when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from policies.balance.loads import Balancer, SlotLoads
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.observation import Observation
from policies.scaling.decision import Decision, Policy
from policies.scaling.governor import Governor
from policies.scaling.registry import Manual
from policies.scaling.settings import Mechanism, ScalingSettings
from primitives.event import Event
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.control.commands import Consult, EndWindow
from seep.control.shell import StewardShell
from seep.control.steward import Steward, StewardSettings
from seep.protocol.effects import Effect
from seep.protocol.manager.manager import Manager
from seep.protocol.messages import TakeCheckpoint
from seep.record.facts import Answer, Facts, query_facts
from seep.record.log import EventLog
from tests.protocol.staging import SUM, letters
from tests.protocol.test_manager import Desk


class Shell(StewardShell):
    """What the driver is for a steward."""

    def __init__(
        self,
        free: int = 4,
        timeout: float = 60.0,
        *,
        policy: Policy | None = None,
        scaling: ScalingSettings | None = None,
        balance: BalanceSettings | None = None,
        balancer: Balancer | None = None,
        checkpoint: float | None = None,
        **settings: Any,
    ) -> None:
        self.desk = Desk(spare=["spare node", "another"], **settings)
        self.clock = 0.0
        self.events = EventLog(lambda: self.clock)
        self.effects: list[Effect] = []
        self.free, self.wanted, self.counted = free, 0, frozenset[str]()
        self.left: list[str] = []
        self.over: list[int] = []
        self.held: list[Consult] | None = None  #: questions that are not answered, once it is a list
        self.loads: Callable[[EndWindow], SlotLoads | None] = lambda _: None
        self.observation: Observation | None = None
        self.desk.tick(6)
        chosen = scaling or ScalingSettings(mechanism=Mechanism.BACKUP, timeout=timeout)
        graph = self.desk.manager.graph
        most = {name: 1 << operator.slot_bits for name, operator in graph.operators.items()}
        steward = Steward(
            graph,
            Governor(policy or Manual(), chosen, most),
            StewardSettings(
                scaling=chosen,
                migration=MigrationSettings(),
                balance=balance or BalanceSettings(),
                checkpoint=checkpoint,
            ),
            balancer,
        )
        super().__init__(steward, self)

    # -- asked for ----------------------------------------------------------------------------------------------------

    def decide(self, decision: Decision, by_hand: bool = False, seen: int | None = None) -> None:
        """As if a policy had decided it, which saw so many instances, or somebody asked for it."""
        there = self.facts().query.instances(decision.operator)
        self.steward._scalings.open(self.facts(), decision, None if by_hand else there if seen is None else seen)

    def scale(self, parallelism: int) -> None:
        self.steward.scale(self.facts(), "sum", parallelism)

    # -- time ---------------------------------------------------------------------------------------------------------

    def rounds(self, seconds: float, every: float = 0.05) -> None:
        """What happens in so many seconds."""
        for _ in range(round(seconds / every)):
            self.clock += every
            self.step()

    def step(self) -> None:
        super().step()
        self.steward.validate()
        assert not self._answers, "the steward does not come to rest"

    # -- as every shell -----------------------------------------------------------------------------------------------

    @property
    def manager(self) -> Manager:
        return self.desk.manager

    def facts(self, answers: tuple[Answer, ...] = ()) -> Facts:
        return Facts(
            at=self.clock,
            query=query_facts(self.manager),
            free=tuple(self.available()),
            answers=answers,
            observation=self.observation,
        )

    def perform(self, effects: list[Effect]) -> None:
        self.effects += effects

    def watch_slots(self, operators: frozenset[str]) -> None:
        self.counted = operators

    def window(self, command: EndWindow) -> SlotLoads | None:
        return self.loads(command)

    def migration_ended(self, number: int) -> None:
        self.over.append(number)

    def tell(self, event: Event) -> None:
        self.events.add(event)

    def consult(self, question: Consult) -> None:
        if self.held is not None and question.kind != "steps":
            self.held.append(question)
        else:
            self.give(question)

    def give(self, question: Consult) -> None:
        """The question is answered, or what it raises is the answer."""
        try:
            self.answer(question.number, question.work())
        except Exception as reason:
            self.answer(question.number, reason)

    # -- its VMs ------------------------------------------------------------------------------------------------------

    def available(self) -> list[str]:
        return [f"free-{number}" for number in range(self.free)]

    def want(self, count: int) -> None:
        self.wanted = count

    def leaving(self, node: str) -> None:
        self.left.append(node)

    # -- the manager --------------------------------------------------------------------------------------------------

    def change(self, change: Callable[[Manager], tuple[Any, list[Effect]]]) -> Any:
        answer, effects = change(self.desk.manager)
        self.effects += effects
        return answer

    def moved(self, parts: Mapping[int, SlotSet], *concerned: InstanceId) -> None:
        """Slots have changed hands, and those concerned have backed up since."""
        self.change(lambda manager: manager.move("sum", parts))
        self.desk.acknowledge()
        self.desk.tick(2)
        for instance in concerned:
            self.desk.back_up(instance, self.desk.manager.ticked)
        self.desk.commit(self.desk.manager.ticked)
        self.desk.tick(2)

    def settle(self) -> None:
        """Whatever is announced takes effect, is committed and backed up."""
        for _ in range(3):
            self.desk.acknowledge()
            self.desk.tick(2)
            ticked = self.desk.manager.ticked
            for instance in [i for i in self.desk.manager.placement if i.operator == SUM.operator]:
                self.desk.back_up(instance, ticked)
            self.desk.commit(ticked)
            self.desk.tick(1)
            self.step()

    # -- what came of it ----------------------------------------------------------------------------------------------

    def told(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def checkpoints(self) -> int:
        """Letters that ask for one."""
        return len(letters(self.effects, TakeCheckpoint))

    @property
    def is_open(self) -> bool:
        return bool(self.steward.decisions())
