"""What the operating system says of this process and its threads, beside their CPU time."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

from seep.record.reports import Resources

_PAGE = resource.getpagesize()


def stolen_seconds(thread: int | None = None) -> float:
    """How long a thread of this process (this one) was ready and had no core; 0 where Linux does not say."""
    number = threading.get_native_id() if thread is None else thread
    try:
        waited = Path(f"/proc/self/task/{number}/schedstat").read_bytes().split()[1]
    except (OSError, IndexError):
        return 0.0
    return int(waited) / 1e9


def resources() -> Resources:
    """What this process, and for the network its machine, has used so far; 0 where Linux does not say."""
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
    """Received and sent, by all interfaces but that of the machine with itself."""
    lines = (line.split(":", 1) for line in _read("/proc/self/net/dev").splitlines() if ":" in line)
    counts = [figures.split() for name, figures in lines if name.strip() != "lo"]
    return sum(int(each[0]) for each in counts), sum(int(each[8]) for each in counts)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
