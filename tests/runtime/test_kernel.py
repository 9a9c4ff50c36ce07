"""Cells in a real Jupyter kernel: what they show, a cell that is run again, and what is left when the kernel ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.manager import KernelManager

from tests.reports.test_notebook import Seen
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
#: Seconds that a cell may take.
PATIENCE = 150.0

QUERY = """
import numpy as np
import pyarrow as pa
import seep

def numbers(partition, first, count):
    return {"n": np.arange(first, first + count, dtype=np.int64)}

query = seep.Query("counting")
source = query.source("numbers", seep.sources.generator(numbers, pa.schema([("n", pa.int64())])))
counts = source.map("map", lambda batch: {"key": batch["n"].to_numpy() % 7, "n": batch["n"]})
totals = counts.key_by("key").aggregate("counter", n=seep.count(), emit="end")
totals.sink("out", seep.sinks.collect())
"""
LAUNCH = "seep.launch(query, spark, rate=seep.Rate(2000), epoch=0.05, spare=1{more})"


@dataclass
class Cell:
    """What a cell has given."""

    shown: dict[str, str] = field(default_factory=dict)  #: the data of its last expression, by type
    written: str = ""  #: to stdout and stderr
    error: str = ""

    @property
    def seen(self) -> Seen:
        return Seen(self.shown["text/html"])


@dataclass
class Kernel:
    """A kernel of the installed kind, whose processes all have a mark in their environment."""

    home: Path
    manager: KernelManager
    client: Any
    mark: str

    def run(self, code: str) -> Cell:
        """Runs a cell that must not fail."""
        cell = self.attempt(code)
        assert not cell.error, cell.error
        return cell

    def attempt(self, code: str) -> Cell:
        asked, cell, deadline = self.client.execute(code), Cell(), time.monotonic() + PATIENCE
        while True:
            message = self._next(deadline)
            content = message["content"]
            if message["parent_header"].get("msg_id") != asked:
                continue
            match message["msg_type"]:
                case "execute_result" | "display_data":
                    cell.shown = content["data"]
                case "stream":
                    cell.written += content["text"]
                case "error":
                    cell.error = f"{content['ename']}: {content['evalue']}"
                case "status" if content["execution_state"] == "idle":
                    return cell

    def value(self, expression: str) -> Any:
        """The value of an expression of plain data."""
        return eval(self.run(expression).shown["text/plain"], {})

    def _next(self, deadline: float) -> Any:
        while True:
            with suppress(Empty):
                return self.client.get_iopub_msg(timeout=1.0)
            assert self.manager.is_alive(), "the kernel has ended"
            assert time.monotonic() < deadline, "a cell takes too long"

    def processes(self) -> dict[int, str]:
        """Its own and all that were started from it, with their command lines."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (path / "environ").read_bytes():
                    found[int(path.name)] = (path / "cmdline").read_bytes().decode().replace("\0", " ")[:120]
        return found

    def kill(self) -> None:
        """Kills it with -9; what it has started ends by itself, and no run is listed."""
        os.kill(self.manager.provisioner.pid, signal.SIGKILL)
        assert eventually(lambda: not self.processes()), self.processes()
        assert "counting" not in self.listed()

    def files(self) -> list[str]:
        """Names in its directory for temporary files."""
        return sorted(path.name for path in (self.home / "tmp").iterdir())

    def listed(self) -> str:
        """What `seep runs` says."""
        code = "import sys; from seep.cli import main; sys.argv = ['seep', 'runs']; main()"
        environment = {**os.environ, "SEEP_HOME": str(self.home / "seep")}
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, check=True, cwd=ROOT
        ).stdout


@contextmanager
def kernel(home: Path) -> Iterator[Kernel]:
    (home / "tmp").mkdir()
    mark = f"SEEP_TEST_KERNEL={uuid.uuid4().hex}"
    places = {"TMPDIR": "tmp", "SEEP_HOME": "seep", "JUPYTER_RUNTIME_DIR": "jupyter", "IPYTHONDIR": "ipython"}
    environment = {**os.environ, **{name: str(home / place) for name, place in places.items()}}
    environment |= {
        "SPARK_LOCAL_DIRS": str(home / "tmp"),
        "PYTHONPATH": str(ROOT),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    environment[mark.partition("=")[0]] = mark.partition("=")[2]
    manager = KernelManager(kernel_name="python3", connection_file=str(home / "connection.json"))
    manager.shutdown_wait_time = 60.0
    manager.start_kernel(env=environment, cwd=str(home))
    client = manager.blocking_client()
    client.start_channels()
    made = Kernel(home, manager, client, mark)
    try:
        client.wait_for_ready(timeout=100)
        yield made
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        manager.context.destroy(linger=0)
        for pid in made.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def nodes_of(kernel: Kernel) -> list[int]:
    """The processes of the nodes of its runs."""
    return kernel.value("[node.process.pid for run in seep.runs() for node in run.nodes.values()]")


def test_cells_show_a_query_and_its_run_and_say_which_run_is_still_there(tmp_path: Path) -> None:
    with kernel(tmp_path) as notebook:
        notebook.run(QUERY)
        shown = notebook.run("query").seen
        assert "svg" in shown.tags
        assert {"numbers", "map", "counter", "out"} <= set(shown.text.split())
        assert "key" in notebook.run("counts").seen.text
        assert "table" in notebook.run("counts.preview(rows=3)").seen.tags
        notebook.run(
            "from pyspark.sql import SparkSession\n"
            "spark = SparkSession.builder.master('local[16]').config('spark.ui.enabled', False).getOrCreate()"
        )

        notebook.run(f"run = {LAUNCH.format(more='')}")
        first = notebook.value("run.id")
        assert first in notebook.listed()
        assert f"run {first} of query counting: running" in notebook.run("run").seen.text
        handle = notebook.run("handle = run.migrate('counter', 2)\nhandle.wait(120)\nhandle").seen
        assert "counter: done" in handle.text
        assert "iframe" in notebook.run("run.report()").seen.tags

        again = notebook.run(f"second = {LAUNCH.format(more='')}")
        assert f"run {first} of query 'counting', which this program has launched before, still runs" in again.written
        assert "replace=True" in again.written
        assert notebook.value("len(seep.runs())") == 2
        assert notebook.run(f"run = {LAUNCH.format(more=', replace=True')}").written == ""
        last = notebook.value("[run.id for run in seep.runs()]")
        assert len(last) == 1
        assert first not in last

        assert nodes_of(notebook)
        assert set(nodes_of(notebook)) <= notebook.processes().keys()
        notebook.kill()
        assert [name for name in notebook.files() if name.startswith("seep")] == []


def test_a_run_with_a_session_of_its_own_is_replaced_if_asked_and_a_kernel_that_ends_leaves_nothing(
    tmp_path: Path,
) -> None:
    with kernel(tmp_path) as notebook:
        notebook.run(QUERY + "\nspark = None")
        notebook.run(f"run = {LAUNCH.format(more='')}")
        again = notebook.attempt(f"run = {LAUNCH.format(more='')}")
        assert again.error.startswith("UserError: ")
        assert "has its own Spark session in this program" in again.error
        assert notebook.value("[each.phase for each in seep.runs()]") == ["running"]
        notebook.run(f"run = {LAUNCH.format(more=', replace=True')}")
        assert notebook.value("[each.phase for each in seep.runs()]") == ["running"]

        nodes = nodes_of(notebook)
        assert set(nodes) <= notebook.processes().keys()
        assert "counting" in notebook.listed()
        kernel_group = os.getpgid(notebook.manager.provisioner.pid)
        mates = [pid for pid in notebook.processes() if os.getpgid(pid) == kernel_group]
        assert mates == [notebook.manager.provisioner.pid]  # which the kernel does not kill when it ends, but the run
        notebook.manager.shutdown_kernel()
        assert eventually(lambda: not notebook.processes()), notebook.processes()
        assert notebook.files() == []
        assert "counting" not in notebook.listed()


def test_a_killed_kernel_with_a_session_of_its_own_leaves_no_process(tmp_path: Path) -> None:
    with kernel(tmp_path) as notebook:
        notebook.run(QUERY + "\nspark = None")
        notebook.run(f"run = {LAUNCH.format(more='')}")
        assert set(nodes_of(notebook)) <= notebook.processes().keys()
        notebook.kill()
        left = [path.name for path in (tmp_path / "tmp").rglob("*") if path.is_file()]
        assert set(left) <= {"owner.json", "log4j2.properties"}  # which the next run removes
