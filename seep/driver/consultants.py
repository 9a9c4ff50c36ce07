"""Asks policies, balancers and step planners on worker threads, so that they cannot block or break the event loop.

User code runs here: it may be slow, hang, or raise anything. Each kind of question has its own thread, so a question
that never returns blocks only questions of its own kind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from primitives.errors import EnvironmentFault
from seep.threads.worker import Worker

#: The most questions of one kind that may wait while another one is being answered.
WAITING = 16


class Consultation(StrEnum):
    """The kind of a question. Questions of one kind are answered one after the other, on one thread."""

    POLICY = "policy"
    BALANCER = "balancer"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and its name for messages, such as "policy CpuThreshold"."""

    name: str
    work: Callable[[], object]

    def __call__(self) -> object:
        return self.work()


class Consultants:
    """Asks questions and returns each answer by `answered(number, result)`; the result is the exception of the
    question, if it raised one (any `BaseException`, including `SystemExit` and `KeyboardInterrupt`).

    `answered` is called on the worker thread, or on the asking thread if the question is refused at once. It must
    not raise, and must return soon.
    """

    def __init__(self, answered: Callable[[int, object], None]) -> None:
        self._answered = answered
        self._consultants: dict[Consultation, _Consultant] = {}
        self._is_closed = False
        self._lock = threading.Lock()  #: guards both of these

    def ask(self, number: int, kind: Consultation, question: Question) -> None:
        """Queues a question and returns at once. After `close`, it does nothing."""
        with self._lock:
            if self._is_closed:
                return
            if kind not in self._consultants:
                self._consultants[kind] = _Consultant(kind, self._answered)
            consultant = self._consultants[kind]
        consultant.ask(number, question)

    def busy(self) -> dict[Consultation, tuple[str, float]]:
        """Returns, for each kind that is busy, the question's name, and how many seconds it has taken so far."""
        with self._lock:
            consultants = tuple(self._consultants.values())
        return {each.kind: each.busy for each in consultants if each.busy is not None}

    def close(self, timeout: float = 1.0) -> None:
        """Waits at most `timeout` seconds in total for running questions; later answers are ignored."""
        with self._lock:
            self._is_closed = True
            consultants = tuple(self._consultants.values())
        deadline = time.monotonic() + timeout
        for consultant in consultants:
            consultant.dismiss()
        for consultant in consultants:
            consultant.close(max(0.0, deadline - time.monotonic()))


class _Consultant:
    """The thread of one kind, and its waiting questions."""

    def __init__(self, kind: Consultation, answered: Callable[[int, object], None]) -> None:
        self.kind = kind
        self._answered = answered
        self._asked: tuple[str, float] | None = None  #: the current question, and its start
        self._is_dismissed = False
        self._worker = Worker(f"seep consultant {kind}")

    @property
    def busy(self) -> tuple[str, float] | None:
        """The current question, and its seconds so far; None if there is none."""
        asked = self._asked
        return None if asked is None else (asked[0], time.monotonic() - asked[1])

    def ask(self, number: int, question: Question) -> None:
        if self._worker.waiting < WAITING:
            self._worker.put(partial(self._answer, number, question))
        else:
            self._answered(number, self._refusal(question))

    def dismiss(self) -> None:
        """Drops the waiting questions."""
        self._is_dismissed = True

    def close(self, timeout: float) -> None:
        self._worker.close(timeout)

    def _answer(self, number: int, question: Question) -> None:
        if self._is_dismissed:
            return
        self._asked = (question.name, time.monotonic())
        result = _answer_of(question)
        self._asked = None
        if not self._is_dismissed:
            self._answered(number, result)

    def _refusal(self, question: Question) -> EnvironmentFault:
        name, seconds = self.busy or ("the one before", 0.0)
        return EnvironmentFault(
            f"{question.name} cannot be asked: {WAITING} questions wait for {name}, which has not returned for "
            f"{seconds:.1f} s"
        )


def _answer_of(question: Question) -> object:
    try:
        return question()
    except BaseException as reason:  # also SystemExit: a policy that calls sys.exit() must not end this thread
        return reason
