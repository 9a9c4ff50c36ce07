"""A query on a real Standalone cluster: master and two workers on addresses of their own, one executor killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_query_survives_the_loss_of_an_executor_with_all_its_nodes() -> None:
    driver = subprocess.run(
        [sys.executable, "-m", "tests.runtime.on_standalone"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert driver.returncode == 0, driver.stderr
    told = json.loads(driver.stdout.splitlines()[-1])
    assert told["equal"]
    assert told["rows"] > 0
    assert told["lost"] >= 1
    assert told["hosts"], "no node was left"
