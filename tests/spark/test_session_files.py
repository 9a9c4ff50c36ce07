"""Directories of sessions: none is left for long, and none of a process that lives is removed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from seep.channels.process import ProcessId
from seep.spark.session_files import make_session_directory

#: A program that makes a directory, and is killed.
KILLED = (
    "import os, signal\n"
    "from seep.spark.session_files import make_session_directory\n"
    "print(make_session_directory(), flush=True)\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_directory_of_a_killed_program_is_removed_by_the_next_session() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=100, check=False)
    left = Path(done.stdout.strip())
    assert left.is_dir(), done.stderr
    (left / "log4j2.properties").write_text("status = error")
    made = make_session_directory()
    assert made.is_dir()
    assert not left.exists()


def test_a_directory_stays_while_its_process_lives() -> None:
    first, second = make_session_directory(), make_session_directory()
    assert first.is_dir()
    assert second.is_dir()


@pytest.mark.parametrize("owner", [None, "", "[]", "{}", json.dumps(["another machine", 1, 1])])
def test_a_directory_whose_process_is_not_known_to_have_ended_stays(temporary: Path, owner: str | None) -> None:
    other = temporary / "seep-spark-x"
    other.mkdir()
    if owner is not None:
        (other / "owner.json").write_text(owner)
    make_session_directory()
    assert other.is_dir()


def test_a_later_process_with_the_same_number_does_not_keep_a_directory() -> None:
    made = make_session_directory()
    before = replace(ProcessId.this(), started=ProcessId.this().started - 1)
    (made / "owner.json").write_text(json.dumps(astuple(before)))
    make_session_directory()
    assert not made.exists()


def test_a_link_of_that_name_is_left_alone_with_what_it_leads_to(temporary: Path) -> None:
    there = temporary / "precious"
    there.mkdir()
    (there / "owner.json").write_text(json.dumps(astuple(replace(ProcessId.this(), started=1))))
    (temporary / "seep-spark-link").symlink_to(there)
    make_session_directory()
    assert (there / "owner.json").exists()
