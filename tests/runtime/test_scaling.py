"""Decisions to scale: each ends, with an event that says how. A real manager, driven by hand, without nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from policies.decision import Decision
from policies.migration.settings import MigrationSettings
from policies.settings import Mechanism, ScalingSettings
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.effects import Effect
from seep.protocol.manager import Manager
from seep.protocol.messages import Partitioned, TakeCheckpoint
from seep.protocol.view import STORAGE
from seep.record.log import EventLog
from seep.runtime.driver import ManagerProcess
from seep.runtime.metrics import Metrics
from seep.runtime.migrations import Migrations
from seep.runtime.scaling import Scalings
from seep.runtime.waiting import Room
from tests.protocol.staging import OUT as SINK
from tests.protocol.staging import SUM, SUM1, SUM2, letters
from tests.protocol.test_manager import HALF, KEEPER, Desk
from tests.runtime.test_waiting import Nodes

OUT = Decision("sum", 2, "asked for")


class Shell:
    """What a manager's process is for those who decide; time passes when the test says so."""

    def __init__(self, free: int = 4, timeout: float = 60.0, **settings: Any) -> None:
        self.desk = Desk(spare=["spare node", "another"], **settings)
        self.clock = 0.0
        self.events = EventLog(lambda: self.clock)
        self.effects: list[Effect] = []
        self.on_commit: Callable[[], None] = lambda: None
        self.options = SimpleNamespace(epoch=0.05)
        self.metrics = Metrics(frozenset({"numbers"}))
        self.desk.tick(6)
        self.nodes = Nodes(free)
        room, process = Room(self.nodes, self.events), cast(ManagerProcess, self)
        self.migrations = Migrations(process, room)
        chosen = ScalingSettings(mechanism=Mechanism.BACKUP, timeout=timeout)
        self.scalings = Scalings(process, chosen, self.migrations, MigrationSettings(), room)

    def ask(self, question: Callable[[Manager], Any]) -> Any:
        return question(self.desk.manager)

    def change(self, change: Callable[[Manager], tuple[Any, list[Effect]]]) -> Any:
        answer, effects = change(self.desk.manager)
        self.effects += effects
        return answer

    def committed(self) -> int:
        return self.desk.manager.safe.of(SINK)

    def latencies(self, since: float) -> list[float]:  # noqa: ARG002
        return []

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
            for instance in [i for i in self.desk.manager.placement if i.operator == "sum"]:
                self.desk.back_up(instance, ticked)
            self.desk.commit(ticked)
            self.desk.tick(1)
            self.on_commit()

    def rounds(self, seconds: float, every: float = 0.05) -> None:
        """What the coordinator does in so many seconds."""
        for _ in range(round(seconds / every)):
            self.clock += every
            self.scalings.round()
            self.migrations.round()

    def told(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def checkpoints(self) -> int:
        """Letters that ask for one."""
        return len(letters(self.effects, TakeCheckpoint))

    @property
    def is_open(self) -> bool:
        return bool(self.scalings._open)


def in_storage(shell: Shell) -> None:
    shell.change(lambda manager: (None, manager.replicate({SUM: (STORAGE,)})))


def test_slots_are_handed_over_where_backups_are_in_storage() -> None:
    shell = Shell()
    in_storage(shell)
    shell.scalings.open(OUT)
    shell.rounds(1)
    assert shell.told() == ["split not possible", "scaling out"]
    assert "in storage" in shell.events.of("split not possible")[0].detail
    assert len(shell.desk.manager.moves) == 1
    assert shell.checkpoints == 0


def test_slots_are_handed_over_where_there_are_no_backups() -> None:
    shell = Shell(unkept=frozenset({"sum"}))
    shell.scalings.open(OUT)
    shell.rounds(1)
    assert shell.told() == ["split not possible", "scaling out"]
    assert len(shell.desk.manager.moves) == 1


def test_one_checkpoint_is_asked_for_and_its_backup_is_split() -> None:
    shell = Shell()
    shell.scalings.open(OUT)
    shell.rounds(5)
    assert shell.checkpoints == 1, "not one in every round"
    shell.desk.back_up(SUM, 6)
    shell.rounds(0.1)
    assert len(shell.desk.manager.splits) == 1
    assert shell.told() == ["scaling out"]


def test_slots_are_handed_over_if_the_backup_does_not_come() -> None:
    shell = Shell()
    shell.scalings.open(OUT)
    shell.rounds(12)
    assert shell.checkpoints == 1
    assert shell.told() == ["split not possible", "scaling out"]
    assert len(shell.desk.manager.moves) == 1


def test_a_checkpoint_is_asked_for_if_the_backup_is_from_before_the_last_change() -> None:
    shell = Shell(lead=0)
    shell.moved({1: HALF}, SUM, SUM1)
    shell.moved({2: SlotSet([3])}, SUM1, SUM2)  # sum[0] has not backed up since
    assert not shell.desk.manager.moves
    shell.scalings.open(Decision("sum", 4, "asked for"))
    shell.rounds(5)
    assert shell.checkpoints == 3, "one of each instance, once"
    shell.desk.back_up(SUM, shell.desk.manager.ticked)
    shell.rounds(0.1)
    assert len(shell.desk.manager.splits) == 1


@pytest.mark.parametrize("mechanism", [Mechanism.BACKUP, Mechanism.HANDOVER])
def test_a_decision_for_which_no_vm_comes_is_given_up(mechanism: Mechanism) -> None:
    shell = Shell(free=0, timeout=30.0)
    shell.scalings.settings = shell.scalings.settings.model_copy(update={"mechanism": mechanism})
    shell.scalings.open(OUT)
    shell.rounds(20)
    shell.scalings.open(OUT)  # by the policy, once more: it is the same decision
    shell.rounds(11)
    assert shell.told() == ["waiting for VMs", "scaling given up"]
    (over,) = shell.events.of("scaling given up")
    wanted = "2 VMs" if mechanism is Mechanism.BACKUP else "1 VM"
    assert over.detail == f"to 2: for 30 s it waited for {wanted}"
    assert not shell.is_open
    assert shell.nodes.wanted == 0, "and none is ordered for it any more"


def test_a_split_that_is_aborted_again_and_again_is_given_up() -> None:
    shell = Shell(timeout=30.0)
    shell.desk.back_up(SUM, 6)
    shell.scalings.open(OUT)
    for _ in range(100):
        shell.rounds(0.5)
        for plan in list(shell.desk.manager.splits):
            shell.desk.hear(KEEPER, Partitioned(plan, None))
    assert not shell.is_open
    assert shell.told()[-1] == "scaling given up"
    assert all(change.done is not None for change in shell.scalings.changes)


def test_a_decision_that_changes_nothing_ends_too() -> None:
    shell = Shell()
    shell.scalings.open(Decision("sum", 1, "asked for"))
    shell.rounds(0.2)
    assert shell.told() == ["nothing to scale"]
    assert not shell.is_open


def test_a_later_decision_replaces_one_that_waits_and_both_are_told() -> None:
    shell = Shell(free=0)
    shell.scalings.open(OUT, by_hand=True)
    shell.rounds(0.2)
    shell.scalings.open(Decision("sum", 3, "asked for"), by_hand=True)
    for _ in range(3):
        shell.scalings.open(Decision("sum", 4, "the policy says so"))
    assert shell.told() == ["waiting for VMs", "scaling replaced", "scaling refused"]
    assert "to 4: it is being scaled to 3" in shell.events.of("scaling refused")[0].detail


def test_a_decision_that_is_open_when_the_run_ends_is_told_of() -> None:
    shell = Shell(free=0)
    shell.scalings.open(OUT)
    shell.rounds(1)
    shell.scalings.end()
    assert shell.told() == ["waiting for VMs", "scaling called off"]
    assert not shell.is_open


def test_a_decision_that_fails_is_over_and_others_go_on() -> None:
    shell = Shell()
    shell.scalings.open(Decision("sum", 100, "more than it has slots"))
    shell.scalings.open(Decision("pass", 2, "asked for"))
    with pytest.raises(Exception, match="slot"):
        shell.rounds(0.5)
    shell.rounds(0.5)
    assert "scaling refused" in shell.told()
    assert "scaling out" in shell.told()
