"""Event loop: one thread does all work in order, looks at the clock between, and answers everybody who asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from primitives.errors import EnvironmentFault
from seep.threads.event_loop import EventLoop

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


def test_who_is_not_answered_in_time_is_told_what_was_asked_and_what_holds_it_up() -> None:
    begun, free = threading.Event(), threading.Event()

    def write_everything_down(seconds: float) -> None:
        begun.set()
        free.wait(seconds)

    def live_nodes() -> int:
        return 7

    with open_loop() as loop:
        loop.put(partial(write_everything_down, 60.0))
        assert begun.wait(60.0)
        try:
            with pytest.raises(EnvironmentFault) as caught:
                loop.ask(live_nodes, 0.01)
        finally:
            free.set()
    assert "the thread 'loop' has not answered 'live nodes' within 0.01 s" in str(caught.value)
    assert "it has been at 'write everything down' for " in str(caught.value)


def test_work_for_later_is_done_in_the_order_in_which_it_is_due() -> None:
    done: list[str] = []
    over = threading.Event()
    with open_loop() as loop:
        loop.after(0.02, over.set)
        loop.after(0.01, partial(done.append, "last"))
        loop.after(0.0, partial(done.append, "first"))
        assert over.wait(60.0)
    assert done == ["first", "last"]


def test_work_that_is_repeated_is_done_again_though_it_fails() -> None:
    told: list[Exception] = []
    times = SimpleQueue[float]()

    def fail() -> None:
        times.put(time.monotonic())
        raise ValueError("every time")

    with open_loop(on_failure=told.append) as loop:
        loop.every(0.01, fail)
        first, second, third = (times.get(timeout=60.0) for _ in range(3))
    assert second - first >= 0.01
    assert third - second >= 0.01
    assert str(told[0]) == "every time"


def test_a_loop_that_has_ended_answers_one_at_a_time() -> None:
    with open_loop() as loop:
        pass
    inside = 0

    def alone() -> bool:
        nonlocal inside
        inside += 1
        time.sleep(0)  # others may run now
        is_alone = inside == 1
        inside -= 1
        return is_alone

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda _: loop.ask(alone, 10.0), range(400)))


def test_who_asks_while_the_desk_is_closed_is_answered() -> None:
    for _ in range(200):
        loop = EventLoop("loop", lambda now: now + HOUR, lambda _: None)
        loop.start()
        closing = threading.Thread(target=loop.close)
        closing.start()
        while closing.is_alive():
            assert loop.ask(lambda: "answer", 10.0) == "answer"
        closing.join()
