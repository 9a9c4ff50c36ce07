"""A Spark session for the tests of a file: the one that runs in this process already, or a new one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from seep.spark.session import Host, open_session


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with open_session(SparkContext._active_spark_context, name="tests", slots_needed=64) as host:
        yield host
