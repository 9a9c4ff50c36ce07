"""Chores: short pieces of work that may have to wait for a disk or for Spark, and that nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue


class Chores:
    """One thread does them in turn; it begins with the first. What one raises is of no consequence to the run."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  #: held while the thread is started

    def put(self, work: Callable[[], object]) -> None:
        """Does it soon; for any thread."""
        self._work.put(work)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="seep chores", daemon=True)
                self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Waits for so long until all is done that was put."""
        self._work.put(None)
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            with suppress(Exception):
                work()
