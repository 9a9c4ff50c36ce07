"""`seep deploy gcp` from the command line, with a cluster file, at a loopback API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from seep.cli.app import app
from tests.deploy.gce_server import GceServer


@pytest.fixture
def server() -> Iterator[GceServer]:
    with GceServer() as server:
        yield server


@pytest.fixture
def deploy(server: GceServer, tmp_path: Path) -> Callable[..., Result]:
    """Runs `seep deploy gcp` with the file for that server, and with what a test adds to it."""

    def run(*words: str, **more: Any) -> Result:
        access = {"project": server.project, "endpoint": server.url, "patience": "50ms"}
        pins = tmp_path / "pins.txt"
        pins.write_text("numpy==2.0.0\n", encoding="utf-8")
        file = tmp_path / "gcp.yaml"
        content = {"name": "demo", "environment": str(pins), **access, **more}
        file.write_text(yaml.safe_dump({"gcp": content}), encoding="utf-8")
        return CliRunner().invoke(app, ["deploy", "gcp", *words, "--config", str(file)])

    return run


def test_a_dry_run_says_the_plan_and_what_it_costs_and_makes_nothing(
    server: GceServer, deploy: Callable[..., Result]
) -> None:
    done = deploy("up", "--dry-run", hourly={"e2-standard-2": 0.07})
    assert done.exit_code == 0
    assert "create instance seep-demo-worker-2" in done.stdout
    assert "instance seep-demo-master: $0.070 per hour" in done.stdout
    assert "in all: $0.210 per hour" in done.stdout
    assert server.changes() == []
    assert "in all: unknown" in deploy("up", "--dry-run").stdout


def test_up_status_scale_and_down_are_a_round_trip(server: GceServer, deploy: Callable[..., Result]) -> None:
    assert "6 resources made" in deploy("up").stdout
    assert "nothing to do" in deploy("up").stdout
    status = deploy("status").stdout
    assert "Spark master: spark://seep-demo-master:7077" in status
    assert server.things["instances"]["seep-demo-worker-1"]["id"] in status
    assert "1 worker changed" in deploy("scale", "--workers", "3").stdout
    assert "instances/seep-demo-worker-3" in server.names()
    assert "7 resources removed" in deploy("down", "--yes").stdout
    assert server.names() == set()


def test_an_up_that_was_broken_off_is_continued(server: GceServer, deploy: Callable[..., Result]) -> None:
    server.silent_from = 20
    broken = deploy("up")
    assert broken.exit_code == 2
    assert "cannot reach Google Cloud" in broken.stderr
    server.obey()
    server.settle()
    assert deploy("up").exit_code == 0
    assert len(server.names()) == 6


def test_a_quota_error_is_one_line_and_an_exit_code(server: GceServer, deploy: Callable[..., Result]) -> None:
    server.fail("POST .*/instances", "QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 8.0")
    done = deploy("up")
    assert done.exit_code == 2
    assert "Limit: 8.0; ask for fewer or smaller VMs" in done.stderr
    assert "Traceback" not in done.output


def test_a_wrong_setting_is_named_with_its_path(deploy: Callable[..., Result]) -> None:
    done = deploy("up", machines={"workers": "many"})
    assert done.exit_code == 1
    assert "machines.workers is 'many'" in done.stderr
