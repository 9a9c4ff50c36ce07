"""Consultants: questions to users' code are answered on threads of their own, whatever that code does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from primitives.errors import EnvironmentFault
from seep.driver.consultants import WAITING, Consultants, Consultation, Question
from tests.waiting import eventually

POLICY, BALANCER, STEPS = Consultation.POLICY, Consultation.BALANCER, Consultation.STEPS


class Asking:
    """Consultants and what they have answered."""

    def __init__(self) -> None:
        self.answers: SimpleQueue[tuple[int, object]] = SimpleQueue()
        self.consultants = Consultants(lambda number, result: self.answers.put((number, result)))

    def ask(self, number: int, kind: Consultation, work: Callable[[], object]) -> None:
        self.consultants.ask(number, kind, Question(f"{kind} number {number}", work))

    def answer(self) -> tuple[int, object]:
        return self.answers.get(timeout=30.0)


@contextmanager
def hung(asking: Asking, kind: Consultation) -> Iterator[threading.Event]:
    """A question that does not return before the block ends, and is being asked."""
    begun, free = threading.Event(), threading.Event()
    asking.ask(0, kind, lambda: begun.set() or free.wait(60.0))  # type: ignore[func-returns-value]
    assert begun.wait(30.0)
    try:
        yield free
    finally:
        free.set()


@pytest.fixture
def asking() -> Iterator[Asking]:
    asking = Asking()
    yield asking
    asking.consultants.close()


def test_an_answer_comes_with_the_number_of_its_question(asking: Asking) -> None:
    for number in range(5):
        asking.ask(number, POLICY, lambda number=number: number * number)  # type: ignore[misc]
    assert [asking.answer() for _ in range(5)] == [(number, number * number) for number in range(5)]


def test_each_kind_has_one_thread_which_begins_with_its_first_question(asking: Asking) -> None:
    before = {thread.name for thread in threading.enumerate()}
    assert not before & {"seep consultant policy", "seep consultant balancer", "seep consultant steps"}
    for number, kind in enumerate([POLICY, BALANCER, POLICY]):
        asking.ask(number, kind, threading.current_thread)
    threads = dict(asking.answer() for _ in range(3))
    assert threads[0] is threads[2]
    names = [threads[number].name for number in (0, 1)]  # type: ignore[attr-defined]
    assert names == ["seep consultant policy", "seep consultant balancer"]
    assert threads[0].daemon  # type: ignore[attr-defined]


def test_a_question_that_hangs_keeps_only_its_own_kind_busy(asking: Asking) -> None:
    with hung(asking, POLICY):
        asking.ask(1, POLICY, lambda: "later")
        asking.ask(2, BALANCER, lambda: "balanced")
        asking.ask(3, STEPS, lambda: "steps")
        assert sorted([asking.answer(), asking.answer()]) == [(2, "balanced"), (3, "steps")]
        assert asking.answers.empty()
    assert [asking.answer(), asking.answer()] == [(0, True), (1, "later")]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_what_a_question_raises_is_its_answer_and_the_next_is_asked(asking: Asking, kind: type[BaseException]) -> None:
    def work() -> object:
        raise kind("of a user")

    asking.ask(1, POLICY, work)
    asking.ask(2, POLICY, lambda: "answer")
    number, raised = asking.answer()
    assert (number, type(raised), str(raised)) == (1, kind, "of a user")
    assert asking.answer() == (2, "answer")


def test_it_tells_what_is_being_asked_and_for_how_long(asking: Asking) -> None:
    assert asking.consultants.busy() == {}
    with hung(asking, STEPS):
        name, seconds = asking.consultants.busy()[STEPS]
        assert name == "steps number 0"
        assert eventually(lambda: asking.consultants.busy()[STEPS][1] > seconds)
    asking.answer()
    assert asking.consultants.busy() == {}


def test_a_kind_that_hangs_takes_so_many_questions_and_refuses_the_next(asking: Asking) -> None:
    with hung(asking, POLICY):
        for number in range(1, WAITING + 2):
            asking.ask(number, POLICY, lambda: "answer")
        number, refusal = asking.answer()
        assert number == WAITING + 1
        assert isinstance(refusal, EnvironmentFault)
        assert f"policy number {WAITING + 1} cannot be asked: {WAITING} questions wait for policy number 0" in str(
            refusal
        )
    assert [asking.answer()[0] for _ in range(WAITING + 1)] == list(range(WAITING + 1))


def test_close_does_not_wait_for_a_question_that_hangs_and_nobody_hears_of_it() -> None:
    asking = Asking()
    with hung(asking, POLICY) as free:
        asking.ask(1, POLICY, lambda: "never asked")
        asking.consultants.close(0.05)
        assert asking.consultants.busy().keys() == {POLICY}
        assert not free.is_set()
    assert eventually(lambda: asking.consultants.busy() == {})
    assert eventually(lambda: "seep consultant policy" not in {thread.name for thread in threading.enumerate()})
    assert asking.answers.empty()


def test_close_waits_for_a_question_that_returns_in_time_and_then_asks_nothing() -> None:
    asking = Asking()
    begun, done = threading.Event(), threading.Event()
    asking.ask(1, POLICY, lambda: begun.set() or done.set())  # type: ignore[func-returns-value]
    assert begun.wait(30.0)
    asking.consultants.close(30.0)
    assert done.is_set()
    asking.ask(2, BALANCER, lambda: done.clear())
    assert done.is_set()
    assert "seep consultant balancer" not in {thread.name for thread in threading.enumerate()}
