"""An event loop: one thread that does in order what others put on it, and between that whatever is due by the clock."""

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
    """Work may come from any thread, before the start too.

    `on_time` is called with the time after each piece of work and whenever it is due; it returns when it is due next.
    `on_failure` is told what a piece of work raised.
    """

    def __init__(self, name: str, on_time: Callable[[float], float], on_failure: Callable[[Exception], None]) -> None:
        self._on_time = on_time
        self._on_failure = on_failure
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._later: list[tuple[float, int, Work]] = []  #: a heap of what is due later; for the loop's thread
        self._numbers = itertools.count()
        self._doing: tuple[str, float] | None = None  #: what is being done, and since when
        self._open = True
        self._closed = False  #: nobody looks at the queue any more
        self._closing = threading.RLock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        with self._closing:
            self._thread.start()

    def put(self, work: Work) -> None:
        self._queue.put(work)

    def after(self, seconds: float, work: Work) -> None:
        """Does the work once, so many seconds from now."""
        self._queue.put(partial(self._do_at, time.monotonic() + seconds, work))

    def every(self, seconds: float, work: Work) -> None:
        """Does the work again and again, now for the first time."""
        self._queue.put(partial(self._repeat, seconds, work))

    def ask(self, question: Callable[[], T], timeout: float, of: str = "") -> T:
        """The answer, found on the loop's thread (or here, when this is it, or it does not run).

        EnvironmentFault if it does not come in time; what was asked for is still done then. `of` names it in that
        message, unless the name of the function does.
        """
        future: Future[T] = Future()
        with self._closing:
            if self._closed or not self._thread.is_alive():
                return question()  # one at a time, as on the loop
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
            f"{self._in_between()}: this process has too little CPU time, or a callback of yours (a listener of "
            "events) holds it up"
        )

    def close(self) -> None:
        """Does what is on it, and ends its thread."""
        self._queue.put(self._stop)
        self._thread.join(5.0)
        with self._closing:
            self._closed = True
            while not self._queue.empty():
                self._do(self._queue.get_nowait())  # whoever asked meanwhile is to have an answer

    def _run(self) -> None:
        due = time.monotonic()
        while self._open:
            with suppress(Empty):
                self._do(self._queue.get(timeout=max(0.0, self._next(due) - time.monotonic())))
            while self._later and self._later[0][0] <= time.monotonic():
                self._do(heapq.heappop(self._later)[2])
            due = self._on_time(time.monotonic())

    def _do(self, work: Work) -> None:
        self._doing = (name_of(work), time.monotonic())
        try:
            work()
        except Exception as reason:
            self._on_failure(reason)
        finally:
            self._doing = None

    def _next(self, due: float) -> float:
        return min(due, self._later[0][0]) if self._later else due

    def _do_at(self, at: float, work: Work) -> None:
        heapq.heappush(self._later, (at, next(self._numbers), work))

    def _repeat(self, seconds: float, work: Work) -> None:
        self._do_at(time.monotonic() + seconds, partial(self._repeat, seconds, work))
        work()

    def _in_between(self) -> str:
        """What keeps it from answering, in words."""
        doing = self._doing
        return "" if doing is None else f"; it has been at {doing[0]!r} for {time.monotonic() - doing[1]:.1f} s"

    def _stop(self) -> None:
        self._open = False


def name_of(work: Callable[..., object]) -> str:
    """The name of a function, for messages: "live nodes" for `live_nodes`.

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
