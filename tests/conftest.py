"""Settings that all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The first example of a test may compile a Numba kernel, which takes longer than any deadline that would be of use.
# Everything else stays as Hypothesis has it, its own settings for CI included.
settings.register_profile("seep", settings(), deadline=None)
settings.load_profile("seep")


#: Files that take longest, the longest first: a worker that begins with them does not keep all others waiting.
LONG = (
    "tests/runtime/test_runs.py",
    "tests/runtime/test_standalone.py",
    "tests/simulator/test_rules.py",
    "tests/runtime/test_durable.py",
    "tests/vmpool/test_standalone.py",
    "tests/runtime/test_elastic.py",
    "tests/spark/test_drivers.py",
    "tests/runtime/test_migrations.py",
    "tests/runtime/test_balancing.py",
    "tests/runtime/test_corruption.py",
    "tests/runtime/test_replicas.py",
    "tests/runtime/test_larger_than_memory.py",
    "tests/runtime/test_evolving.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, else as they were."""
    rank = {name: at for at, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(LONG)))
