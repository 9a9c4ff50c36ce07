"""Worker: one thread does in turn what others have no time for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial

from seep.threads.worker import Worker


def test_work_is_done_in_turn_on_one_thread_also_after_some_that_fails() -> None:
    done, told = list[str](), list[BaseException]()
    worker = Worker("seep chores", told.append)

    def note() -> None:
        done.append(threading.current_thread().name)

    work: list[Callable[[], object]] = [note, partial(int, "no number"), note, partial(sys.exit, 3), note]
    for each in work:
        worker.put(each)
    worker.close(60.0)
    assert done == ["seep chores"] * 3
    assert [type(reason) for reason in told] == [ValueError, SystemExit]


def test_close_does_not_wait_for_work_that_hangs_and_nothing_is_taken_after_it() -> None:
    worker, free, begun = Worker("seep chores"), threading.Event(), threading.Event()
    worker.put(begun.set)
    worker.put(partial(free.wait, 60.0))
    assert begun.wait(60.0)
    worker.close(0.01)
    waiting = worker.waiting
    worker.put(begun.clear)
    assert worker.waiting == waiting
    free.set()
    worker.close(60.0)
    assert begun.is_set()


def test_no_thread_is_started_where_there_is_no_work() -> None:
    before = set(threading.enumerate())
    Worker("seep chores").close()
    assert set(threading.enumerate()) <= before
