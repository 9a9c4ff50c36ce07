"""Queries on real nodes: processes that Spark hosts, sockets between them, kill -9. The oracle is plain Python."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seep
from primitives.graph import InstanceId
from seep.channels.letters import NodeReady
from seep.channels.sockets import cut_connections
from seep.driver.driver import ManagerProcess
from seep.operators.errors import UserCodeFailed
from seep.protocol.manager.manager import Manager
from seep.rows.position import Position
from seep.running.run import Run
from seep.spark.fleet import Fleet
from seep.spark.session import Host
from tests.runtime.counting import (
    RATE,
    SCHEMA,
    awaited,
    committed,
    counting,
    doubled,
    expected,
    found,
    idle,
    numbers,
    recovered,
    start,
    wait_until,
)


def test_a_finite_query_ends_by_itself_with_exact_results(host: Host) -> None:
    with start(host, counting(rows=100_000)) as run:
        assert run.wait(120)
        assert run.finished
        assert found(run) == expected(run)


def slowly(batch: pa.RecordBatch) -> dict[str, Any]:
    """50,000 rows per second."""
    time.sleep(len(batch) * 20e-6)
    return doubled(batch)


def test_a_source_without_a_rate_does_not_bury_a_slow_query_and_the_window_holds(host: Host, tmp_path: Path) -> None:
    query = seep.Query("slow")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA))
    source.map("map", slowly).sink("out", seep.sinks.parquet(tmp_path / "rows"))
    out = InstanceId("out", 0)

    def look(manager: Manager) -> tuple[int, int]:
        done = manager.log.after(InstanceId("numbers", 0), manager.safe.of(out))[0]
        read = run.manager_process.positions["numbers"]
        rows = [sum(Position(*position).rows for position in of.values()) for of in (read, done)]
        return manager.ticked - manager.safe.of(out), rows[0] - rows[1]

    with start(host, query, epoch=0.05) as run:
        looks: list[tuple[int, int]] = []
        question = partial(look, run.manager_process.manager)
        awaited(run, lambda: looks.append(run.manager_process.on_loop(question)) or run.status().committed > 100)
        assert max(epochs for epochs, _ in looks) <= 16
        assert max(rows for _, rows in looks) <= 4 * 50_000
        run.finish()
        assert run.wait(120)


@pytest.mark.parametrize("victim", ["counter", "map", "numbers", "out"])
def test_the_node_of_any_kind_of_instance_can_be_killed(host: Host, victim: str) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as run:
        committed(run, 30)
        idle(run)
        run.kill(victim)
        recovered(run)
        committed(run, 20)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)
        assert run.events.of("killed", "node lost", "rebound", "recovered")


@pytest.mark.parametrize(
    "victims",
    [
        ("numbers", "counter"),
        *(pytest.param(pair, marks=pytest.mark.acceptance) for pair in (("map", "out"), ("numbers", "map"))),
    ],
)
def test_two_nodes_at_once(host: Host, victims: tuple[str, str]) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=2) as run:
        committed(run, 30)
        idle(run, 2)
        for victim in victims:
            run.kill(victim)
        recovered(run, 2)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)


def test_the_loss_of_state_together_with_its_backup_is_said_and_ends_the_run(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=0) as run:
        committed(run, 30)
        run.kill("counter")
        run.kill("map")  # the only operator upstream of the counter: its node keeps the backup
        with pytest.raises(seep.EnvironmentFault, match=r"'counter'.*counter\[0\] after epoch \d+ is lost"):
            run.wait(120)


def test_a_failure_again_during_the_recovery(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=2) as run:
        committed(run, 30)
        idle(run, 2)
        run.kill("counter")
        wait_until(lambda: len(run.events.of("rebound")) >= 1)
        run.kill("counter")
        recovered(run, 2)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)


def test_a_stopped_node_is_given_up_fenced_and_replaced(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), patience=1.5) as run:
        committed(run, 30)
        idle(run)
        node = run.placement["counter[0]"]
        run.signal(node, signal.SIGSTOP)
        recovered(run)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)
        assert run.events.of("node lost")[0].detail.startswith("silent")


def test_broken_links_mend_themselves_and_no_node_is_lost(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as run:
        for _ in range(5):
            committed(run, 15)
            cut_connections(run.manager_process.address.port)
        committed(run, 15)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)
        assert not run.events.of("node lost")


def test_garbage_at_the_ports_harms_nobody(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as run:
        committed(run, 10)
        for address in (run.manager_process.address, *(record.address for record in run.nodes.values())):
            with socket.create_connection(address, 5) as connection, suppress(OSError):
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(100_000))
        committed(run, 10)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)
        assert not run.events.of("node lost")


def test_files_hold_every_row_once_though_their_writers_are_killed(host: Host, tmp_path: Path) -> None:
    query = seep.Query("files")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=2))
    source.map("map", doubled).sink("out", seep.sinks.parquet(tmp_path / "rows", roll=5))
    with start(host, query, parallelism={"out": 2}, rate=seep.Rate(RATE)) as run:
        for _ in range(2):
            committed(run, 20)
            idle(run)
            run.kill("out[0]")
            recovered(run, len(run.events.of("killed")))
        run.finish()
        assert run.wait(120)
        read = {partition: position[1] for partition, position in run.positions("numbers").items()}
    rows = sorted(seep.sinks.read(tmp_path / "rows")["n"].to_pylist())
    assert rows == sorted(n + partition * 1_000_000 for partition, count in read.items() for n in range(count))


def test_rows_that_user_code_fails_on_become_dead_letters_and_the_rest_goes_on(host: Host) -> None:
    def fails(batch: pa.RecordBatch) -> dict[str, Any]:
        if any(n % 1000 == 777 for n in batch["n"].to_pylist()):
            raise ValueError("not this one")
        return {"n": batch["n"]}

    query = seep.Query("letters", on_error="dead-letters")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=5_000))
    source.map("fragile", fails, SCHEMA).sink("out", seep.sinks.collect())
    with start(host, query) as run:
        assert run.wait(120)
        assert sorted(run.result("out")["n"].to_pylist()) == [n for n in range(5_000) if n % 1000 != 777]
        letters = run.result("dead-letters").to_pylist()
        assert {letter["row"] for letter in letters} == {f'{{"n": {n}777}}' for n in ("", 1, 2, 3, 4)}
        assert len(letters) == 5
        assert {letter["operator"] for letter in letters} == {"fragile"}


def test_recovery_over_two_instances(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), spare=2, recovery_parallelism=2) as run:
        committed(run, 40)
        idle(run, 2)
        run.kill("counter")
        recovered(run)
        committed(run, 10)
        assert {"counter[0]", "counter[1]"} <= run.placement.keys() or len(run.placement) > 4
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)


def test_slots_move_while_the_query_runs(host: Host) -> None:
    from primitives.slots import SlotSet

    with start(host, counting(), rate=seep.Rate(RATE)) as run:
        committed(run, 20)
        run.move("counter", {1: SlotSet.range(0, 128)})
        wait_until(lambda: bool(run.events.of("move complete")))
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)


def test_many_instances_on_few_nodes(host: Host) -> None:
    parallelism = {"numbers": 2, "map": 2, "counter": 3, "out": 2}
    with start(host, counting(rows=50_000, partitions=4), parallelism=parallelism, nodes=2) as run:
        assert run.wait(120)
        assert found(run) == expected(run)


def test_everything_works_encrypted(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE), tls=True) as run:
        committed(run, 30)
        idle(run)
        run.kill("counter")
        recovered(run)
        run.finish()
        assert run.wait(120)
        assert found(run) == expected(run)


def test_an_exception_in_user_code_ends_the_run_and_says_where(host: Host) -> None:
    def fails(batch: pa.RecordBatch) -> dict[str, Any]:
        if 777 in batch["n"].to_pylist():
            raise ValueError("seven seven seven")
        return {"n": batch["n"]}

    query = seep.Query("failing")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, rows=5_000))
    source.map("fragile", fails, SCHEMA).sink("out", seep.sinks.collect())
    with start(host, query) as run:
        with pytest.raises(UserCodeFailed, match="seven seven seven") as caught:
            run.wait(120)
        assert caught.value.rows == [{"n": 777}]
        assert caught.value.operator == "fragile"
        assert "fragile[0]" in str(caught.value)


def test_an_exception_in_the_block_leaves_no_process(host: Host) -> None:
    def fail(run: Run) -> None:
        committed(run, 5)
        assert len(run.nodes) >= 4
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"), start(host, counting(), rate=seep.Rate(RATE)) as run:
        fail(run)  # and `start` looks at what is left


def has_not_joined(process: ManagerProcess) -> bool:
    """Whether there is a node that has registered, and no more."""
    return any(process.nodes[name].process.alive() for name in process.nodes.keys() - process.live_nodes())


def test_nodes_that_come_while_a_run_ends_end_by_themselves_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[bool] = []
    stop, hear = Fleet.stop, ManagerProcess.on_letter

    def noting(fleet: Fleet, *timeout: float) -> tuple[str, ...]:
        killed.extend(record.process.alive() for record in run.manager_process.nodes.values())
        return stop(fleet, *timeout)

    def hear_of_no_more(process: ManagerProcess, peer: str, version: int, body: Any) -> None:
        if not isinstance(body, NodeReady):
            hear(process, peer, version, body)

    monkeypatch.setattr(Fleet, "stop", noting)
    with start(host, counting(), spare=0) as run:
        monkeypatch.setattr(ManagerProcess, "on_letter", hear_of_no_more)
        run.scale("counter", 2)
        awaited(run, lambda: has_not_joined(run.manager_process))
    assert killed
    assert not any(killed)


def test_too_few_task_slots_is_said_before_anything_starts(host: Host) -> None:
    with pytest.raises(seep.EnvironmentFault, match=r"task slots.*ask for fewer"), start(host, counting(), nodes=500):
        pass
