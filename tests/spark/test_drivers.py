"""Drivers in processes of their own: on a Standalone cluster that loses an executor, and ended in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seep.channels.process import ProcessId
from seep.spark.standalone import LocalCluster
from tests.spark.beacons import await_beacon
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


class Driver:
    """A running `driver.py`; its files and those of its Spark are below `directory`."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", str(directory), *arguments],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def says(self) -> dict[str, Any]:
        """The next thing that it says."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        said: dict[str, Any] = json.loads(line)
        return said

    def asked(self, question: str) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.says()


@contextmanager
def driver(directory: Path, *arguments: str) -> Iterator[Driver]:
    running = Driver(directory, *arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.mark.parametrize(
    "ending",
    [*(pytest.param(by, marks=pytest.mark.acceptance) for by in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
    ids=lambda it: it.name,
)
def test_however_a_driver_ends_no_node_and_no_jvm_is_left_and_spark_was_quiet(tmp_path: Path, ending: int) -> None:
    with driver(tmp_path) as running:
        said = running.says()
        nodes = [await_beacon(tmp_path, order).process for order in said["orders"]]
        processes = [*nodes, *map(ProcessId.of, said["jvms"])]
        os.killpg(running.process.pid, ending)
        _, errors = running.process.communicate(timeout=120)
        assert eventually(lambda: not any(process.alive() for process in processes), 30.0)
    assert [line for line in errors.splitlines() if "WARN" in line or "log4j" in line or "Spark" in line] == []


@pytest.mark.acceptance
def test_a_driver_that_stops_leaves_no_file(tmp_path: Path) -> None:
    with driver(tmp_path) as running:
        orders = running.says()["orders"]
        for order in orders:
            await_beacon(tmp_path, order)
        output, errors = running.process.communicate(timeout=120)
        assert running.process.returncode == 0, errors
        assert json.loads(output.splitlines()[-1]) == {"left": []}
        assert errors == ""
    assert {path.name for path in tmp_path.iterdir()} == {f"{order}.0" for order in orders}


@pytest.mark.acceptance
def test_a_node_on_a_lost_executor_comes_again_on_the_interface_of_another(tmp_path: Path) -> None:
    with LocalCluster(workers=2, cores=2) as cluster:
        with driver(tmp_path, cluster.master) as running:
            said = running.says()
            assert said["slots"] == 4
            first = {order: await_beacon(tmp_path, order) for order in said["orders"]}
            assert {node.host for node in first.values()} == set(cluster.hosts)

            lost = next(iter(first.values())).host
            [executor] = cluster.executors()[lost]
            os.kill(executor, signal.SIGKILL)
            hit = [order for order, node in first.items() if node.host == lost]
            again = {order: await_beacon(tmp_path, order, attempt=1) for order in hit}

            assert not any(first[order].process.alive() for order in hit)
            assert all(node.process.alive() for node in again.values())
            assert all("executor" in running.asked(order)["failures"][0] for order in hit)
            output, errors = running.process.communicate(timeout=120)
            assert running.process.returncode == 0, errors
            assert json.loads(output.splitlines()[-1]) == {"left": []}
        daemons = [ProcessId.of(daemon.pid) for daemon in cluster._daemons.values()]
    assert not any(process.alive() for process in daemons)
    assert not cluster._directory.exists()
