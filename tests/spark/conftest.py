"""A Spark session for the tests of a file: the one that runs in this process already, or a new one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from seep.spark.session import Host, open_session
from tests.spark.small import for_small_data


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with open_session(SparkContext._active_spark_context, name="tests") as host:
        yield host


@pytest.fixture(scope="module")
def spark(host: Host) -> SparkSession:
    return for_small_data(SparkSession(host.context))
