"""Whole programs with DataFrames in and out, each in a process of its own: chaos, a cluster, spark-submit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.small import SUBMITTED

ROOT = Path(__file__).parents[2]


def said_by(*command: str, cwd: Path = ROOT, home: Path) -> str:
    environment = os.environ | {"TMPDIR": str(home), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-10_000:]
    return done.stdout


def told_by(driver: str, home: Path) -> dict[str, Any]:
    """What a driver says at last."""
    told: dict[str, Any] = json.loads(said_by(sys.executable, "-m", driver, home=home).splitlines()[-1])
    return told


@pytest.mark.acceptance
def test_results_are_exact_row_for_row_whatever_fails_and_whoever_restarts(tmp_path: Path) -> None:
    told = told_by("tests.spark.chaos", tmp_path)
    assert told == {
        "equal": True,
        "healed": [True, True],
        "read": [True, True],
        "refused": True,
        "failed": ["broke off", "pushed"],
    }


@pytest.mark.acceptance
def test_tasks_on_the_executors_of_a_cluster_push_to_nodes_on_others(tmp_path: Path) -> None:
    told = told_by("tests.spark.in_on_standalone", tmp_path)
    assert told == {"exact": [True, True], "hosts": ["127.0.0.2", "127.0.0.3"]}


@pytest.mark.acceptance
def test_the_example_runs_with_spark_submit(tmp_path: Path) -> None:
    submit = shutil.which("spark-submit", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert submit is not None
    example = str(ROOT / "examples" / "spark_pipeline.py")
    form = ("--master", "local[16]", *SUBMITTED, example, "--in", "one_line")
    said = said_by(submit, *form, cwd=tmp_path, home=tmp_path)
    assert len(re.findall(r"^s\d+: 22 seconds$", said, re.MULTILINE)) == 20
