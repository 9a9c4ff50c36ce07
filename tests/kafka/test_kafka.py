"""Clicks from a real Kafka and their counts back to it, while its broker and an ingress node are killed.

The program is stopped in between and started again; the counts are exact.

Where the registry of packages answers; elsewhere it says that it was not run. `make test-kafka` runs it alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.kafka
def test_counts_of_clicks_in_kafka_are_exact_when_broker_and_node_are_killed_and_the_program_is_started_again(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kafka.pipeline"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-10_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    if "not run" in told:
        pytest.skip(f"NOT RUN, the packages could not be had: {told['not run']}")
    assert told == {"lost": 1, "goes on": True, "read": 6_000, "late": 0, "equal": True, "alike": True}
