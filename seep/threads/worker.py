"""A worker: one thread for work in order that waits for a disk, a storage, Spark, or user code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], object]


class Worker:
    """Starts its thread with the first piece of work. `on_failure` is called with an exception; then work continues."""

    def __init__(self, name: str, on_failure: Callable[[BaseException], None] = lambda _: None) -> None:
        self._name, self._on_failure = name, on_failure
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()  #: guards the thread and the flag

    def put(self, work: Work) -> None:
        """Queues work, unless the worker is closed; for any thread."""
        with self._lock:
            if self._is_closed:
                return
            self._work.put(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of pieces of work that have not begun."""
        return self._work.qsize()

    def close(self, timeout: float = 5.0) -> None:
        """Takes no more work; waits for the queued work, at most `timeout` seconds."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._work.put(None)
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as reason:  # also SystemExit: code that calls sys.exit() must not end this thread
                self._on_failure(reason)
