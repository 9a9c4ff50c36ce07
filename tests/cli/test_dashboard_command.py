"""`seep dashboard` shows a finished run by its report: a link that logs in once, until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from primitives.errors import UserError
from seep.channels.security import Security
from seep.cli.app import app
from seep.dashboard.finished import FinishedRun
from seep.dashboard.server import DashboardServer, PemFiles
from seep.dashboard.settings import DashboardSettings
from seep.dashboard.tokens import access_of
from seep.running.dashboard_client import DashboardAddress, DashboardClient
from tests.cli.command import Command, seep
from tests.cli.terminal import on_terminal
from tests.dashboard.made_reports import made_report
from tests.waiting import eventually

PROGRAM = [sys.executable, "-c", "from seep.cli import main; main()"]
TOKEN = "operator-token-for-this-test"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SEEP_TOKEN", TOKEN)
    monkeypatch.delenv("SEEP_VIEWER_TOKEN", raising=False)
    path = tmp_path / "monday.json"
    made = made_report(["orders", "counter", "out"], 2)
    path.write_text(json.dumps(made | {"events": [*made["events"], {"kind": "finished", "at": 30.0}]}))
    return path


@pytest.fixture
def served(report: Path) -> Iterator[tuple[Command, str]]:
    """The command, and the link that it has printed."""
    with seep("dashboard", str(report), "--json") as command:
        yield command, json.loads(command.lines_until("url")[-1])["url"]


def client(url: str) -> DashboardClient:
    parts = urlsplit(url)
    return DashboardClient(DashboardAddress(f"{parts.scheme}://{parts.netloc}", TOKEN))


def test_a_report_is_served_for_browsers_and_programs_until_ctrl_c(served: tuple[Command, str]) -> None:
    command, url = served
    assert url.startswith("http://127.0.0.1:")
    run = client(url)
    told: Any = run.run
    assert (run.id, run.query, told["is_live"], told["acts"]) == ("monday", "orders", False, [])
    assert run.tell("status")["phase"] == "finished"
    with pytest.raises(UserError, match="finished"):
        run.tell("stop")
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=30.0) as browser:
        assert browser.get(url).status_code == 200
        assert "text/html" in browser.get(url.partition("/login")[0]).headers["content-type"]
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=30.0) as another:
        assert another.get(url).status_code == 401, "the link has been used"
    command.press_ctrl_c()
    assert command.end() == (0, "")
    assert run.has_ended()


def test_on_a_terminal_enter_prints_another_link(report: Path) -> None:
    with on_terminal(*PROGRAM, "dashboard", str(report)) as screen:
        screen.shows("Ctrl-C ends")
        screen.press(b"\n")
        assert eventually(lambda: screen.text.count("/login?code=") == 2), screen.text
        first, second = re.findall(r"http://\S+/login\?code=\S+", screen.text)
        assert first != second
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0


def test_who_lets_other_machines_in_without_tls_is_warned(report: Path) -> None:
    with seep("dashboard", str(report), "--host", "0.0.0.0", "--json") as command:
        said = "".join(command.lines_until("url"))
        assert said.count("the dashboard is reached from other machines without TLS") == 1
        assert said.startswith("warning: ")
        command.press_ctrl_c()
        assert command.end()[0] == 0


def test_a_browser_is_opened_only_if_asked_for(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", f"{browser.parent}:{os.environ['PATH']}")
    for options in ((), ("--open",)):
        with seep("dashboard", str(report), "--json", *options) as command:
            url = json.loads(command.lines_until("url")[-1])["url"]
            assert not options or eventually(lambda: opened.is_file() and opened.read_text().endswith("\n"))
            assert (opened.read_text() if opened.is_file() else "") == (f"{url}\n" if options else "")
            command.press_ctrl_c()
            assert command.end()[0] == 0


@pytest.mark.parametrize(
    ("content", "words"), [(None, "there is no report"), ("{}", "is not a report of a run"), ("-", "is not JSON")]
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "run.json"
    if content is not None:
        file.write_text(content)
    result = CliRunner().invoke(app, ["dashboard", str(file)])
    assert result.exit_code == 1
    assert words in result.output


def test_a_port_that_is_taken_is_a_fault_of_the_environment(served: tuple[Command, str], report: Path) -> None:
    port = urlsplit(served[1]).port
    result = CliRunner().invoke(app, ["dashboard", str(report), "--port", str(port)])
    assert result.exit_code == 2
    assert f"{port}" in result.output


def test_a_dashboard_with_tls_is_reached_with_its_certificate(report: Path, tmp_path: Path) -> None:
    made = Security.with_tls("127.0.0.1")
    assert made.certificate is not None
    assert made.key is not None
    (tmp_path / "run.pem").write_bytes(made.certificate)
    settings = DashboardSettings(port=0)
    finished = FinishedRun(json.loads(report.read_text()), "monday")
    server = DashboardServer(settings, finished, access_of(settings), PemFiles(made.certificate, made.key))
    try:
        trusting = CliRunner().invoke(app, ["status", "--url", server.url, "--ca", str(tmp_path / "run.pem"), "--json"])
        other = CliRunner().invoke(app, ["status", "--url", server.url])
    finally:
        server.close()
    assert server.url.startswith("https://")
    assert json.loads(trusting.output)["phase"] == "finished"
    assert (other.exit_code, "is not trusted: self-signed certificate" in other.output) == (1, True)
