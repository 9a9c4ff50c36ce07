"""The wheel as a user has it: installed by pip with nothing but what it asks for, and run outside of the checkout.

Once with the versions of requirements.lock, and once with the lowest that `setup.py` allows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.distribution.wheels import ROOT, asked_for, build_environment, locked, lowest

pytestmark = [pytest.mark.installed, pytest.mark.timeout(600, func_only=False)]

#: Extra -> what code of ours imports of it.
EXTRAS = {
    "cloud": ["boto3", "google.cloud.compute_v1"],
    "dashboard": ["duckdb", "fastapi", "uvicorn"],
    "disk": ["rocksdict"],
    "metrics": ["prometheus_client"],
    "otlp": ["opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"],
    "pandas": ["pandas"],
}
#: What the lowest versions must do: state, keys, messages, files, settings, windows and joins.
FOR_LOWEST = [
    "tests/formats/test_blob.py",
    "tests/formats/test_column_bytes.py",
    "tests/primitives/test_frame.py",
    "tests/primitives/test_hashing.py",
    "tests/primitives/test_spill.py",
    "tests/operators/test_joins.py",
    "tests/config/test_files.py",
    "tests/policies/test_migration.py",
    "tests/runtime/test_wire.py",
    "tests/runtime/test_security.py",
]
#: What is skipped where pandas is not installed, as it is not where all tests run; it needs a new pyspark's test kit.
WITH_PANDAS = ["tests/spark/test_spark_processors.py"]
#: What tests do that old libraries refuse: half floats of Python's numbers, and a client's header that is no text, at
#: which the process of an older Flight client ends.
ONLY_NEWER = ["halffloat", "test_every_verb_is_refused"]


class Environment(NamedTuple):
    """A virtual environment, and a directory outside of the checkout to run things in."""

    home: Path
    outside: Path
    constraints: Path

    def install(self, *what: str) -> None:
        """Has pip install something within the constraints, and see that all fits together."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        install = ["install", "--quiet", "--no-compile", "--constraint", str(self.constraints)]
        for command in ([*pip, *install, *what], [*pip, "check"]):
            done = subprocess.run(
                command, env=build_environment(self.home), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr

    def run(self, *command: str, cwd: Path | None = None) -> str:
        """What a program of the environment says; fails if it does."""
        program, *arguments = command
        own = {"PATH": f"{self.python.parent}:{os.environ['PATH']}", "NUMBA_CACHE_DIR": str(self.home / "numba")}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(self.python.with_name(program)), *arguments],
            cwd=cwd or self.outside,
            env=inherited | own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
        return done.stdout + done.stderr

    @property
    def is_lowest(self) -> bool:
        return self.home.parent.name.startswith("lowest")

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"


def pins_of(name: str, wheel: Path) -> Sequence[str]:
    return locked() if name == "locked" else lowest(asked_for(wheel))


@pytest.fixture(scope="module", params=["locked", "lowest"])
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """With the wheel in it; removed in the end, as it is large."""
    scratch = tmp_path_factory.mktemp(request.param)
    made = Environment(scratch / "environment", scratch / "outside", scratch / "constraints.txt")
    made.outside.mkdir()
    made.constraints.write_text("\n".join(pins_of(request.param, wheel)))
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made.home)], check=True)
        made.install(str(wheel))
        yield made
    finally:
        shutil.rmtree(scratch)


def test_it_has_the_versions_that_it_should_have(environment: Environment) -> None:
    pins = dict(pin.lower().split("==") for pin in environment.constraints.read_text().split())
    program = "from importlib.metadata import distributions\nfor d in distributions(): print(d.name.lower(), d.version)"
    has = dict(line.split() for line in environment.run("python", "-c", program).splitlines())
    assert {"seep-streaming", "pyspark", "pyarrow"} <= set(has)
    assert [name for name, version in has.items() if name in pins and not version.startswith(pins[name])] == []
    extra = {"pytest", "boto3", "pandas", "rocksdict", "prometheus-client"}
    assert not extra & set(has), "what is asked for to run is all there is"


def test_the_doctor_finds_nothing_missing(environment: Environment) -> None:
    said = environment.run("seep", "doctor")
    assert f"packages   ours, in {environment.home}" in said
    assert "fail" not in said


def test_an_example_runs_on_nodes(environment: Environment) -> None:
    shutil.copy(ROOT / "examples" / "wordcount.py", environment.outside / "words.py")
    said = environment.run("seep", "run", "words.py:query", "--parallelism", "counter=2")
    assert "60,000 rows in " in said


def test_the_settings_files_and_the_scripts_of_the_clouds_are_there(environment: Environment) -> None:
    assert "fine" in environment.run("seep", "config", "check", "config/linear-road.yaml", "config/gcp.yaml")
    assert "| `scaling.policy` |" in environment.run("seep", "config", "schema", "policy", "--table")
    program = "from seep.deploy.startup import worker_script; print(worker_script('https://example.org/pins', 'm', 2))"
    assert "org.apache.spark.deploy.worker.Worker" in environment.run("python", "-c", program)


def test_what_is_missing_names_the_extra_that_has_it(environment: Environment) -> None:
    program = "from vmpool.aws import client\ntry: client._library()\nexcept Exception as reason: print(reason)"
    assert "pip install 'seep-streaming[cloud]'" in environment.run("python", "-c", program)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_is_imported_of_it(environment: Environment, wheel: Path, extra: str) -> None:
    environment.install(f"{wheel}[{extra}]")
    environment.run("python", "-c", f"import {', '.join(EXTRAS[extra])}")


def test_the_tests_pass(environment: Environment, wheel: Path) -> None:
    tools = [pin for pin in locked() if pin.partition("==")[0] in ("pytest", "pytest-timeout", "hypothesis")]
    environment.install(f"{wheel}[disk,pandas]", *tools)
    # Warnings of old libraries, some of them where they are compiled first, are no errors of ours.
    chosen = ["-p", "no:cacheprovider", "-W", "default", "-k", f"not {' and not '.join(ONLY_NEWER)}"]
    files = FOR_LOWEST if environment.is_lowest else WITH_PANDAS
    said = environment.run("python", "-m", "pytest", "-v", *chosen, *files, cwd=ROOT)
    assert " passed" in said
    assert " skipped" not in said
