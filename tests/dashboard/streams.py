"""A viewer of the dashboard's stream of server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx


@contextmanager
def watching(api: httpx.Client) -> Iterator[Iterator[tuple[str, Any]]]:
    """The server-sent events: name and data."""

    def read(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)

    with api.stream("GET", "stream") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield read(answer)
