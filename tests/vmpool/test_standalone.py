"""The provider `standalone` with a real Spark: workers come as VMs, one is killed, all go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primitives.errors import UserError
from vmpool.provider import ProviderError
from vmpool.standalone import StandaloneProvider, from_settings

ROOT = Path(__file__).parents[2]

#: Executors only start nodes here: a third of their start is the work of compilers and collectors that never pay off.
FRUGAL = "--conf spark.executor.extraJavaOptions='-XX:+UseSerialGC -XX:TieredStopAtLevel=1' pyspark-shell"


@pytest.mark.acceptance
def test_nodes_run_on_vms_of_the_pool_and_one_that_is_killed_is_replaced(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    driver = subprocess.run(
        [sys.executable, "-m", "tests.vmpool.on_standalone", str(nodes)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": FRUGAL},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert driver.returncode == 0, driver.stderr
    told = json.loads(driver.stdout.splitlines()[-1])
    assert told["before"].keys() == {"vm-1", "vm-2"}
    assert set(told["before"].values()) == {"127.0.0.2", "127.0.0.3"}
    assert told["after"] == {"vm-2": told["before"]["vm-2"], "vm-3": "127.0.0.4"}
    assert told["lost"] == ["vm-1"]
    assert told["closed"]
    assert told["left"] == 0
    assert told["files"] == []
    assert told["vms"] == ["vm-1", "vm-2", "vm-3"]


def test_a_master_of_another_kind_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"the master is local\[4\].*spark://.*or choose provider spark"):
        from_settings({}, run="r", master="local[4]", nodes_per_vm=1)


def test_an_unknown_setting_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"pool\.settings: cores is unknown; known are memory, first_host, timeout"):
        from_settings({"cores": 4}, run="r", master="spark://127.0.0.1:7077", nodes_per_vm=1)


def test_a_worker_that_does_not_start_is_told_with_what_it_said_last_and_leaves_nothing() -> None:
    provider = StandaloneProvider("spark://no-such-host.invalid", cores=1)
    try:
        with pytest.raises(ProviderError, match=r"(?s)daemon at 127\.0\.0\.2 ended.*Invalid master URL") as failed:
            provider.start("vm-1")
        assert failed.value.again
        assert provider.pids() == {}
    finally:
        provider.close()


def test_a_provider_that_is_closed_starts_nothing() -> None:
    provider = StandaloneProvider("spark://127.0.0.1:1", cores=1)
    provider.close()
    with pytest.raises(ProviderError, match="not needed any more") as refused:
        provider.start("vm-1")
    assert not refused.value.again
