"""One Spark session for all tests of a file that run queries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seep.spark.session import Host, open_session


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    """A local Spark with more task slots than any test needs."""
    with open_session(None, name="tests", slots_needed=64) as host:
        yield host
