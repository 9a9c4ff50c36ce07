"""Restart: how long a query takes from a new process to its first output, when it goes on from a savepoint with other
instances. Drivers, Spark and nodes are processes of their own, and the files of the savepoint are in the page cache."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import seep
from benchmarks.restart_driver import ROW

_ROOT = Path(__file__).resolve().parent.parent


def run(nbytes: int) -> dict[str, float]:
    """From a savepoint of so many bytes."""
    with tempfile.TemporaryDirectory() as directory:
        saved = _drive("save", directory, nbytes // ROW)
        files = (path.stat().st_size for path in Path(directory, "savepoints").rglob("*") if path.is_file())
        size = sum(files)
        begin = time.time()
        reached = _drive("restore", directory, nbytes // ROW)
    return {
        "restart_savepoint_mb": size / 1e6,
        "restart_savepoint_s": saved["savepoint_s"],
        "restart_first_output_s": reached["output"] - begin,
        "restart_imports_s": reached["main"] - begin,
        "restart_manifest_s": reached["Spark"] - reached["main"],
        "restart_spark_s": reached["nodes"] - reached["Spark"],
        "restart_nodes_s": reached["query"] - reached["nodes"],
        "restart_state_s": reached["restored"] - reached["query"],
        "restart_first_epoch_s": reached["output"] - reached["restored"],
    }


def _drive(what: str, directory: str, keys: int) -> dict[str, float]:
    """Runs a driver, and returns the figures in the last line of its output."""
    command = [sys.executable, "-m", "benchmarks.restart_driver", what, directory, str(keys)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise seep.InternalError(f"the driver that was to {what} exited with {done.returncode}:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
