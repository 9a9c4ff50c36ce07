"""Resource use of this process and its threads from the operating system, besides CPU time."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

from seep.record.reports import Resources

_PAGE = resource.getpagesize()


def stolen_seconds(thread: int | None = None) -> float:
    """Returns how long a thread of this process (by default this one) was ready without a core; 0 if unknown."""
    number = threading.get_native_id() if thread is None else thread
    try:
        waited = Path(f"/proc/self/task/{number}/schedstat").read_bytes().split()[1]
    except (OSError, IndexError):
        return 0.0
    return int(waited) / 1e9


def resources() -> Resources:
    """Returns the resources used by this process so far, and the network traffic of its machine; 0 if unknown."""
    io = _disk_bytes()
    received, sent = _network_bytes()
    return Resources(
        rss=_resident_bytes(),
        read=io.get("read_bytes", 0),
        written=io.get("write_bytes", 0),
        received=received,
        sent=sent,
    )


def _resident_bytes() -> int:
    fields = _read("/proc/self/statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _disk_bytes() -> dict[str, int]:
    lines = (line.split(": ") for line in _read("/proc/self/io").splitlines())
    return {name: int(value) for name, value in lines}


def _network_bytes() -> tuple[int, int]:
    """Returns bytes received and sent by all interfaces except loopback."""
    lines = (line.split(":", 1) for line in _read("/proc/self/net/dev").splitlines() if ":" in line)
    counts = [figures.split() for name, figures in lines if name.strip() != "lo"]
    return sum(int(each[0]) for each in counts), sum(int(each[8]) for each in counts)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
