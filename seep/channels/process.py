"""Unique identities of processes: a pid alone is not enough, as pids are reused, and other hosts have the same ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The unique identity of a process: its host, its pid there, and its start time.

    >>> ProcessId.this().alive()
    True
    """

    place: str  #: the running kernel and its namespace of pids
    pid: int
    started: int  #: in clock ticks since that kernel booted

    @classmethod
    def this(cls) -> ProcessId:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Returns the process that has this pid here now; raises ProcessLookupError if there is none."""
        _, started = _state_and_start(pid)
        return cls(_place(), pid, started)

    @property
    def is_local(self) -> bool:
        return self.place == _place()

    def alive(self) -> bool:
        """Whether it still runs on this host; false for a zombie, and for a later process with its pid."""
        try:
            state, started = _state_and_start(self.pid)
        except ProcessLookupError:
            return False
        return self.is_local and started == self.started and state not in "ZX"

    def kill(self) -> None:
        """Kills it, even if it is stopped, if it runs on this host; never another process."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            if self.alive():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended meanwhile
        finally:
            os.close(handle)


def children(parents: Iterable[int]) -> list[int]:
    """Returns the pids of processes on this host whose parent is one of these."""
    wanted = set(parents)
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return [pid for pid in pids if _parent(pid) in wanted]


def _parent(pid: int) -> int | None:
    try:
        return int(_fields(pid)[1])
    except ProcessLookupError:
        return None


def _state_and_start(pid: int) -> tuple[str, int]:
    fields = _fields(pid)
    return fields[0], int(fields[19])


def _fields(pid: int) -> list[str]:
    """Returns the fields of a process from its state on; its name before them, in brackets, may contain anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as gone:
        raise ProcessLookupError(f"there is no process {pid}") from gone
    return text.rpartition(")")[2].split()


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
