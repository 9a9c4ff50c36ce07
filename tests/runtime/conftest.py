"""One Spark session for all tests of a file that run queries; each test leaves no process and no file behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seep.spark.session import Host, open_session


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """A local Spark with more task slots than any test needs."""
    with open_session(None, name="tests", slots_needed=64) as host:
        yield host


@pytest.fixture()
def tidy() -> Iterator[None]:
    """What a run starts ends with it: threads, sockets, files."""
    threads, files = set(threading.enumerate()), _temporary()
    yield
    left = [thread.name for thread in set(threading.enumerate()) - threads if thread.name.startswith("seep")]
    assert not left, f"threads left behind: {left}"
    assert _temporary() <= files


def _temporary() -> set[str]:
    return {name for name in os.listdir(Path(os.environ.get("TMPDIR", "/tmp"))) if name.startswith("seep-")}
