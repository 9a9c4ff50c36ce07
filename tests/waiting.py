"""Waiting for what nobody tells."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Whether it comes to hold within so many seconds; long before, unless something is broken."""
    deadline = time.monotonic() + seconds
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return held
