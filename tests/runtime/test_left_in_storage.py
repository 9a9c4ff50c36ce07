"""What runs leave in their storage: keys of known kinds only, and nothing of a run that is dead. Real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from policies.backup import BackupSection, BackupSettings, BackupStrategy
from seep.cli.app import app
from seep.spark.session import Host
from seep.storage.layout import BackupKey, BlobKey, ManifestKey, RunKey, StoredKey, SuccessionKey, key_of
from seep.storage.location import open_store
from seep.storage.records import Records
from seep.storage.store import BlobStore
from tests.runtime.counting import committed, idle, recovered, start, wait_until
from tests.runtime.durable_driver import durable, options

ROOT = Path(__file__).parents[2]
#: Of a partition, more than any of the runs reads.
ROWS = 100_000_000
IN_STORAGE = BackupSection(default=BackupSettings(strategy=BackupStrategy.STORAGE))


def keys_in(store: BlobStore) -> list[StoredKey]:
    """All there is, each of a known kind."""
    found = []
    for text in store.list():
        key = key_of(text)
        assert key is not None, f"{text} is of no known kind"
        assert str(key) == text
        found.append(key)
    return found


def backups_of(store: BlobStore, run: str) -> list[StoredKey]:
    return [key for key in keys_in(store) if isinstance(key, (BackupKey, SuccessionKey)) and key.run == run]


def killed_driver(directory: Path, store: BlobStore) -> str:
    """A run with backups in storage whose driver is killed when there are some of these, and a checkpoint."""
    more = json.dumps({"backup": {"default": {"strategy": "storage"}}, "rows": ROWS})
    command = [sys.executable, "-m", "tests.runtime.durable_driver", str(directory), more]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert "checkpoint 2\n" in first.stdout, "the run has ended before"
    run = Records(store, "durable").run_of(1)
    wait_until(lambda: bool(backups_of(store, run)))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    return run


def test_a_run_removes_what_one_has_left_whose_driver_was_killed_and_dispose_removes_the_rest(
    host: Host, tmp_path: Path
) -> None:
    location = str(tmp_path / "checkpoints")
    store = open_store(location)
    dead = killed_driver(tmp_path, store)
    before = keys_in(store)
    assert {RunKey, ManifestKey, BlobKey, BackupKey} <= {type(key) for key in before}

    with start(host, durable(tmp_path / "out", ROWS), **options(tmp_path), backup=IN_STORAGE, spare=1) as run:
        wait_until(lambda: not backups_of(store, dead))
        idle(run)
        committed(run, 20)
        run.kill("counter")
        recovered(run)
        committed(run, 10)
        mine = keys_in(store)
        assert {type(key) for key in mine} >= {BackupKey, SuccessionKey}
        assert not [key for key in mine if isinstance(key, RunKey) and key.generation == 1]
    left = keys_in(store)
    assert not [key for key in left if isinstance(key, (BackupKey, SuccessionKey))], "a run clears its own away"

    command = ["state", "dispose", "--all", "--yes", "--storage", location, "--query", "durable"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert keys_in(store) == [RunKey("durable", 3)], "only the record that all was disposed of"
