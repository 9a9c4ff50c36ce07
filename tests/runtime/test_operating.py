"""A run is operated by the command line: by its name on this machine, and by its dashboard over HTTP with a token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seep.dashboard.settings import DashboardSettings
from seep.rows.rate import Rate
from seep.running.run import Run
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.cli.command import seep
from tests.runtime.counting import KEYS, committed, counting, expected, found, start, wait_until

OPERATOR, VIEWER = "operator-token-for-this-test", "viewer-token-for-this-test"
PROGRAM = [sys.executable, "-c", "from seep.cli import main; main()"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of this test's runs is its own, and no address or token comes from outside."""
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))
    for name in ("SEEP_URL", "SEEP_TOKEN", "SEEP_VIEWER_TOKEN"):
        monkeypatch.delenv(name, raising=False)


class Said(NamedTuple):
    """What a command has said, and its exit code."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.output)


def command(*arguments: str, **environment: str) -> Said:
    """Runs a command to its end; no token is in what it says."""
    told = subprocess.run(
        [*PROGRAM, *arguments],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    said = Said(told.returncode, told.stdout, told.stderr)
    assert OPERATOR not in said.output + said.errors
    assert VIEWER not in said.output + said.errors
    return said


def health(said: Said) -> None:
    """A status of a running query, whose exit code says whether something is wrong."""
    status = json.loads(said.output)
    assert (status["phase"], status["failure"]) == ("running", "")
    assert said.code == (1 if status["wrong"] else 0)


@contextmanager
def operated(host: Host, place: Path, **options: Any) -> Iterator[tuple[Run, dict[str, Path]]]:
    """A run with a dashboard and a storage, and the files with its tokens."""
    files = {"operator": place / "operator", "viewer": place / "viewer"}
    for file, token in zip(files.values(), (OPERATOR, VIEWER), strict=True):
        file.write_text(f"{token}\n")
        file.chmod(0o600)
    settings = DashboardSettings(port=0, token_file=files["operator"], viewer_token_file=files["viewer"])
    options |= {"spare": 2, "rate": Rate(2000), "storage": StorageSettings(location=str(place / "storage"))}
    with start(host, counting(), dashboard=settings, **options) as run:
        committed(run, 5)
        yield run, files


@pytest.mark.timeout(480)  # some twenty commands, each a process of its own
def test_a_run_is_operated_from_anywhere_by_its_dashboard_and_its_results_are_exact(host: Host, tmp_path: Path) -> None:
    with operated(host, tmp_path) as (run, files):
        assert run.dashboard_url is not None
        url = run.dashboard_url.partition("/login")[0]
        here = {"SEEP_URL": url, "SEEP_HOME": str(tmp_path / "elsewhere")}

        def ask(*arguments: str, role: str = "operator") -> Said:
            return command(*arguments, "--token-file", str(files[role]), **here)

        health(ask("status", "--json", role="viewer"))
        assert "counter has 3 instances in " in ask("scale", "counter", "--to", "3", "--wait").output
        assert len([name for name in run.placement if name.startswith("counter[")]) == 3
        moved = ask("migrate", "counter", "--to", "2", "--strategy", "batched", "--batch", "64", "--json").json
        assert (moved["state"], moved["operator"]) == ("done", "counter")
        assert json.loads(ask("top", "--once", "--json", role="viewer").output)["id"] == run.id
        lines = [json.loads(line) for line in ask("logs", "--json", role="viewer").output.splitlines()]
        assert {line["run"] for line in lines} == {run.id}
        assert "decided: counter 1 → 3" in ask("story", role="viewer").output
        assert ask("balance", "counter", "--json").json == {}
        assert ask("checkpoint", "counter", "--json").json == {}
        saved = ask("savepoint", "--json").json
        assert [event.to_json()["numbers"]["id"] for event in run.events.of("savepoint")] == [saved["id"]]

        rows = ask("state", "rows", "counter", "--limit", "500", "--json", role="viewer").json
        assert rows["total"] == KEYS
        assert len(rows["rows"]) == 500
        one = ask("state", "get", "counting", "counter", "7", "--json", role="viewer").json
        assert [row["key"] for row in one["rows"]] == [7]
        container = one["container"]
        counted = ask("state", "sql", "counter", f'select count(*) as keys from "{container}"', "--json", role="viewer")
        assert counted.json["rows"] == [[KEYS]]
        assert "nothing for the key 99999" in ask("state", "get", "counter", "99999", role="viewer").errors

        refused = ask("finish", role="viewer")
        assert refused.code == 1
        assert "for operators" in refused.errors
        wrong = command("finish", **here, SEEP_TOKEN="a-token-of-nobody-at-all")
        assert (wrong.code, "does not let this client in" in wrong.errors) == (1, True)
        assert command("status", **here).code == 1, "without a token nobody is let in"
        assert not run.is_over

        ended = ask("finish", "--wait")
        assert (ended.code, "is finished" in ended.output) == (0, True)
        assert run.wait(120.0)
        assert found(run) == expected(run)
        over = ask("scale", "counter", "--to", "2")
        assert (over.code, "the run is over (finished)" in over.errors) == (1, True)
    gone = command("status", "--token-file", str(files["operator"]), **here)
    assert (gone.code, "cannot be reached: Connection refused" in gone.errors) == (2, True)


def test_a_run_on_this_machine_is_operated_by_its_name_without_a_token(host: Host, tmp_path: Path) -> None:
    with operated(host, tmp_path) as (run, _):
        health(command("status", run.id, "--json"))
        assert f"run {run.id} of counting: running" in command("status", "counting").output
        scaled = command("scale", "counting", "counter", "--to", "2", "--wait", "--json").json
        assert (scaled["kind"], scaled["operator"]) == ("scaled out", "counter")
        drained = next(node for name, node in run.placement.items() if name == "counter[1]")
        assert f"{drained} is being drained" in command("drain", "counting", drained).output
        wait_until(lambda: bool(run.events.of("drained")))
        assert command("state", "sql", "counting", "counter", "delete from x").code == 1
        assert len(command("state", "rows", "counting", "counter", "--json").json["rows"]) == 50
        assert "decided: counter 1 → 2" in command("story", "counting").output
        assert command("scale", "counting", "nobody", "--to", "2").code == 1
        stopped = command("stop", "counting", "--savepoint")
        assert "is complete; begin from it with --restore" in stopped.output
        assert run.wait(120.0)
        assert run.halted


def test_a_link_to_the_page_of_a_run_logs_in_once(host: Host, tmp_path: Path) -> None:
    with operated(host, tmp_path) as (run, _):
        first, second = (command("dashboard", "counting", "--json").json["url"] for _ in range(2))
        assert first != second
        assert first.startswith(str(run.dashboard_url).partition("?")[0])
        run.finish()
        run.wait(120.0)


def test_a_run_without_a_page_gets_one_from_the_command_line(host: Host) -> None:
    with start(host, counting(), rate=Rate(2000)) as run:
        committed(run, 5)
        with seep("dashboard", run.id, "--json") as served:
            url = json.loads(served.lines_until("url")[-1])["url"]
            assert url.startswith("http://127.0.0.1:")
            served.press_ctrl_c()
            assert served.end() == (0, "")
        run.finish()
        run.wait(120.0)
        assert found(run) == expected(run)
