"""What the tests of storage share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.storage.backends import KINDS, Backend, backend, s3_server


@pytest.fixture(scope="session", autouse=True)
def quiet_server() -> None:
    """The server's log is of no interest."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)


@pytest.fixture(scope="session", params=KINDS)
def make_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Each back end in turn."""
    with backend(request.param, tmp_path_factory.mktemp(request.param)) as make:
        yield make


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server for S3."""
    with s3_server() as url:
        yield url
