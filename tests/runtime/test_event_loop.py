"""Event loop: one thread does all work in order, looks at the clock between, and answers everybody who asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from primitives.errors import EnvironmentFault
from seep.runtime.event_loop import EventLoop

HOUR = 3600.0


@contextmanager
def open_loop(
    on_time: Callable[[float], float] = lambda now: now + HOUR, on_failure: Callable[[Exception], None] = lambda _: None
) -> Iterator[EventLoop]:
    loop = EventLoop("loop", on_time, on_failure)
    loop.start()
    try:
        yield loop
    finally:
        loop.close()


def test_work_is_done_in_order_and_on_one_thread() -> None:
    done: list[tuple[int, str]] = []
    loop = EventLoop("loop", lambda now: now + HOUR, lambda _: None)
    for number in range(20):
        loop.put(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
    loop.start()
    assert loop.ask(lambda: len(done), 10.0) == 20
    loop.close()
    assert done == [(number, "loop") for number in range(20)]


def test_who_asks_is_told_what_the_question_raised() -> None:
    told: list[Exception] = []
    with open_loop(on_failure=told.append) as loop, pytest.raises(ZeroDivisionError):
        loop.ask(lambda: 1 // 0, 10.0)
    assert told == []


def test_a_question_on_the_desk_may_ask_another() -> None:
    with open_loop() as loop:
        assert loop.ask(lambda: loop.ask(lambda: "inner", 0.0), 10.0) == "inner"


def test_work_that_fails_is_told_and_the_next_is_done() -> None:
    told: list[Exception] = []
    with open_loop(on_failure=told.append) as loop:
        loop.put(lambda: [][0])
        assert loop.ask(lambda: len(told), 10.0) == 1
    assert isinstance(told[0], IndexError)


def test_what_is_due_is_done_while_nobody_asks_for_anything() -> None:
    times: list[float] = []
    thrice = threading.Event()

    def on_time(now: float) -> float:
        times.append(now)
        if len(times) == 3:
            thrice.set()
        return now

    with open_loop(on_time):
        assert thrice.wait(10.0)
    assert times == sorted(times)


def test_a_closed_desk_has_done_all_and_answers_where_it_is_asked() -> None:
    done: list[int] = []
    with open_loop() as loop:
        loop.put(lambda: done.append(1))
    assert done == [1]
    assert loop.ask(threading.current_thread, 0.0) is threading.current_thread()


def test_who_is_not_answered_in_time_is_told_whose_answer_it_was() -> None:
    free = threading.Event()
    with open_loop() as loop:
        loop.put(lambda: free.wait(60) and None)  # type: ignore[func-returns-value]
        try:
            with pytest.raises(EnvironmentFault, match=r"the thread 'loop' has not answered within 0\.01 s"):
                loop.ask(lambda: 7, 0.01)
        finally:
            free.set()


def test_who_asks_while_the_desk_is_closed_is_answered() -> None:
    for _ in range(200):
        loop = EventLoop("loop", lambda now: now + HOUR, lambda _: None)
        loop.start()
        closing = threading.Thread(target=loop.close)
        closing.start()
        while closing.is_alive():
            assert loop.ask(lambda: "answer", 10.0) == "answer"
        closing.join()
