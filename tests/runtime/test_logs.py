"""The logs of real runs: what `seep logs` shows of driver and nodes, in which form, and that no secret is among it."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seep.cli.app import app
from seep.logs.settings import LogSettings
from seep.running.remote_control import listed
from seep.running.run import Run
from seep.spark.session import Host
from tests.cli.command import seep
from tests.runtime.counting import awaited, committed, counting, recovered, start, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of this test's runs is its own."""
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))


def said(run: Run, *arguments: str) -> list[str]:
    result = CliRunner().invoke(app, ["logs", run.id, *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def lines_of(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(run, "--json", *arguments)]


def test_the_loss_of_a_node_is_shown_with_the_lines_of_all_processes(host: Host) -> None:
    with start(host, counting(), spare=1) as run, seep("logs", run.id, "--follow") as follower:
        follower.lines_until("node begins")
        committed(run, 20)
        lost, others = run.placement["counter[0]"], set(run.placement.values()) - {run.placement["counter[0]"]}
        run.kill("counter[0]")
        recovered(run)
        awaited(run, lambda: any(f"link to {lost}" in line for node in others for line in said(run, "--node", node)))
        lines = lines_of(run)
        warnings = said(run, "--node", lost, "--level", "warning")
        run.finish()
        run.wait(120.0)
        code, followed = follower.end()  # it ends because the run does
    assert any(
        re.search(rf"WARNING seep.record run={run.id} node={lost}: node lost {lost} ", line) for line in warnings
    )
    assert all(f"node={lost}" in line for line in warnings)
    begun = {line["node"]: line for line in lines if line["message"].startswith("node begins: process ")}
    assert begun.keys() >= {lost, *others}
    assert all(line["run"] == run.id and "seep " in line["message"] for line in begun.values())
    assert [line["logger"] for line in lines if line["message"].startswith("run of counting begins")] == ["seep.driver"]
    recovery = [line for line in lines if line["message"].startswith("recovered counter[0]")]
    assert [line["instance"] for line in recovery] == ["counter[0]"]
    events = [line["message"] for line in lines if line["logger"] == "seep.record"]
    assert len([each for each in events if each.startswith("node lost")]) == 1, "one line for each event"
    assert code == 0, followed
    assert f"node lost {lost} " in followed
    assert "finished at epoch" in followed


def test_what_is_asked_wrongly_is_refused(host: Host) -> None:
    with start(host, counting()) as run:
        committed(run, 5)
        result = CliRunner().invoke(app, ["logs", run.id, "--node", "n99"])
        assert result.exit_code == 1
        assert "there has been no node 'n99'; there are, or were lately: n1" in result.output


def test_who_follows_a_run_whose_driver_is_killed_is_told_so() -> None:
    with seep("wordcount", "--quiet", "--seconds", "200", "--rate", "1000") as driver:
        wait_until(lambda: bool(listed()), 200.0)
        (run,) = listed()
        with seep("logs", "wordcount", "--follow") as follower:
            follower.lines_until("node begins")
            os.kill(driver.process.pid, signal.SIGKILL)
            driver.process.wait()
            code, output = follower.end()
    assert code == 0, output
    assert f"run {run.id} has ended, and its last lines may be missing" in output


def test_the_configuration_of_the_user_is_respected_and_their_format_has_the_fields(host: Host, tmp_path: Path) -> None:
    path, ours = tmp_path / "mine.log", logging.getLogger("seep")
    handlers, level = ours.handlers[:], ours.level
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"mine": {"format": "%(levelname)s|%(seep_run)s|%(seep_node)s|%(message)s"}},
            "handlers": {"mine": {"class": "logging.FileHandler", "filename": str(path), "formatter": "mine"}},
            "loggers": {"seep": {"handlers": ["mine"], "level": "WARNING"}},
        }
    )
    try:
        with start(host, counting(), log=LogSettings(level="debug")) as run:
            committed(run, 10)
            lost = run.placement["counter[0]"]
            run.kill("counter[0]")
            recovered(run)
            assert any("INFO seep.record" in line for line in said(run)), "what is collected does not depend on it"
            assert [type(each) for each in ours.handlers] == [logging.FileHandler]
    finally:
        for handler in ours.handlers:
            handler.close()
        ours.handlers[:] = handlers
        ours.setLevel(level)
    written = path.read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"(WARNING|ERROR)\|[0-9a-f]{8}\|n?\d*\|.*", line) for line in written)
    assert any(line.startswith(f"WARNING|{run.id}|{lost}|node lost {lost}") for line in written)


def test_a_command_and_its_nodes_write_json_lines_to_stderr_if_asked_for() -> None:
    command = [
        sys.executable,
        "-c",
        "from seep.cli import main; main()",
        "wordcount",
        "--quiet",
        "--log-format",
        "json",
    ]
    done = subprocess.run(
        [*command, "--seconds", "3", "--rate", "2000"], capture_output=True, text=True, timeout=230, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["logger"] for line in lines} == {"seep.driver", "seep.record", "seep.node"}
    assert {line["level"] for line in lines} == {"INFO"}
    (run,) = {line["run"] for line in lines}
    ends = [line["node"] for line in lines if line["message"].startswith("node ends")]
    assert sorted(ends) == sorted(line["node"] for line in lines if line["message"].startswith("node begins"))
    assert any(line["message"].startswith("finished at epoch") and line["run"] == run for line in lines)


#: A program whose function fails with secrets in its error: a key of a cloud, and the run's own token.
_LEAKING = """
import json, os, sys, time
from pathlib import Path
import pyarrow as pa
import seep
from primitives.errors import SeepError
from seep.logs.levels import LogFormat
from seep.logs.settings import LogSettings
from seep.record.events import ScalingFailed

said, secret = Path(sys.argv[1]), os.environ["AWS_SECRET_ACCESS_KEY"]


def leak(batch):
    if said.exists():
        aws, google = os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["GOOGLE_API_KEY"]
        raise ValueError(f"denied: {aws} {google} {said.read_text()}")
    return {"n": batch["n"]}


def made(partition, first, count):
    return {"n": list(range(first, first + count))}


query = seep.Query("leaking")
numbers = query.source("numbers", seep.sources.generator(made, pa.schema([("n", pa.int64())])))
numbers.map("map", leak).sink("out", seep.sinks.discard())
log = LogSettings(level="debug", format="json")
with seep.launch(query, epoch=0.02, rate=seep.Rate(1000), log=log) as run:
    token = run._security.token
    while run.status().committed < 20:
        time.sleep(0.02)
    run.events.add(ScalingFailed(why=f"no {secret} {token}"))
    unfinished = said.with_suffix(".new")
    unfinished.write_text(token)
    unfinished.rename(said)
    try:
        run.wait(120.0)
    except SeepError as failure:
        print(json.dumps(str(failure)))
    kept = [line.written(LogFormat.JSON) for line in run._logs.lines.after(0).lines]
Path(sys.argv[2]).write_text(json.dumps({"token": token, "kept": kept}))
"""


def test_lines_of_nodes_are_json_with_their_fields_and_no_line_of_any_process_has_a_secret(tmp_path: Path) -> None:
    keys = {
        "AWS_SECRET_ACCESS_KEY": "fAkE/kEy+0123456789abcdefEXAMPLEKEY",
        "GOOGLE_API_KEY": "AIzaSyFAKE-key-0123456789",
    }
    program, told, found = tmp_path / "leaking.py", tmp_path / "token", tmp_path / "found.json"
    program.write_text(_LEAKING, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program), str(told), str(found)],
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
        env=os.environ | keys | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(found.read_text(encoding="utf-8"))
    for secret in (*keys.values(), result["token"]):
        assert secret not in done.stderr
        assert secret not in "\n".join(result["kept"])
        assert secret not in done.stdout, "failures of nodes travel without the secrets that nodes know"
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (failed,) = [line for line in lines if line["logger"] == "seep.node" and line["level"] == "ERROR"]
    assert failed["instance"] == "map[0]"
    assert failed["epoch"] > 0
    assert re.fullmatch(r"n\d+", failed["node"])
    assert re.fullmatch(r"[0-9a-f]{8}", failed["run"])
    assert "ValueError: denied: [redacted] [redacted] [redacted]" in failed["exception"]
    kept = [json.loads(line) for line in result["kept"]]
    assert failed in kept, "the node's last lines have arrived before its failure"
    assert [
        line["message"].split()[0] for line in kept if line["logger"] == "seep.record" and line["level"] == "ERROR"
    ] == [
        "scaling",
        "failed",
    ]
    assert {line["logger"] for line in lines} == {"seep.node"}, (
        "the driver is the user's program: nothing is set up there"
    )
