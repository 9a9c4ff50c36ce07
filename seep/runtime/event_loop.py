"""An event loop: one thread that does in order what others put on it, and between that whatever is due by the clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from primitives.errors import EnvironmentFault

T = TypeVar("T")

Work = Callable[[], None]


class EventLoop:
    """Work may come from any thread, before the start too.

    `on_time` is called with the time after each piece of work and whenever it is due; it returns when it is due next.
    `on_failure` is told what a piece of work raised.
    """

    def __init__(self, name: str, on_time: Callable[[float], float], on_failure: Callable[[Exception], None]) -> None:
        self._on_time = on_time
        self._on_failure = on_failure
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._open = True
        self._closed = False  #: nobody looks at the queue any more
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, work: Work) -> None:
        self._queue.put(work)

    def ask(self, question: Callable[[], T], timeout: float) -> T:
        """The answer, found on the thread of the loop (or here, when this is it, or it has ended).

        EnvironmentFault if it does not come in time.
        """
        future: Future[T] = Future()
        with self._closing:
            is_here = threading.current_thread() is self._thread or self._closed or not self._thread.is_alive()
            if not is_here:
                self._queue.put(lambda: _answer(future, question))
        if is_here:
            return question()
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                return future.result()
        raise EnvironmentFault(
            f"the thread {self._thread.name!r} has not answered within {timeout:g} s: this process has too little CPU "
            "time, or a callback of yours (a listener of events, a policy) holds it up"
        )

    def close(self) -> None:
        """Does what is on it, and ends its thread."""
        self._queue.put(self._stop)
        self._thread.join(5.0)
        with self._closing:
            self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()()  # whoever asked meanwhile is to have an answer

    def _run(self) -> None:
        due = time.monotonic()
        while self._open:
            try:
                self._queue.get(timeout=max(0.0, due - time.monotonic()))()
            except Empty:
                pass
            except Exception as reason:
                self._on_failure(reason)
            due = self._on_time(time.monotonic())

    def _stop(self) -> None:
        self._open = False


def _answer(future: Future[T], question: Callable[[], T]) -> None:
    try:
        future.set_result(question())
    except BaseException as reason:
        future.set_exception(reason)
