"""Decisions to scale: each ends, with an event that says how. A real manager, driven by hand, without nodes."""

from __future__ import annotations

import pytest

from policies.scaling.decision import Decision
from policies.scaling.settings import Mechanism, ScalingSettings
from primitives.slots import SlotSet
from seep.protocol.messages import Partitioned
from seep.protocol.view import STORAGE
from tests.control.staging import Shell
from tests.protocol.staging import SUM, SUM1, SUM2
from tests.protocol.test_manager import HALF, KEEPER

OUT = Decision("sum", 2, "asked for")


def in_storage(shell: Shell) -> None:
    shell.change(lambda manager: (None, manager.replicate({SUM: (STORAGE,)})))


def in_three(shell: Shell) -> None:
    shell.moved({1: HALF}, SUM, SUM1)
    shell.moved({2: SlotSet([3])}, SUM, SUM1, SUM2)


def test_slots_are_handed_over_where_backups_are_in_storage() -> None:
    shell = Shell()
    in_storage(shell)
    shell.decide(OUT)
    shell.rounds(1)
    assert shell.told() == ["split not possible", "scaling out"]
    assert "in storage" in shell.events.of("split not possible")[0].detail
    assert len(shell.desk.manager.moves) == 1
    assert shell.checkpoints == 0


def test_slots_are_handed_over_where_there_are_no_backups() -> None:
    shell = Shell(unkept=frozenset({"sum"}))
    shell.decide(OUT)
    shell.rounds(1)
    assert shell.told() == ["split not possible", "scaling out"]
    assert len(shell.desk.manager.moves) == 1


def test_one_checkpoint_is_asked_for_and_its_backup_is_split() -> None:
    shell = Shell()
    shell.decide(OUT)
    shell.rounds(5)
    assert shell.checkpoints == 1, "not one in every round"
    shell.desk.back_up(SUM, 6)
    shell.rounds(0.1)
    assert len(shell.desk.manager.splits) == 1
    assert shell.told() == ["scaling out"]


def test_slots_are_handed_over_if_the_backup_does_not_come() -> None:
    shell = Shell()
    shell.decide(OUT)
    shell.rounds(12)
    assert shell.checkpoints == 1
    assert shell.told() == ["split not possible", "scaling out"]
    assert len(shell.desk.manager.moves) == 1


def test_a_checkpoint_is_asked_for_if_the_backup_is_from_before_the_last_change() -> None:
    shell = Shell(lead=0)
    shell.moved({1: HALF}, SUM, SUM1)
    shell.moved({2: SlotSet([3])}, SUM1, SUM2)  # sum[0] has not backed up since
    assert not shell.desk.manager.moves
    shell.decide(Decision("sum", 4, "asked for"))
    shell.rounds(5)
    assert shell.checkpoints == 3, "one of each instance, once"
    shell.desk.back_up(SUM, shell.desk.manager.ticked)
    shell.rounds(0.1)
    assert len(shell.desk.manager.splits) == 1


@pytest.mark.parametrize("mechanism", [Mechanism.BACKUP, Mechanism.HANDOVER])
def test_a_decision_for_which_no_vm_comes_is_given_up(mechanism: Mechanism) -> None:
    shell = Shell(free=0, scaling=ScalingSettings(mechanism=mechanism, timeout=30.0))
    shell.decide(OUT)
    shell.rounds(20)
    shell.decide(OUT)  # by the policy, once more: it is the same decision
    shell.rounds(11)
    assert shell.told() == ["waiting for VMs", "scaling given up"]
    (over,) = shell.events.of("scaling given up")
    wanted = "2 VMs" if mechanism is Mechanism.BACKUP else "1 VM"
    assert over.detail == f"to 2: for 30 s it waited for {wanted}"
    assert not shell.is_open
    assert shell.wanted == 0, "and none is ordered for it any more"


def test_a_split_that_is_aborted_again_and_again_is_given_up() -> None:
    shell = Shell(timeout=30.0)
    shell.desk.back_up(SUM, 6)
    shell.decide(OUT)
    for _ in range(100):
        shell.rounds(0.5)
        for plan in list(shell.desk.manager.splits):
            shell.desk.hear(KEEPER, Partitioned(plan, None))
    assert not shell.is_open
    assert shell.told()[-1] == "scaling given up"
    assert all(change.done is not None for change in shell.steward.history(shell.facts()).changes)


def test_a_decision_that_changes_nothing_ends_too() -> None:
    shell = Shell()
    shell.decide(Decision("sum", 1, "asked for"))
    shell.rounds(0.2)
    assert shell.told() == ["nothing to scale"]
    assert not shell.is_open


def test_a_decision_to_scale_out_never_scales_in() -> None:
    """A recovery in parts may have made more instances than the policy wanted, since it looked."""
    shell = Shell(scaling=ScalingSettings(mechanism=Mechanism.HANDOVER), lead=0)
    in_three(shell)
    shell.decide(Decision("sum", 2, "sum[0]: 85 % of its CPU share"), seen=1)
    shell.rounds(0.2)
    assert shell.told() == ["nothing to scale"]
    assert shell.events.of("nothing to scale")[0].detail == "it has 3 instances"


def test_somebody_who_asks_by_hand_gets_as_many_instances_as_asked_for() -> None:
    shell = Shell(scaling=ScalingSettings(mechanism=Mechanism.HANDOVER), lead=0)
    in_three(shell)
    shell.decide(Decision("sum", 2, "asked for"), by_hand=True)
    shell.rounds(0.2)
    assert shell.told() == ["scaling in"]


def test_slots_that_are_still_on_their_way_when_a_decision_is_given_up_are_a_change_for_policies() -> None:
    """Else a policy takes what was measured before they have moved for the effect of the change."""
    shell = Shell(scaling=ScalingSettings(mechanism=Mechanism.HANDOVER, timeout=30.0))
    shell.decide(OUT)
    shell.rounds(31)
    assert shell.told() == ["scaling out", "scaling given up"]
    assert shell.steward.history(shell.facts()).is_changing("sum")
    shell.settle()
    shell.rounds(20)
    assert not shell.steward.history(shell.facts()).is_changing("sum")
    assert shell.steward.history(shell.facts()).changes[-1].after == 2


def test_a_later_decision_replaces_one_that_waits_and_both_are_told() -> None:
    shell = Shell(free=0)
    shell.decide(OUT, by_hand=True)
    shell.rounds(0.2)
    shell.decide(Decision("sum", 3, "asked for"), by_hand=True)
    for _ in range(3):
        shell.decide(Decision("sum", 4, "the policy says so"))
    shell.rounds(0.1)
    assert shell.told() == ["waiting for VMs", "scaling replaced", "scaling refused"]
    assert "to 4: it is being scaled to 3" in shell.events.of("scaling refused")[0].detail


def test_a_decision_that_is_open_when_the_run_ends_is_told_of() -> None:
    shell = Shell(free=0)
    shell.decide(OUT)
    shell.rounds(1)
    shell.end()
    assert shell.told() == ["waiting for VMs", "scaling called off"]
    assert not shell.is_open


def test_a_decision_that_fails_is_over_and_others_go_on() -> None:
    shell = Shell()
    shell.decide(Decision("sum", 100, "more than it has slots"))
    shell.decide(Decision("pass", 2, "asked for"))
    shell.rounds(0.5)
    assert "scaling refused" in shell.told()
    assert "scaling out" in shell.told()
