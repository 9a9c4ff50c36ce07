"""Requests: each is answered once, whoever asks and however it ends."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from primitives.errors import EnvironmentFault
from seep.threads.requests import Requests, answer_of

OVER = EnvironmentFault("the run is over")


def test_every_request_of_many_threads_is_taken_exactly_once() -> None:
    requests: Requests[int, int] = Requests()
    asked, over = 20_000, threading.Event()

    def serve() -> None:
        while not over.is_set() or requests:
            for request in requests.take():
                request.answer.set_result(request.of)

    with ThreadPoolExecutor(9) as threads:
        served = threads.submit(serve)
        answers = list(threads.map(requests.add, range(asked)))
        over.set()
        served.result(60)
    assert [answer.result(0) for answer in answers] == list(range(asked))


def test_what_is_asked_for_while_others_are_served_waits_for_the_next_time() -> None:
    requests: Requests[str, int] = Requests()
    requests.add("first")
    served = requests.take()
    requests.add("second")
    assert [request.of for request in served] == ["first"]
    assert [request.of for request in requests.take()] == ["second"]


def test_who_asks_before_or_after_the_end_is_refused() -> None:
    requests: Requests[str, int] = Requests()
    before = requests.add("before")
    requests.close(OVER)
    for answer in (before, requests.add("after")):
        with pytest.raises(EnvironmentFault, match="the run is over"):
            answer.result(0)


def test_what_does_not_come_in_time_is_withdrawn_and_says_what_was_waited_for() -> None:
    requests: Requests[str, int] = Requests()
    with pytest.raises(EnvironmentFault, match=r"^no savepoint within 0\.01 s: it waits for rain; the request is with"):
        answer_of(requests.add("save"), 0.01, "savepoint", lambda: "it waits for rain")
    assert requests.take() == []


def test_what_was_begun_goes_on_though_nobody_waits_any_more() -> None:
    requests: Requests[str, int] = Requests()
    answer = requests.add("save")
    (request,) = requests.take()
    with pytest.raises(EnvironmentFault, match="what was begun goes on"):
        answer_of(answer, 0.01, "savepoint", lambda: "it waits for rain")
    request.answer.set_result(3)
    assert answer_of(answer, 0.01, "savepoint", lambda: "") == 3


def test_a_refusal_is_passed_on() -> None:
    answer: Future[int] = Future()
    answer.set_exception(OVER)
    with pytest.raises(EnvironmentFault, match="the run is over"):
        answer_of(answer, 1.0, "savepoint", lambda: "")
