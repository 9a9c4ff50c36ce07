"""Requests from other threads to a working thread: each is answered once, even after the working thread has ended.

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
    """A request, and the future for its answer."""

    of: T
    answer: Future[A]


class Requests(Generic[T, A]):
    """The waiting requests; any thread may add one. After `close`, new requests are refused at once."""

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
        """Takes all waiting requests, without those that were cancelled."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return [request for request in taken if request.answer.set_running_or_notify_cancel()]

    def close(self, why: SeepError) -> None:
        """Refuses the waiting requests, and all later ones."""
        with self._lock:
            self._refusal = self._refusal or why
        for request in self.take():
            request.answer.set_exception(why)


def answer_of(answer: Future[A], timeout: float, of: str, waits_for: Callable[[], str]) -> A:
    """Waits for the answer; if it does not come in time, raises EnvironmentFault that says what it waits for.

    A request on which no work has begun is cancelled then.
    """
    try:
        return answer.result(timeout)
    except TimeoutError:
        is_withdrawn = answer.cancel()
    if answer.done() and not is_withdrawn:
        return answer.result()
    become = "the request is withdrawn" if is_withdrawn else "what was begun goes on"
    raise EnvironmentFault(f"no {of} within {timeout:g} s: {waits_for()}; {become}. Allow more time with timeout=…")
