"""Drivers in processes of their own, ended in every way."""

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

from seep.spark.process import Process
from tests.spark.beacons import await_beacon, eventually

ROOT = Path(__file__).parents[2]


class Driver:
    """A running `driver.py`; its files and those of its Spark are below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", str(directory)],
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


@contextmanager
def driver(directory: Path) -> Iterator[Driver]:
    running = Driver(directory)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda it: it.name)
def test_however_a_driver_ends_no_node_and_no_jvm_is_left_and_spark_was_quiet(tmp_path: Path, ending: int) -> None:
    with driver(tmp_path) as running:
        said = running.says()
        nodes = [await_beacon(tmp_path, order).process for order in said["orders"]]
        processes = [*nodes, *map(Process.of, said["jvms"])]
        os.killpg(running.process.pid, ending)
        _, errors = running.process.communicate(timeout=120)
        assert eventually(lambda: not any(process.alive() for process in processes), 30.0)
    assert [line for line in errors.splitlines() if "WARN" in line or "log4j" in line or "Spark" in line] == []


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
