"""Chores: one thread does in turn what nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from seep.runtime.chores import Chores


def test_chores_are_done_in_turn_on_one_thread_also_after_one_that_fails() -> None:
    chores, done = Chores(), list[str]()

    def note() -> None:
        done.append(threading.current_thread().name)

    work: list[Callable[[], object]] = [note, partial(int, "no number"), note]
    for each in work:
        chores.put(each)
    chores.close(60.0)
    assert done == ["seep chores"] * 2


def test_close_does_not_wait_for_a_chore_that_hangs() -> None:
    chores, free, begun = Chores(), threading.Event(), threading.Event()
    chores.put(begun.set)
    chores.put(partial(free.wait, 60.0))
    assert begun.wait(60.0)
    chores.close(0.01)
    assert not free.is_set()
    free.set()


def test_no_thread_is_started_where_there_are_no_chores() -> None:
    before = set(threading.enumerate())
    chores = Chores()
    chores.close()
    assert set(threading.enumerate()) <= before
