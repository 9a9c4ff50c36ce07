"""Queries on a real Standalone cluster: workers on addresses of their own; an executor, and a whole VM, killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def outcome(driver: str, directory: Path) -> dict[str, Any]:
    """What a driver says at its end; it must leave no file."""
    ended = subprocess.run(
        [sys.executable, "-m", driver],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in directory.glob("seep-*")] == []
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


def test_a_query_survives_the_loss_of_an_executor_with_all_its_nodes(tmp_path: Path) -> None:
    told = outcome("tests.runtime.on_standalone", tmp_path)
    assert told["equal"]
    assert told["rows"] > 0
    assert told["lost"] >= 1
    assert told["hosts"], "no node was left"
    assert set(told["used"]) <= set(told["logged"]), "each node's lines are in the log of its executor"


@pytest.mark.acceptance
def test_a_query_grows_onto_a_new_vm_and_outlives_the_loss_of_it_which_is_replaced(tmp_path: Path) -> None:
    told = outcome("tests.runtime.on_standalone_vms", tmp_path)
    assert told["equal"]
    assert told["rows"] > 0
    assert told["grown"] not in told["before"], "the new instance is on a VM of its own"
    assert told["grown"] not in told["after"], "its VM is gone"
    assert told["warm"], "the pool has another VM in the place of the one that was used"
    assert told["grown"] not in told["warm"]
    assert told["vm_seconds"] > 0
    assert told["left"] == [], "no worker outlives the run"
