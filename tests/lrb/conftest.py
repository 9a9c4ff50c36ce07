"""Linear Road's runs share the Spark session that those of other tests have."""

from __future__ import annotations

from tests.spark.conftest import host as host
