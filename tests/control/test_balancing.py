"""Balance: windows are shown to a balancer, what it decides is carried out, and each decision ends with an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from policies.balance.loads import Rebalance, SlotLoads
from policies.balance.settings import BalanceSettings
from policies.scaling.settings import Mechanism, ScalingSettings
from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.control.commands import EndWindow
from tests.control.staging import Shell
from tests.protocol.staging import SUM, SUM1
from tests.protocol.test_manager import HALF

ON = BalanceSettings(enabled=True, window=1.0, history=4)
BY_HAND = ScalingSettings(mechanism=Mechanism.HANDOVER, timeout=30.0)


class Scripted:
    """Moves what the test says, in one window; nothing before and after."""

    def __init__(self, *decisions: Rebalance | Exception) -> None:
        self._decisions = list(decisions)
        self.shown: list[int] = []

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        self.shown.append(len(windows))
        decision = self._decisions.pop(0) if self._decisions else Rebalance()
        if isinstance(decision, Exception):
            raise decision
        return decision


def even(window: EndWindow) -> SlotLoads:
    """As many rows in each slot."""
    rows = np.full(window.assignment.owners.size, 10)
    return SlotLoads(window.seconds, window.assignment, rows, None, window.moving)


def shell(
    balancer: Scripted, settings: BalanceSettings = ON, loads: Callable[[EndWindow], SlotLoads | None] = even
) -> Shell:
    """sum[0] and sum[1] own half of the slots each."""
    staged = Shell(lead=0, balance=settings, scaling=BY_HAND, balancer=balancer)
    staged.moved({1: HALF}, SUM, SUM1)
    staged.loads = loads
    return staged


ONE_SLOT = Rebalance({0: SlotSet([3])}, "sum[1] is too full")


def test_what_a_balancer_decides_is_moved_and_its_effect_is_told() -> None:
    staged = shell(Scripted(ONE_SLOT))
    staged.rounds(2.2)
    assert staged.counted == {"sum"}
    assert staged.told()[:1] == ["balancing"]
    staged.rounds(0.2)
    staged.settle()
    staged.rounds(6)
    assert staged.told() == ["balancing", "balanced"]
    assert staged.steward.history(staged.facts()).changes == ()
    assert not staged.is_open


def test_the_first_window_is_thrown_away() -> None:
    balancer = Scripted()
    staged = shell(balancer)
    staged.rounds(1.5)
    assert balancer.shown == []
    staged.rounds(1)
    assert balancer.shown == [1]


def test_a_window_goes_on_until_all_instances_have_told_of_it() -> None:
    balancer = Scripted()
    staged = shell(balancer, loads=lambda _: None)
    staged.rounds(5)
    assert balancer.shown == []
    staged.loads = even
    staged.rounds(3)
    assert balancer.shown


def test_by_hand_one_operator_is_balanced_once() -> None:
    staged = shell(Scripted(ONE_SLOT, ONE_SLOT), BalanceSettings(window=1.0))
    staged.steward.balance(staged.facts(), "sum")
    staged.rounds(2.5)
    staged.settle()
    staged.rounds(6)
    assert staged.told() == ["balancing", "balanced"]
    assert staged.counted == frozenset(), "and nobody counts any more"


def test_by_hand_it_ends_if_nothing_is_worth_moving() -> None:
    staged = shell(Scripted(), BalanceSettings(window=1.0, history=3))
    staged.steward.balance(staged.facts(), "sum")
    staged.rounds(6)
    assert staged.told() == ["nothing to balance"]
    assert not staged.is_open


def test_by_hand_it_ends_if_there_is_no_window_for_too_long() -> None:
    staged = shell(Scripted(), BalanceSettings(window=1.0), loads=lambda _: None)
    staged.steward.balance(staged.facts(), "sum")
    staged.rounds(29)
    assert staged.is_open
    staged.rounds(2)
    assert staged.told() == ["nothing to balance"]


def test_of_one_instance_nothing_can_be_balanced() -> None:
    staged = Shell(balance=ON)
    with pytest.raises(UserError, match="sum has one instance"):
        staged.steward.balance(staged.facts(), "sum")


def test_a_balancer_that_raises_is_told_once() -> None:
    staged = shell(Scripted(*[ZeroDivisionError("by 0") for _ in range(3)]))
    staged.rounds(6)
    assert staged.told() == ["balancing failed"]
    assert "balancer Scripted fails" in staged.events.of("balancing failed")[0].detail


def test_a_balancer_that_hangs_is_told_once_and_what_was_asked_by_hand_ends_all_the_same() -> None:
    staged = shell(Scripted(ONE_SLOT), BalanceSettings(window=1.0))
    staged.held = []
    staged.steward.balance(staged.facts(), "sum")
    staged.rounds(32)
    assert len(staged.held) == 1
    assert staged.told() == ["balancing failed", "nothing to balance"]
    late, staged.held = staged.held[0], None
    staged.give(late)
    staged.rounds(1)
    assert staged.told() == ["balancing failed", "nothing to balance"], "what it decides too late moves nothing"


def test_a_rebalance_that_is_open_when_the_run_ends_is_told_of() -> None:
    staged = shell(Scripted(ONE_SLOT))
    staged.rounds(2.5)
    staged.end()
    assert staged.told() == ["balancing", "balancing called off"]
    assert not staged.is_open


def test_windows_in_which_an_operator_was_scaled_are_thrown_away() -> None:
    balancer = Scripted()
    staged = shell(balancer)
    staged.rounds(2.2)
    before = len(balancer.shown)
    staged.scale(3)
    staged.rounds(3)
    assert len(balancer.shown) == before


@pytest.mark.parametrize("is_ending", [False, True])
def test_nothing_is_balanced_any_more_while_the_query_ends(is_ending: bool) -> None:
    balancer = Scripted(ONE_SLOT)
    staged = Shell(lead=0, last_cut=True, balance=ON, scaling=BY_HAND, balancer=balancer)
    staged.moved({1: HALF}, SUM, SUM1)
    staged.loads = even
    staged.steward.balance(staged.facts(), "sum")
    if is_ending:
        staged.desk.manager.finish()
    staged.rounds(2.2)
    assert balancer.shown, "it is asked all the same, as it tells of hot slots"
    assert ("balancing" in staged.told()) == (not is_ending)
    assert (staged.events.of("nothing to balance") != []) == is_ending
