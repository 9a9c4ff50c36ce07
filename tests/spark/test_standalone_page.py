"""The page on Standalone clusters: all of its commands, one after the other in one shell, as they stand there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks
from tests.spark.small import SETTINGS

PAGE = ROOT / "docs" / "standalone.md"
PORT = "MASTER_PORT=7077"
#: For those who only look whether the commands are right: a quick start is worth more than a quick run.
FRUGAL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def commands() -> str:
    """Those of the page, with another port, as several may run this at once; what was started ends in any case."""
    text = "\n".join(block.text for block in blocks(PAGE) if block.language == "bash")
    assert text.count(PORT) == 1
    ending = 'trap \'[ ! -e "$CLUSTER/pids" ] || kill $(cat "$CLUSTER/pids")\' EXIT\n'
    return "set -eu\n" + ending + text.replace(PORT, f"MASTER_PORT={free_port()}")


def environment(home: Path) -> dict[str, str]:
    """As after `source .venv/bin/activate`, with settings of Spark's for a small machine."""
    settings = SETTINGS | {"spark.ui.enabled": "false", "spark.executor.memory": "512m"}
    settings |= {f"spark.{side}.extraJavaOptions": FRUGAL for side in ("driver", "executor")}
    conf = home / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_JAVA_OPTS": FRUGAL,
        "TMPDIR": str(home),
    }


@pytest.mark.acceptance
def test_every_command_of_the_page_works_as_it_stands_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        ["bash", "-c", commands()],
        cwd=home,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]
    doctor, *_ = re.findall(r"^ok +task slots .*$", done.stdout, re.MULTILINE)
    assert "16 task slots on 2 executors" in doctor
    assert len(re.findall(r"^\w+ +port ", done.stdout, re.MULTILINE)) == 1
    assert len(re.findall(r"^s\d+: 22 seconds$", done.stdout, re.MULTILINE)) == 20
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp.")] == [], "all is removed"
