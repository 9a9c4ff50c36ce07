"""The table of requests: what a run is asked, by which path, and what is refused before the run sees it."""

from __future__ import annotations

from typing import Any

import pytest

from primitives.errors import UserError
from seep.dashboard.access import Role
from seep.dashboard.requests import ACTING, REQUESTS, Migrate, ReadStatus, request_of


def test_reading_is_by_get_for_viewers_and_acting_by_post_for_operators() -> None:
    by_rest = [each for each in REQUESTS.values() if each.path is not None]
    assert {each.do for each in by_rest if each.method == "POST"} == {*ACTING, "sql"}, "SQL is too long for a URL"
    assert {each.do for each in by_rest if each.role is Role.OPERATOR} == set(ACTING)
    assert REQUESTS["sql"].role is Role.VIEWER


def test_no_two_requests_have_the_same_path_and_all_are_explained() -> None:
    paths = [each.path for each in REQUESTS.values() if each.path is not None]
    assert len(paths) == len(set(paths)) == 19
    for each in REQUESTS.values():
        assert each.__doc__, each.do
        for name, field in each.model_fields.items():
            assert field.description, (each, name)


def test_a_request_travels_as_a_mapping_with_only_what_was_given() -> None:
    request = Migrate(operator="counter", to=4, strategy="fluid")
    assert request.body() == {"do": "migrate", "operator": "counter", "to": 4, "strategy": "fluid"}
    assert request_of(request.body()) == request
    assert request_of({"do": "status", "wait": 0.5}) == ReadStatus(wait=0.5)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"do": "dance"}, "does not know the request 'dance'; it knows run, status"),
        ({}, "does not know the request None"),
        ({"do": ["scale"]}, "does not know the request"),
        ({"do": "scale", "operator": "counter"}, "request 'scale': to: Field required"),
        ({"do": "scale", "operator": "counter", "to": "3"}, "request 'scale': to: "),
        ({"do": "scale", "operator": "counter", "to": 0}, "request 'scale': to: "),
        ({"do": "scale", "operator": "x" * 201, "to": 1}, "request 'scale': operator: "),
        ({"do": "status", "wait": 21}, "request 'status': wait: "),
        ({"do": "status", "until": 3}, "request 'status': until: Extra inputs"),
        ({"do": "sql", "operator": "counter", "sql": "x" * 10_001}, "request 'sql': sql: "),
        ({"do": "state", "operator": "counter", "limit": 501}, "request 'state': limit: "),
        ({"do": "logs", "level": "loud"}, "request 'logs': level: "),
        ({"do": "stop", "savepoint": "yes"}, "request 'stop': savepoint: "),
    ],
)
def test_a_wrong_request_is_refused_by_the_name_of_what_is_wrong(body: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as refused:
        request_of(body)
    assert words in str(refused.value)


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(UserError) as refused:
        request_of({"do": "scale", "operator": "counter", "to": "s3cr3t" * 1000})
    assert "s3cr3t" not in str(refused.value)
