"""Notices of interruption, from a metadata service on loopback."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import pytest

from tests.deploy.scripted_server import serving
from vmpool.interruption import Ec2Notices, watch

TOKEN = (200, "token-1")
NONE = (404, "")


def now() -> datetime:
    return datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def notice(time: str) -> tuple[int, str]:
    return 200, json.dumps({"action": "terminate", "time": time})


def test_a_notice_says_how_long_the_vm_has_left() -> None:
    with serving(TOKEN, notice("2026-01-01T12:02:00Z")) as service:
        assert Ec2Notices(service.url, now).poll() == 120.0


def test_a_time_that_has_passed_leaves_nothing() -> None:
    with serving(TOKEN, notice("2026-01-01T11:00:00Z")) as service:
        assert Ec2Notices(service.url, now).poll() == 0.0


def test_the_service_is_asked_with_a_token_that_it_gave_and_for_one_only() -> None:
    with serving(TOKEN, NONE) as service:
        notices = Ec2Notices(service.url, now)
        assert (notices.poll(), notices.poll()) == (None, None)
    first, second, third = service.asked
    assert (first.method, first.path) == ("PUT", "/latest/api/token")
    assert second.path == third.path == "/latest/meta-data/spot/instance-action"
    assert second.headers["X-Aws-Ec2-Metadata-Token".title()] == "token-1"


def test_a_token_that_is_too_old_is_replaced() -> None:
    with serving(TOKEN, (401, ""), TOKEN, notice("2026-01-01T12:00:30Z")) as service:
        notices = Ec2Notices(service.url, now)
        assert (notices.poll(), notices.poll()) == (None, 30.0)


@pytest.mark.parametrize(
    "answer", [(500, "busy"), (200, "no JSON"), (200, "{}"), (200, "[]"), notice("soon"), notice("2026-01-01T12:00:00")]
)
def test_what_makes_no_sense_is_no_notice(answer: tuple[int, str]) -> None:
    with serving(TOKEN, answer) as service:
        assert Ec2Notices(service.url, now).poll() is None


def test_a_service_that_is_not_there_has_said_nothing() -> None:
    assert Ec2Notices("http://127.0.0.1:1", now).poll() is None


class Told:
    """Notices by a script."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)

    def poll(self) -> float | None:
        return self.answers.pop(0)


def test_a_notice_is_told_once_and_ends_the_watch() -> None:
    told: list[float] = []
    notices = Told(None, None, 90.0, 80.0)
    watch(notices, 0.001, told.append, threading.Event())
    assert (told, notices.answers) == ([90.0], [80.0])


def test_a_watch_that_is_stopped_asks_no_more() -> None:
    stop = threading.Event()
    stop.set()
    notices = Told(90.0)
    watch(notices, 0.001, lambda _: None, stop)
    assert notices.answers == [90.0]
