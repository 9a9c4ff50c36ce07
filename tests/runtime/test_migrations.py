"""Slots that move step by step while rows come in and nodes are killed: the result stays exact. Real processes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import seep
from policies.migration.settings import MigrationSettings, Strategy
from primitives.errors import UserError
from primitives.graph import InstanceId
from primitives.topology import Assignment
from seep.cli.runs.control import migrate
from seep.control.migration import MigrationState
from seep.control.targets import passed_on
from seep.running.chaos import Chaos, parse_chaos
from seep.running.migration_handle import MigrationHandle
from seep.running.remote_control import find
from seep.running.run import Run
from seep.spark.session import Host
from tests.runtime.counting import RATE, awaited, committed, counting, expected, found, idle, start, wait_until
from vmpool.settings import PoolSettings

#: Seconds for all steps of a migration on a busy machine, kills included.
LONG = 120.0


def running(host: Host, **options: Any) -> Any:
    return start(host, counting(partitions=2), **({"rate": seep.Rate(RATE), "spare": 3} | options))


def owners(run: Run, operator: str = "counter") -> Assignment:
    return run.manager_process.latest_assignment(operator)


def done(handle: MigrationHandle) -> None:
    assert handle.wait(LONG)
    assert handle.progress.state is MigrationState.DONE


def moving(handle: MigrationHandle, steps: int = 1) -> None:
    """Waits until so many steps have taken effect."""
    wait_until(lambda: handle.progress.steps_done >= steps, LONG)


def end(run: Run) -> None:
    """Ends the input; the result must be exact."""
    run.finish()
    assert run.wait(LONG)
    assert found(run) == expected(run)


# -- strategies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "batch", "steps"),
    [(Strategy.ALL_AT_ONCE, 1, 1), (Strategy.FLUID, 1, 8), (Strategy.BATCHED, 3, 3), (Strategy.OPTIMISED, 4, 2)],
)
def test_each_strategy_moves_all_slots_in_its_steps(host: Host, strategy: Strategy, batch: int, steps: int) -> None:
    with running(host) as run:
        committed(run, 20)
        handle = run.migrate("counter", {1: range(8)}, strategy, batch=batch)
        done(handle)
        assert owners(run).parts[1].array.tolist() == list(range(8))
        progress = handle.progress
        assert (progress.steps, progress.steps_done) == (steps, steps)
        assert (progress.slots_moved, progress.slots_remaining) == (8, 0)
        assert progress.bytes > 0
        (migration,) = run.report()["migrations"]
        assert [step["slots"] for step in migration["timeline"]] == [8 // steps + (i < 8 % steps) for i in range(steps)]
        for step in migration["timeline"]:
            assert step["announced"] <= step["effective"] <= step["complete"]
        (migrated,) = run.events.of("migrated")
        assert {"slots_moved", "bytes", "held_back", "latency_max"} <= migrated.numbers.keys()
        end(run)


def test_many_steps_are_as_quick_as_epochs_and_not_as_rounds(host: Host) -> None:
    """A step is announced with the commit of the one before; on a busy machine at least the quickest shows it."""
    with running(host) as run:
        committed(run, 20)
        handle = run.migrate("counter", {1: range(24)}, "fluid")
        done(handle)
        timeline = run.report()["migrations"][0]["timeline"]
        gaps = [later["epoch"] - earlier["epoch"] for earlier, later in pairwise(timeline)]
        lead = run.manager_process.manager.settings.lead
        assert min(gaps) <= lead + 4
        end(run)


def test_state_that_is_fetched_ahead_is_counted_apart(host: Host) -> None:
    """The first backup may be of no rows, and a first step may take effect before what is fetched for it is there."""
    with running(host) as run:
        wait_until(lambda: run.manager_process.backup_of(InstanceId("counter", 0)) is not None)
        committed(run, 20)
        handle = run.migrate("counter", {1: range(8)}, "fluid")
        done(handle)
        assert handle.progress.bytes_ahead > 0
        end(run)


# -- when it begins, and ends -----------------------------------------------------------------------------------------


def test_a_migration_that_is_prepared_ahead_is_effective_at_its_epoch(host: Host) -> None:
    with running(host) as run:
        idle(run)
        epoch = run.status().ticked + 150
        handle = run.migrate("counter", {1: range(4)}, "batched", batch=2, epoch=epoch)
        assert handle.progress.state is MigrationState.WAITING
        done(handle)
        assert run.report()["migrations"][0]["timeline"][0]["epoch"] == epoch
        end(run)


@pytest.mark.acceptance
def test_vms_for_a_migration_that_is_prepared_ahead_are_got_ready_before_its_epoch(host: Host) -> None:
    pool = PoolSettings(size=0, reserve=0, provisioning_delay=1.0)
    with start(host, counting(), rate=seep.Rate(RATE), pool=pool) as run:
        epoch = run.status().ticked + 700  # 14 seconds, where it takes two or three to have a VM
        handle = run.migrate("counter", {1: range(4)}, "all-at-once", epoch=epoch)
        idle(run)
        assert handle.progress.state is MigrationState.WAITING
        done(handle)
        assert run.report()["migrations"][0]["timeline"][0]["epoch"] == epoch
        assert not run.events.of("waiting for VMs")
        end(run)


def test_a_cancelled_migration_leaves_what_has_moved_where_it_is(host: Host) -> None:
    with running(host) as run:
        committed(run, 20)
        handle = run.migrate("counter", 2, "fluid")
        moving(handle, 3)
        handle.cancel()
        assert handle.wait(LONG)
        progress = handle.progress
        assert progress.state is MigrationState.CANCELLED
        assert 3 <= progress.slots_moved == len(owners(run).parts[1]) < progress.slots_moved + progress.slots_remaining
        assert run.events.of("migration cancelled")
        end(run)


def test_a_migration_of_which_nothing_has_begun_is_cancelled_at_once(host: Host) -> None:
    with running(host) as run:
        handle = run.migrate("counter", 2, at="1h")
        assert not handle.wait(0.1)
        handle.cancel()
        assert handle.wait(0)
        assert handle.progress.state is MigrationState.CANCELLED
        assert len(owners(run).parts) == 1
        end(run)


def test_what_is_open_when_the_run_ends_is_over_with_it(host: Host) -> None:
    with running(host) as run:
        waiting = run.migrate("counter", 2, at="1h")
        end(run)
        assert waiting.wait(LONG)
        assert waiting.progress.state is MigrationState.CANCELLED
        with pytest.raises(UserError, match="the run is over"):
            run.migrate("counter", 2)


def test_migrations_of_one_operator_follow_one_another_and_those_of_others_do_not_wait(host: Host) -> None:
    with running(host) as run:
        committed(run, 20)
        first = run.migrate("counter", {1: range(6)}, "fluid")
        second = run.migrate("counter", {0: range(6)}, "all-at-once")
        both = run.migrate({"map": 2, "numbers": 2}, strategy="all-at-once")
        for handle in (first, second, both):
            done(handle)
        assert [part.operator for part in both.parts] == ["map", "numbers"]
        assert owners(run).parts.keys() == {0}
        begun = {event.operator for event in run.events.of("migration begun")}
        assert begun == {"counter", "map", "numbers"}
        end(run)


NONSENSE: list[tuple[tuple[Any, ...], str]] = [
    (("countr", 2), "there is no operator 'countr'"),
    (("counter", 257), "cannot have 257 instances"),
    (("counter",), "migrate 'counter' to what"),
    (("counter", {7: [256]}), "there is no slot 256"),
    (("counter", 2, "quick"), "migrate: strategy is 'quick'"),
    (("counter", passed_on("counter")), "counter has one instance"),
    (({},), "there is nothing to migrate"),
]


def test_what_makes_no_sense_is_refused_before_anything_moves(host: Host) -> None:
    with running(host) as run:
        for arguments, message in NONSENSE:
            with pytest.raises(UserError, match=message):
                run.migrate(*arguments)
        with pytest.raises(UserError, match="the moves of counter: slot is 256 in row 2"):
            run.migrate_stream("counter", [{"time": 1, "slot": slot, "instance": 1} for slot in (0, 256)])
        with pytest.raises(UserError, match="neither an operator nor an instance"):
            run.handover("counter[x]")
        assert run.migrations() == ()
        end(run)


# -- failures ---------------------------------------------------------------------------------------------------------


def holder_of_counter(run: Run) -> str:
    found = run.manager_process.backup_of(InstanceId("counter", 0))
    assert found is not None
    return found.holders[0]


@pytest.mark.parametrize(
    "strategy",
    [Strategy.BATCHED, *(pytest.param(s, marks=pytest.mark.acceptance) for s in (Strategy.FLUID, Strategy.OPTIMISED))],
)
def test_origin_target_and_holder_may_be_killed_between_any_steps(host: Host, strategy: Strategy) -> None:
    with running(host, spare=4) as run:
        committed(run, 30)
        handle = run.migrate("counter", {1: range(24)}, strategy, batch=2)
        moving(handle, 2)
        run.kill("counter[1]")
        moving(handle, 5)
        wait_until(lambda: bool(run.events.of("recovered")), LONG)
        run.kill("counter[0]")
        wait_until(lambda: len({e.instance for e in run.events.of("recovered")}) == 2, LONG)
        run.kill(holder_of_counter(run))
        done(handle)
        assert owners(run).parts[1].array.tolist() == list(range(24))
        end(run)


def test_the_slots_of_a_target_that_is_drained_go_to_its_heir(host: Host) -> None:
    with running(host, spare=4) as run:
        committed(run, 20)
        handle = run.migrate("counter", {1: range(24)}, "fluid", gap_epochs=5)
        moving(handle, 2)
        idle(run)
        run.drain(run.placement["counter[1]"])
        done(handle)
        wait_until(lambda: bool(run.events.of("drained")), LONG)
        parts = owners(run).parts
        assert parts.keys() == {0, 2}
        assert parts[2].array.tolist() == list(range(24))
        end(run)


# -- streams of moves -------------------------------------------------------------------------------------------------


def test_moves_come_from_a_file_at_their_times(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "moves.csv"
    path.write_text("time,slot,instance\n0.5,0,1\n0.5,1,1\n1.0,2,1\n1.2,0,0\n")
    with running(host) as run:
        handle = run.migrate_stream("counter", path)
        done(handle)
        assert owners(run).parts[1].array.tolist() == [1, 2]
        times = [step["announced"] for step in run.report()["migrations"][0]["timeline"]]
        assert len(times) == 3
        assert all(at >= moment for at, moment in zip(times, (0.5, 1.0, 1.2), strict=True))
        end(run)


def test_moves_of_a_table_are_effective_at_their_epochs(host: Host) -> None:
    with running(host) as run:
        first = run.status().ticked + 200
        epochs = [first, first + 1, first + 7]
        handle = run.migrate_stream("counter", pa.table({"epoch": epochs, "slot": [5, 6, 7], "instance": [1, 1, 1]}))
        done(handle)
        assert [step["epoch"] for step in run.report()["migrations"][0]["timeline"]] == epochs
        end(run)


# -- one mechanism ----------------------------------------------------------------------------------------------------


def test_scaling_goes_by_the_strategy_that_was_chosen(host: Host) -> None:
    with running(host, migration=MigrationSettings(strategy=Strategy.BATCHED, batch=32)) as run:
        committed(run, 20)
        run.scale("counter", 2)
        wait_until(lambda: bool(run.events.of("scaled out")), LONG)
        (migration,) = run.migrations()
        assert (migration.strategy, migration.steps) == ("batched", 4)
        assert not run.events.of("migrated"), "it is told as a scale-out"
        end(run)


def test_scaling_moves_all_at_once_if_nothing_is_chosen(host: Host) -> None:
    with running(host) as run:
        run.scale("counter", 2)
        wait_until(lambda: bool(run.events.of("scaled out")), LONG)
        assert [(each.strategy, each.steps) for each in run.migrations()] == [("all-at-once", 1)]
        end(run)


def test_chaos_scales_migrates_and_hands_over_among_kills(host: Host) -> None:
    def all_done(count: int) -> bool:
        return [each.state for each in run.migrations()] == [MigrationState.DONE] * count

    with running(host, spare=5) as run:
        with Chaos(run, parse_chaos("scale:counter=2@500ms")):
            awaited(run, lambda: all_done(1))
        with Chaos(run, parse_chaos("migrate:counter=batched@100ms,kill:counter[1]@300ms")) as chaos:
            awaited(run, lambda: not chaos.pending and all_done(2))
        with Chaos(run, parse_chaos("handover:counter[0]@100ms")):
            awaited(run, lambda: all_done(3))
        assert not run.events.of("strike failed")
        assert owners(run).parts.keys() == {1, 2}
        end(run)


def test_a_run_is_migrated_from_outside(host: Host) -> None:
    with running(host) as run:
        committed(run, 20)
        console = Console(record=True, width=200)
        migrate(find(run.id), "counter", 2, console, strategy="batched", batch=64)
        assert "migrated counter in" in console.export_text()
        assert len(owners(run).parts) == 2
        migrate(find(run.id), "counter", 1, console, wait=False, at="1h")
        assert "counter goes to 1 instance" in console.export_text()
        with pytest.raises(UserError, match="there is no operator 'countr'"):
            migrate(find(run.id), "countr", 2, console)
        end(run)
