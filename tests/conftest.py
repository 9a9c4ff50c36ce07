"""Settings that all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The first example of a test may compile a Numba kernel, which takes longer than any deadline that would be of use; and
# all tests together have 15 minutes. Everything else stays as Hypothesis has it, its own settings for CI included.
settings.register_profile("seep", settings(), deadline=None, max_examples=20)
settings.load_profile("seep")


#: Files that take longest, the longest first: a worker that begins with them does not keep all others waiting.
#: xdist would put them in an order of its own; `--no-loadscope-reorder` has it not do so.
LONG = (
    "tests/runtime/test_durable.py",
    "tests/runtime/test_migrations.py",
    "tests/spark/test_drivers.py",
    "tests/runtime/test_corruption.py",
    "tests/runtime/test_operating.py",
    "tests/spark/test_restarts.py",
    "tests/runtime/test_kernel.py",
    "tests/dashboard/test_page_views.py",
    "tests/dashboard/test_page.py",
    "tests/runtime/test_standalone.py",
    "tests/simulator/test_schedules.py",
    "tests/spark/test_spark_out.py",
    "tests/spark/test_spark_in.py",
    "tests/runtime/test_elastic.py",
    "tests/runtime/test_dashboard.py",
    "tests/runtime/test_balancing.py",
    "tests/runtime/test_runs.py",
    "tests/inspection/test_in_spark.py",
    "tests/kafka/test_kafka.py",
    "tests/cli/test_wordcount.py",
    "tests/simulator/test_rules.py",
    "tests/vmpool/test_standalone.py",
    "tests/nexmark/test_queries.py",
    "tests/lrb/test_query.py",
    "tests/lrb/test_run_command.py",
    "tests/runtime/test_replicas.py",
    "tests/runtime/test_larger_than_memory.py",
    "tests/inspection/test_state_commands.py",
    "tests/deploy/test_ec2_cluster.py",
    "tests/runtime/test_extras.py",
    "tests/runtime/test_evolving.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, else as they were."""
    rank = {name: at for at, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(LONG)))
