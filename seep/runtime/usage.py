"""What the operating system says of a thread, beside its CPU time: how long it was kept waiting for a core."""

from __future__ import annotations

import threading
from pathlib import Path


def stolen_seconds(thread: int | None = None) -> float:
    """How long a thread of this process (this one) was ready and had no core; 0 where Linux does not say."""
    number = threading.get_native_id() if thread is None else thread
    try:
        waited = Path(f"/proc/self/task/{number}/schedstat").read_bytes().split()[1]
    except (OSError, IndexError):
        return 0.0
    return int(waited) / 1e9
