"""`seep deploy ec2`, against a real server for Amazon's interfaces on loopback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from seep.cli.app import app
from tests.deploy.ec2_kit import everything, running, section, tags_of, written

runner = CliRunner()


def seep(path: Path, *words: str, answer: str | None = None) -> Result:
    return runner.invoke(app, ["deploy", "ec2", *words, "--config", str(path)], input=answer)


def lines(path: Path, *words: str) -> list[str]:
    """Of a command that ends well."""
    done = seep(path, *words)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.fixture
def config(endpoint: str, tmp_path: Path) -> Path:
    return written(tmp_path, section(endpoint))


def test_the_life_of_a_cluster(config: Path, endpoint: str) -> None:
    before = everything(endpoint)
    assert lines(config, "status")[-1] == "no master"
    up = lines(config, "up")
    assert up[0] == "[1/9] create role seep-demo-eu-west-1-worker"
    assert "9 resources made" in up
    master = up[-2].removeprefix("Spark master: ")
    assert re.fullmatch(r"spark://[\d.]+:7077", master)
    assert up[-1] == f"on the master: seep run MODULE:QUERY --master {master}"
    assert "nothing to do" in lines(config, "up")
    assert sum(" not there" in line for line in lines(config, "status")) == 0
    assert lines(config, "scale", "--workers", "3")[-1] == "1 worker changed"
    assert len(running(endpoint)) == 4
    assert lines(config, "down", "--yes")[-1] == "9 resources removed"
    assert everything(endpoint) == before
    assert lines(config, "down") == ["nothing to do"]


def test_a_dry_run_prints_the_plan_and_the_cost_and_makes_nothing(endpoint: str, tmp_path: Path) -> None:
    before = everything(endpoint)
    config = written(tmp_path, section(endpoint, hourly={"m6i.large": 0.1}))
    said = lines(config, "up", "--dry-run")
    assert [line.split()[0] for line in said[:9]] == ["create"] * 9
    assert said[9:] == [
        "master (m6i.large): $0.100 per hour",
        "2 workers (m6i.large): $0.200 per hour",
        "in all: $0.300 per hour, and disks and traffic",
    ]
    assert lines(config, "scale", "--workers", "5", "--dry-run") == ["scale demo to 5 workers"]
    assert everything(endpoint) == before


def test_a_price_that_the_file_does_not_have_is_unknown(config: Path) -> None:
    assert lines(config, "up", "--dry-run")[-1] == "in all: unknown"


def test_down_asks_and_a_dry_run_of_it_removes_nothing(config: Path, endpoint: str) -> None:
    lines(config, "up")
    before = everything(endpoint)
    assert lines(config, "down", "--dry-run")[0] == "delete 2 workers (m6i.large)"
    refused = seep(config, "down", answer="n\n")
    assert refused.exit_code == 1
    assert "Remove " in refused.output
    assert everything(endpoint) == before
    assert seep(config, "down", answer="y\n").exit_code == 0
    assert running(endpoint) == []


def test_the_command_itself_brings_a_cluster_up(config: Path, endpoint: str) -> None:
    command = [
        sys.executable,
        "-c",
        "from seep.cli import main; main()",
        "deploy",
        "ec2",
        "up",
        "--config",
        str(config),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(tags_of(each)["seep:vm"] for each in running(endpoint)) == ["master", "worker-1", "worker-2"]


def test_missing_credentials_are_the_surroundings_fault(config: Path, without_credentials: pytest.MonkeyPatch) -> None:
    without_credentials.delenv("AWS_ACCESS_KEY_ID")
    without_credentials.delenv("AWS_SECRET_ACCESS_KEY")
    done = seep(config, "up")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("environment: ")
    assert "no credentials were found" in done.stderr


def test_an_image_that_is_not_there_is_the_users_fault_and_what_was_made_can_be_taken_down(
    endpoint: str, tmp_path: Path
) -> None:
    before = everything(endpoint)
    config = written(tmp_path, section(endpoint, image="ami-0123456789abcdef0"))
    done = seep(config, "up")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: image of launch template seep-demo-master")
    assert everything(endpoint) != before
    lines(config, "down", "--yes")
    assert everything(endpoint) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"gcp": {}}, "it must have the section ec2: and nothing else; found gcp"),
        ({"ec2": {}, "run": {}}, "found ec2, run"),
        ([], "found no section"),
        ({"ec2": {"machines": {"workers": -1}}}, "ec2: machines.workers is -1"),
        ({"ec2": {"machines": {"master_type": "a"}}}, "machines.master_type is unknown; known are master, worker"),
        ({"ec2": {"region": "Ireland"}}, "ec2: region is 'Ireland'"),
    ],
)
def test_a_file_that_is_wrong_is_told_by_its_field(content: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    done = seep(path, "up")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: cluster file {path}: ")
    assert words in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = seep(tmp_path / "no.yaml", "up")
    assert done.exit_code == 1
    assert "no.yaml cannot be read" in done.stderr


@pytest.mark.parametrize("words", [["deploy"], ["deploy", "ec2"], ["deploy", "ec2", "up"], ["deploy", "gcp", "down"]])
def test_help_is_quick_to_have(words: list[str]) -> None:
    heavy = ["boto3", "botocore", "google", "numpy", "pyarrow", "pyspark"]
    program = (
        "import sys; from seep.cli.app import app\n"
        f"try: app([*{words}, '--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        f"sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
    assert "Usage: " in done.stdout
