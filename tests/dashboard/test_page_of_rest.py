"""docs/rest.md: its table is that of the requests, and its examples are requests that the API has."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from seep.dashboard.requests import REQUESTS, RunRequest, request_of

PAGE = (Path(__file__).parents[2] / "docs" / "rest.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
REPEATED = {"only", "key"}


def row(kind: type[RunRequest]) -> str:
    fields = ", ".join(f"`{name}`{'' if field.is_required() else '?'}" for name, field in kind.model_fields.items())
    words = " ".join((kind.__doc__ or "").split()).rstrip(".")
    return f"| `{kind.method} {kind.path}` | {kind.role} | {fields or '–'} | {words[0].lower()}{words[1:]} |"


def test_the_page_has_the_table_of_all_requests() -> None:
    rows = [row(kind) for kind in REQUESTS.values() if kind.path is not None]
    missing = [each for each in rows if each not in PAGE]
    assert not missing, "put these rows into docs/rest.md:\n" + "\n".join(missing)
    assert PAGE.count("| `GET /") + PAGE.count("| `POST /") == len(rows)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_request_of_the_table(example: str) -> None:
    url = urlsplit(re.search(r"http://[^\s\"]+", example)[0])  # type: ignore[index]
    path, data = url.path.removeprefix("/api/v1"), re.search(r"--json '([^']*)'", example)
    if path == "/stream":
        return
    (kind,) = [each for each in REQUESTS.values() if each.path == path]
    assert kind.method == ("POST" if data else "GET")
    given = json.loads(data[1]) if data else {}
    for name, value in parse_qsl(url.query):
        given[name] = [*given.get(name, []), value] if name in REPEATED else value
    assert request_of({"do": kind.do, **given}).do == kind.do


def test_the_examples_are_there_and_all_errors_are_explained() -> None:
    assert len(EXAMPLES) >= 6
    codes = re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE)
    assert [HTTPStatus(int(code)).value for each in codes for code in each.split(",")] == [
        400, 401, 403, 404, 405, 409, 413, 421, 429, 503
    ]  # fmt: skip
