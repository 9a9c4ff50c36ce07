"""Runs that last: what is remembered of them stays within bounds, and what others rely on stays right."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from policies.scaling.decision import Decision
from policies.scaling.settings import Mechanism, ScalingSettings
from seep.channels.letters import NodeReady
from seep.driver import node_register
from seep.record.ring import Ring
from tests.control.staging import Shell
from tests.record.test_log import switching_often
from tests.runtime.driver_kit import managing, register
from tests.waiting import eventually

# -- migrations and scalings ------------------------------------------------------------------------------------------


def test_of_thousands_of_scalings_the_newest_are_kept_and_all_are_counted() -> None:
    shell = Shell(lead=0, scaling=ScalingSettings(mechanism=Mechanism.HANDOVER))
    steward = shell.steward
    steward._scalings._changes = Ring(100)
    steward.migrations._over = Ring(200, lambda migration: 1 + migration.slots)
    for number in range(400):
        shell.decide(Decision("pass", 2 - number % 2, "to and fro"))
        shell.step()
        shell.settle()
        shell.clock += 3.0  # nobody reports what was handed over
        shell.step()
        shell.step()
    assert shell.events.totals["scaled out"] == shell.events.totals["scaled in"] == 200
    assert len(shell.events) < 3_000
    changes = steward.history(shell.facts()).changes
    assert len(changes) == 100
    assert all(change.done is not None for change in changes)
    assert steward.migrations.total == 400
    progress = steward.progress(shell.facts())
    assert 0 < len(progress) <= 200
    assert len(steward.report(shell.facts())["migrations"]) == len(progress)


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_register_on_many_threads_while_others_go_through_those_that_are_there() -> None:
    with managing() as process, switching_often(), ThreadPoolExecutor(6) as threads:
        over = threading.Event()

        def look() -> int:
            looks = 0
            while not over.is_set():
                process.knows("no such order")
                process.task_ended("no such order", "nobody")
                assert all(record.name == name for name, record in process.nodes.items())
                looks += 1
            return looks

        looking = [threads.submit(look) for _ in range(2)]
        names = list(threads.map(lambda number: register(process, number), range(400)))
        over.set()
        assert all(each.result(60) for each in looking)
        assert len(set(names)) == 400
        assert set(process.nodes) == set(names)


def test_of_nodes_that_were_lost_only_the_last_ones_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_register, "_LOST", 10)
    with managing() as process:
        names = [register(process, number) for number in range(30)]
        for name in names:  # nobody listens at their addresses
            process.on_letter(name, 0, NodeReady(name))
        assert eventually(lambda: process.events.totals.get("node lost") == 30 and len(process.nodes) == 10)
        assert process.nodes.keys() == process._register._joined
        assert process.nodes.keys() <= set(names)
