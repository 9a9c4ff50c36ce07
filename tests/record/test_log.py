"""The log of a run keeps the newest events of each kind, and tells all of them to whoever listens."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from primitives.event import Event
from seep.protocol.events import MoveAnnounced, MoveComplete
from seep.record.events import CheckpointPersisted, NodeJoined, RunFinished
from seep.record.log import EventLog


def complete(plan: int) -> MoveComplete:
    return MoveComplete(operator="counter", plan=plan)


def announced(plan: int) -> MoveAnnounced:
    return MoveAnnounced(operator="counter", plan=plan, first=1, slots=1, view=1)


def test_what_happens_often_does_not_drive_out_what_happens_once() -> None:
    log = EventLog(time.monotonic, most=100)
    log.add(RunFinished(why="at epoch 1"))
    for number in range(25_000):
        log.add(announced(number))
        log.add(complete(number))
    assert [event.detail for event in log.of("finished")] == ["at epoch 1"]
    assert len(log) == 201
    assert log.totals == {"finished": 1, "move announced": 25_000, "move complete": 25_000}
    kinds = [event.kind for event in log]
    assert kinds == ["finished", *["move announced", "move complete"] * 100], "in the order in which they happened"
    assert [event.detail for event in log.of("move complete")] == [f"plan {n}" for n in range(24_900, 25_000)]


def test_the_newest_of_each_kind_are_returned_in_the_order_in_which_they_happened() -> None:
    log = EventLog(time.monotonic)
    for number in range(100):
        log.add(announced(number))
        log.add(complete(number))
    log.add(RunFinished())
    newest = [event.text() for event in log.newest(2, *log.kinds)]
    assert [text.split(" counter")[0] for text in newest] == [*["move announced", "move complete"] * 2, "finished"]
    assert [event.detail for event in log.newest(3, "move complete", "no such kind")] == [
        "plan 97",
        "plan 98",
        "plan 99",
    ]


def test_who_listens_hears_of_all_events_though_few_are_kept() -> None:
    log, heard = EventLog(time.monotonic, most=10), deque[Event]()
    log.listen(heard.append)
    for number in range(1000):
        log.add(CheckpointPersisted(id=number, epoch=number, seconds=0.1))
    assert len(heard) == 1000


def test_events_of_many_threads_are_all_counted_while_others_read_them() -> None:
    log, over = EventLog(time.monotonic, most=50), threading.Event()

    def read() -> int:
        looks = 0
        while not over.is_set():
            assert len(list(log)) <= 100
            log.of("move announced", "move complete")
            looks += 1
        return looks

    with switching_often(), ThreadPoolExecutor(4) as threads:
        reader = threads.submit(read)
        writers = [
            threads.submit(lambda made=made: [log.add(made(number)) for number in range(3000)])  # type: ignore[misc]
            for made in (announced, announced, complete)
        ]
        for writer in writers:
            writer.result(60)
        over.set()
        assert reader.result(60)
    assert log.totals == {"move announced": 6000, "move complete": 3000}


@contextmanager
def switching_often() -> Iterator[None]:
    """Threads take turns far more often, so that what is not safe fails soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_times_are_counted_from_the_beginning_of_the_query_also_of_what_happened_before_it() -> None:
    now = [100.0]
    log = EventLog(lambda: now[0])
    now[0] = 103.0
    assert log.add(NodeJoined(node="n1")).at == 3.0
    now[0] = 105.0
    log.begin()
    now[0] = 106.5
    log.add(RunFinished())
    assert [event.at for event in log] == [-2.0, 1.5]
    assert log.now == 1.5


def test_an_event_keeps_a_time_that_it_has() -> None:
    log = EventLog(lambda: 9.0)
    assert log.add(NodeJoined(node="n1", at=4.0)).at == 4.0


def test_the_events_after_a_number_are_returned_once_each_however_they_are_asked_for() -> None:
    log, seen, number = EventLog(time.monotonic, most=100), list[str](), -1
    assert log.after(-1, 10) == (-1, [])
    for at in range(60):
        log.add(announced(at))
        log.add(complete(at))
        if at % 7 == 0:
            number, new = log.after(number, 500)
            seen += [event.text() for event in new]
    number, new = log.after(number, 500)
    assert seen + [event.text() for event in new] == [event.text() for event in log]
    assert log.after(number, 500) == (119, [])
    assert [event.text() for event in log.after(-1, 3)[1]] == [event.text() for event in log][-3:]
