"""Backups on groups of nodes, and in storage: what is killed comes back exactly. Real processes, real kill -9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seep
from policies.backup import BackupSection, BackupSettings, BackupStrategy
from primitives.errors import UserError
from primitives.graph import InstanceId
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import RATE, committed, counting, expected, found, idle, recovered, start, wait_until

COUNTER = InstanceId("counter", 0)
REPLICAS = BackupSection(default=BackupSettings(strategy=BackupStrategy.REPLICAS, replicas=2))
IN_STORAGE = BackupSection(default=BackupSettings(strategy=BackupStrategy.STORAGE))


def holders(run: Run, owner: InstanceId = COUNTER) -> tuple[str, ...]:
    """Who has the recorded backup."""
    backup = run.manager_process.backup_of(owner)
    return () if backup is None else backup.holders


def replicated(run: Run, owner: InstanceId = COUNTER, copies: int = 2) -> None:
    wait_until(lambda: len(holders(run, owner)) == copies)


def finished(run: Run) -> None:
    run.finish()
    run.wait(120)
    assert found(run) == expected(run)


def options(**more: Any) -> dict[str, Any]:
    return {"rate": seep.Rate(RATE), "spare": 1} | more


def test_a_lost_instance_goes_on_where_a_replica_is(host: Host) -> None:
    with start(host, counting(), backup=REPLICAS, **options()) as run:
        replicated(run)
        before, home = holders(run), run.placement["counter[0]"]
        assert home not in before
        run.kill("counter")
        recovered(run)
        assert run.placement["counter[0]"] in before
        assert run.events.of("stood ready")
        wait_until(lambda: run.placement["counter[0]"] not in holders(run) and len(holders(run)) == 2)
        finished(run)


def test_a_lost_replica_is_replaced_and_caught_up(host: Host) -> None:
    with start(host, counting(), backup=REPLICAS, **options(spare=2)) as run:
        replicated(run)
        idle(run)
        victim = holders(run)[-1]
        run.kill(victim)
        wait_until(lambda: victim not in holders(run) and len(holders(run)) == 2)
        committed(run, 20)
        run.kill("counter")
        recovered(run)
        finished(run)


def test_owner_and_one_replica_may_be_lost_at_once(host: Host) -> None:
    with start(host, counting(), backup=REPLICAS, **options(spare=3)) as run:
        replicated(run)
        idle(run)
        committed(run, 20)
        for node in {run.placement["counter[0]"], holders(run)[0]}:
            run.kill(node)
        recovered(run)
        finished(run)


def test_a_recovered_instance_is_lost_again_before_it_has_backed_up(host: Host) -> None:
    with start(host, counting(), backup=REPLICAS, checkpoint=0.5, **options(spare=3)) as run:
        replicated(run)
        idle(run)
        for times in (1, 2):
            run.kill("counter")
            recovered(run, times)
        finished(run)


def test_slots_are_handed_over_to_a_replica_holder_and_on_while_nodes_die(host: Host) -> None:
    with start(host, counting(), backup=REPLICAS, **options(spare=3)) as run:
        replicated(run)
        idle(run, 2)
        run.scale("counter", 2)
        wait_until(lambda: bool(run.events.of("scaling out")))
        run.kill("counter[0]")
        wait_until(lambda: bool(run.events.of("scaled out")))
        for owner in (COUNTER, InstanceId("counter", 1)):
            replicated(run, owner)
        run.kill("counter[1]")
        recovered(run, 2)
        finished(run)


def test_an_instance_more_lives_where_a_replica_is_and_no_vm_is_taken(host: Host) -> None:
    with start(host, counting(), backup=REPLICAS, **options(spare=0)) as run:
        replicated(run)
        before, nodes = holders(run), set(run.nodes)
        handle = run.migrate("counter", 2, "batched", batch=32, vertical=True)
        handle.wait(120)
        assert run.placement["counter[1]"] in before
        assert set(run.nodes) == nodes
        finished(run)


def test_backups_in_storage_bring_an_instance_back_twice_and_are_cleared_away(host: Host, tmp_path: Path) -> None:
    storage = StorageSettings(location=str(tmp_path), every=1000)
    with start(host, counting(), backup=IN_STORAGE, storage=storage, **options(spare=2)) as run:
        wait_until(lambda: holders(run) == ("storage",))
        idle(run)
        committed(run, 30)
        for times in (1, 2):
            run.kill("counter")
            recovered(run, times)
            committed(run, 30)
        assert any("backups" in path.parts for path in tmp_path.rglob("*"))
        run.scale("counter", 2)
        wait_until(lambda: bool(run.events.of("scaled out")))
        finished(run)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "backups" in path.parts]


@pytest.mark.parametrize(
    ("backup", "complaint"),
    [
        (IN_STORAGE, "backups of counter are to be in storage, and there is none"),
        (BackupSection(operators={"conuter": BackupSettings()}), "names conuter; operators with state are counter"),
    ],
    ids=["no storage", "unknown operator"],
)
def test_backups_that_cannot_be_are_refused_before_anything_starts(
    host: Host, backup: BackupSection, complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        seep.launch(counting(), host.context, backup=backup)
