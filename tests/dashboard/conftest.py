"""One Spark session for all tests of a file that run queries."""

from tests.runtime.conftest import host as host
