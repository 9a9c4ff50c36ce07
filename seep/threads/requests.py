"""Requests that other threads make of one that works for them: each is answered once, also when there is nobody left.

>>> requests: Requests[str, int] = Requests()
>>> answer = requests.add("counter")
>>> [(request.of, request.answer.set_result(7)) for request in requests.take()]
[('counter', None)]
>>> answer.result()
7
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from primitives.errors import EnvironmentFault, SeepError

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Request(Generic[T, A]):
    """What somebody asks for, and where the answer goes."""

    of: T
    answer: Future[A]


class Requests(Generic[T, A]):
    """For any thread; after `close`, whoever asks is refused at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Request[T, A]] = []
        self._refusal: SeepError | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, of: T) -> Future[A]:
        request = Request(of, Future[A]())
        with self._lock:
            if self._refusal is None:
                self._waiting.append(request)
            else:
                request.answer.set_exception(self._refusal)
        return request.answer

    def take(self) -> list[Request[T, A]]:
        """All that were made so far; without those that nobody waits for any more."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return [request for request in taken if request.answer.set_running_or_notify_cancel()]

    def close(self, why: SeepError) -> None:
        """Refuses what is left, and all that is still to come."""
        with self._lock:
            self._refusal = self._refusal or why
        for request in self.take():
            request.answer.set_exception(why)


def answer_of(answer: Future[A], timeout: float, of: str, waits_for: Callable[[], str]) -> A:
    """The answer; an EnvironmentFault that says what is waited for, if it does not come in time.

    A request that nobody has begun with is withdrawn then.
    """
    try:
        return answer.result(timeout)
    except TimeoutError:
        is_withdrawn = answer.cancel()
    if answer.done() and not is_withdrawn:
        return answer.result()
    become = "the request is withdrawn" if is_withdrawn else "what was begun goes on"
    raise EnvironmentFault(f"no {of} within {timeout:g} s: {waits_for()}; {become}. Allow more time with timeout=…")
