"""What the operating system says of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from seep.node import usage
from seep.record.reports import Resources

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@LINUX
def test_memory_is_what_the_process_has_now() -> None:
    before = usage.resources().rss
    assert before > 1 << 20
    block = bytearray(os.urandom(1 << 20)) * 64
    assert usage.resources().rss > before + (48 << 20)
    assert len(block) == 64 << 20


@LINUX
def test_bytes_to_disks_are_counted(tmp_path: Path) -> None:
    before = usage.resources().written
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    assert usage.resources().written >= before, "a file system in memory writes none"


@LINUX
def test_the_network_is_without_what_the_machine_sends_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = "Inter-|   Receive\n face |bytes\n"
    table = heads + "    lo: 7 0 0 0 0 0 0 0 7 0\n  eth0: 100 1 0 0 0 0 0 0 30 1\n ens5:5 1 0 0 0 0 0 0 3 1\n"
    monkeypatch.setattr(usage, "_read", lambda path: table if path.endswith("net/dev") else "")
    assert usage.resources() == Resources(received=105, sent=33)


def test_what_is_not_told_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_read", lambda _: "")
    assert usage.resources() == Resources()
