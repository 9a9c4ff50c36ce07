"""Drains: a node is emptied, given up after too long, or lost before; each ends with an event."""

from __future__ import annotations

from policies.scaling.settings import ScalingSettings
from tests.control.staging import Shell
from tests.protocol.staging import SUM, node_of


def drain(shell: Shell) -> str:
    node = node_of(SUM)
    shell.steward.drain(shell.facts(), node)
    return node


def test_all_that_lives_on_a_node_goes_elsewhere_and_its_vm_is_given_back() -> None:
    shell = Shell()
    node = drain(shell)
    for _ in range(4):
        shell.rounds(0.1)
        shell.settle()
    shell.rounds(0.1)
    assert shell.left == [node]
    assert shell.told() == ["drained"]
    assert not shell.is_open
    assert all(seat.node != node for seat in shell.desk.manager.placement.values())


def test_a_second_notice_of_the_same_node_changes_nothing() -> None:
    shell = Shell()
    drain(shell)
    shell.rounds(0.1)
    node = drain(shell)
    shell.rounds(0.1)
    assert shell.left == [node]


def test_a_node_that_nothing_leaves_is_given_up_after_the_timeout() -> None:
    shell = Shell(scaling=ScalingSettings(timeout=30.0))
    drain(shell)
    shell.rounds(29)
    assert shell.is_open
    shell.rounds(3)
    assert shell.told() == ["drain given up"]
    assert "for 30 s nothing has left it" in str(shell.events.of("drain given up")[0])
    assert not shell.is_open


def test_a_node_that_is_lost_before_it_is_empty_is_told_so() -> None:
    shell = Shell()
    node = drain(shell)
    shell.change(lambda manager: (None, manager.node_lost(node)))
    shell.rounds(0.1)
    assert shell.told() == ["drain given up"]
    assert not shell.is_open


def test_a_drain_that_is_open_when_the_run_ends_is_told_of() -> None:
    shell = Shell()
    drain(shell)
    shell.rounds(0.1)
    shell.end()
    assert shell.told() == ["drain given up"]
    assert not shell.is_open
