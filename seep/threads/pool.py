"""A pool of workers: a few threads for pieces of work that wait, each with a future for its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from primitives.errors import EnvironmentFault
from seep.threads.worker import Worker

T = TypeVar("T")


class WorkerPool:
    """Starts a thread when none is idle, up to `most`; then it refuses work, so that none waits for a thread.

    >>> pool = WorkerPool("seep example", 2)
    >>> pool.submit(lambda: 6 * 7).result(5.0)
    42
    >>> pool.close()
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._is_closed = False
        self._lock = threading.Lock()  #: guards all above

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Has a thread do the work; raises EnvironmentFault if all are busy, or the pool is closed."""
        future: Future[T] = Future()
        worker = self._take()
        worker.put(partial(self._do, worker, future, work))
        return future

    def close(self, timeout: float = 5.0) -> None:
        """Takes no more work, and waits for each thread at most so long."""
        with self._lock:
            self._is_closed = True
        for worker in self._workers:
            worker.close(timeout)

    def _take(self) -> Worker:
        with self._lock:
            if self._is_closed:
                raise EnvironmentFault(f"{self._name} takes no more work: it is closed")
            if self._idle:
                return self._idle.pop()
            if len(self._workers) >= self._most:
                raise EnvironmentFault(f"all {self._most} threads of {self._name} are busy; try again later")
            self._workers.append(Worker(self._name))
            return self._workers[-1]

    def _do(self, worker: Worker, future: Future[T], work: Callable[[], T]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                _fulfil(future, work)
        finally:
            with self._lock:
                self._idle.append(worker)


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as reason:
        future.set_exception(reason)
