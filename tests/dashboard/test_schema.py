"""The API keeps to its own description, whatever schemathesis asks: what that permits, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from seep.dashboard.access import Access
from seep.dashboard.finished import FinishedRun
from seep.dashboard.requests import REQUESTS
from seep.dashboard.server import DashboardServer
from seep.dashboard.settings import DashboardSettings
from tests.dashboard.test_finished import REPORT

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
)
BOUNDED = settings(
    max_examples=20, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
ACCESS = Access()
AUTHORIZED = {"Authorization": f"Bearer {ACCESS.operator_token}"}
BY_REST = [(each.method, each.path) for each in REQUESTS.values() if each.path is not None]


@pytest.fixture(scope="module")
def server() -> Iterator[DashboardServer]:
    made = DashboardServer(DashboardSettings(port=0), FinishedRun(REPORT, "orders.json"), ACCESS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def described(server: DashboardServer) -> Any:
    answer = httpx.get(f"{server.url}/api/v1/openapi.json", headers=AUTHORIZED)
    return schemathesis.openapi.from_dict(answer.json())


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), BY_REST)
def test_answers_are_as_described_whatever_is_asked(
    server: DashboardServer, described: Any, method: str, path: str, mode: GenerationMode
) -> None:
    operation = described[f"/api/v1{path}"][method]
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
        return  # nothing in it can be wrong

    @given(case=operation.as_strategy(generation_mode=mode))
    @BOUNDED
    def ask(case: schemathesis.Case) -> None:
        answer = case.call(base_url=server.url, headers=AUTHORIZED, timeout=30)
        case.validate_response(answer, checks=CHECKS)

    ask()


def test_every_route_is_described_with_its_fields_and_its_answer(described: Any) -> None:
    described = described.raw_schema
    paths = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert paths == {*((method, f"/api/v1{path}") for method, path in BY_REST), ("GET", "/api/v1/stream")}
    for operations in described["paths"].values():
        for told in operations.values():
            assert told["summary"]
            assert told["security"], "it needs a token"
            assert "422" not in told["responses"]
            assert all(each.get("description") for each in told.get("parameters", ()))
