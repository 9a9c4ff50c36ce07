"""What the command line prints: the help of every command, and the output of commands that need no Spark."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from primitives.errors import EnvironmentFault
from seep.cli.app import app
from tests.cli.test_doctor import BAD, DOUBTFUL, WELL, Machine

ROOT = Path(__file__).parent.parent.parent
_TERMINAL = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC", "SEEP_HOME": "/no/such/place"}


def helps() -> dict[str, str]:
    """The help of each command, by its name."""
    return {name: output(*name.split()[1:], "--help") for name in sorted(_names(get_command(app), "seep"))}


def _names(command: Any, path: str) -> Iterator[str]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from _names(below, f"{path} {name}")


def outputs(place: Path) -> dict[str, str]:
    """The output of each command line below, in a directory with golden state, a report and settings files."""
    _furnish(place)
    found: dict[str, str] = {}
    for line in LINES:
        title = f"seep {line}" + " (again)" * (f"seep {line}" in found)
        found[title] = _plain(output(*line.replace("PLACE", str(place)).split()), place)
    return found | _doctors()


def _doctors() -> dict[str, str]:
    """What `seep doctor` says of three machines."""
    fault = EnvironmentFault("Spark could not be started: there is no Java; install Java 17, and set JAVA_HOME")
    machines = {
        "all is well": Machine([WELL], [WELL]),
        "something is doubtful, and something wrong": Machine([WELL, DOUBTFUL], [BAD]),
        "Spark does not start": Machine([WELL], [], fault),
    }
    found = {}
    for words, machine in machines.items():
        with pytest.MonkeyPatch.context() as patch:
            found[f"seep doctor, where {words}"] = machine.examined(patch).output
    return found


LINES = (
    "--nonsense",
    "config check PLACE/good.yaml",
    "config check PLACE/bad.yaml PLACE/missing.yaml",
    "config check PLACE/no.yaml",
    "config show PLACE/good.yaml",
    "config schema --table",
    "state ls --storage PLACE/storage",
    "state ls --storage PLACE/storage --query containers",
    "state ls --storage PLACE/storage --query no-such-query",
    "state ls --storage PLACE/nothing",
    "state show --storage PLACE/storage --query containers",
    "state show --storage PLACE/storage --query containers --operator everything",
    "state show --storage PLACE/storage --query containers --operator nobody",
    "state show --storage PLACE/storage --query operators --operator totals --key word=tea",
    "state show --storage PLACE/storage --query operators --operator totals --key cup",
    "state stats --storage PLACE/storage --query operators --operator totals",
    "state diff 1 2 --storage PLACE/storage --query operators --operator totals",
    "state diff 1 9 --storage PLACE/storage --query operators --operator totals",
    "state export PLACE/totals.csv --storage PLACE/storage --query operators --operator totals",
    "state export PLACE/totals.csv --storage PLACE/storage --query operators --operator totals",
    "state export PLACE/totals.xls --storage PLACE/storage --query operators --operator totals",
    "story PLACE/report.json",
    "story PLACE/report.json --decision 1",
    "story PLACE/report.json --instance counter[1]",
    "story PLACE/report.json --decision 7",
    "story PLACE/report.json --messages",
    "story PLACE/no-report.json",
    "report plot PLACE/report.json --out PLACE/report.html",
    "report plot PLACE/good.yaml",
    "report plot PLACE/nothing.json",
    "status orders",
    "status",
    "status --url driver.example:8443",
    "status --url http://me@driver.example:8443",
    "status orders --token-file PLACE/token",
    "scale orders --to 3",
    "scale orders counter --to 3 --wait --timeout soon",
    "drain orders n2",
    "state get orders counter",
    "dashboard orders",
    "dashboard PLACE/no-report.json",
    "runs --json",
    "logs orders --follow",
    "logs orders --level loud",
    "run nothing",
    "run no.such.module:query",
    "run PLACE/good.yaml:query",
    "run a:b --chaos explode:counter@5s",
    "run a:b --restore yesterday",
    "run a:b --log-format xml",
    "nexmark queries",
)


def output(*arguments: str) -> str:
    """What a command prints, and its exit code if that is not 0."""
    result = CliRunner().invoke(app, list(arguments), env=_TERMINAL, terminal_width=100)
    code = f"\n[exit code {result.exit_code}]" if result.exit_code else ""
    trace = "" if result.exception is None or isinstance(result.exception, SystemExit) else repr(result.exception)
    return f"{result.output.rstrip()}{trace}{code}"


def _furnish(place: Path) -> None:
    newest = max((ROOT / "tests" / "golden").glob("*/state.zip"))
    with zipfile.ZipFile(newest) as archive:
        archive.extractall(place)
    (place / "good.yaml").write_text(
        "run: {epoch: 100ms, parallelism: {counter: 2}}\nscaling: {policy: cpu-threshold}\n"
    )
    (place / "bad.yaml").write_text("run: {epock: 1s, window: 0}\nscaling: {policy: clever}\nstorage: 5\nvms: 3\n")
    (place / "no.yaml").write_text("run: {epoch: [1\n")
    (place / "no-report.json").write_text(json.dumps({"query": "orders"}))


def _plain(text: str, place: Path) -> str:
    """Without what differs from one run to the next."""
    text = text.replace(str(place), "PLACE").replace(str(ROOT), "HERE")
    return "\n".join(line.rstrip() for line in text.splitlines())
