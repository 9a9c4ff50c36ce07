"""An event loop: one thread that runs queued work in order, and work that is due at a time."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from primitives.errors import EnvironmentFault

T = TypeVar("T")

Work = Callable[[], object]


class EventLoop:
    """Runs work on one thread. Any thread may queue work, even before the start.

    `on_time` is called with the time after each piece of work and when it is due; it returns the time when it is due
    next. `on_failure` is called with the exception of a piece of work.
    """

    def __init__(self, name: str, on_time: Callable[[float], float], on_failure: Callable[[Exception], None]) -> None:
        self._on_time = on_time
        self._on_failure = on_failure
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._later: list[tuple[float, int, Work]] = []  #: a heap of delayed work; only for the loop's thread
        self._numbers = itertools.count()
        self._current: tuple[str, float] | None = None  #: the current work, and its start
        self._open = True
        self._closed = False  #: the queue is not read any more
        self._closing = threading.RLock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        with self._closing:
            self._thread.start()

    def put(self, work: Work) -> None:
        self._queue.put(work)

    def after(self, seconds: float, work: Work) -> None:
        """Runs the work once, after `seconds` seconds."""
        self._queue.put(partial(self._do_at, time.monotonic() + seconds, work))

    def every(self, seconds: float, work: Work) -> None:
        """Runs the work now, and then at this interval."""
        self._queue.put(partial(self._repeat, seconds, work))

    def ask(self, question: Callable[[], T], timeout: float, of: str = "") -> T:
        """Calls `question` on the loop's thread, or here if this is that thread or it has ended; returns the answer.

        Raises EnvironmentFault if the answer does not come in time; the call is still made later. The message names it
        as `of`, or by the name of the function.
        """
        future: Future[T] = Future()
        with self._closing:
            if self._closed or not self._thread.is_alive():
                return question()  # one call at a time, as on the loop
            if threading.current_thread() is not self._thread:
                self._queue.put(partial(_answer, future, question))
        if threading.current_thread() is self._thread:
            return question()
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                return future.result()
        raise EnvironmentFault(
            f"the thread {self._thread.name!r} has not answered {of or name_of(question)!r} within {timeout:g} s"
            f"{self._current_work()}: this process has too little CPU time, or a callback of yours (a listener of "
            "events) holds it up"
        )

    def close(self) -> None:
        """Runs the queued work, and ends the thread."""
        self._queue.put(self._stop)
        self._thread.join(5.0)
        with self._closing:
            self._closed = True
            while not self._queue.empty():
                self._do(self._queue.get_nowait())  # so that calls made meanwhile are answered

    def _run(self) -> None:
        due = time.monotonic()
        while self._open:
            with suppress(Empty):
                self._do(self._queue.get(timeout=max(0.0, self._next(due) - time.monotonic())))
            while self._later and self._later[0][0] <= time.monotonic():
                self._do(heapq.heappop(self._later)[2])
            due = self._on_time(time.monotonic())

    def _do(self, work: Work) -> None:
        self._current = (name_of(work), time.monotonic())
        try:
            work()
        except Exception as reason:
            self._on_failure(reason)
        finally:
            self._current = None

    def _next(self, due: float) -> float:
        return min(due, self._later[0][0]) if self._later else due

    def _do_at(self, at: float, work: Work) -> None:
        heapq.heappush(self._later, (at, next(self._numbers), work))

    def _repeat(self, seconds: float, work: Work) -> None:
        self._do_at(time.monotonic() + seconds, partial(self._repeat, seconds, work))
        work()

    def _current_work(self) -> str:
        """Describes the current work, for the message of a late answer."""
        doing = self._current
        return "" if doing is None else f"; it has been at {doing[0]!r} for {time.monotonic() - doing[1]:.1f} s"

    def _stop(self) -> None:
        self._open = False


def name_of(work: Callable[..., object]) -> str:
    """Returns the name of a function for messages: "live nodes" for `live_nodes`.

    >>> name_of(partial(partial(sorted, []), key=len))
    'sorted'
    """
    while isinstance(work, partial):
        work = work.args[1] if work.func is _answer else work.func
    return str(getattr(work, "__name__", type(work).__name__)).strip("_<>").replace("_", " ")


def _answer(future: Future[T], question: Callable[[], T]) -> None:
    try:
        future.set_result(question())
    except BaseException as reason:
        future.set_exception(reason)
