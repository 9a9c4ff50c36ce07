"""Versions of what a process of a run is made of, for its first log line."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from primitives.errors import DISTRIBUTION

_PACKAGES = ("pyspark", "pyarrow", "numpy")


def versions() -> str:
    """Returns the versions of seep, Python and the packages that matter most, in words."""
    named = ("seep", own_version()), ("Python", platform.python_version())
    return ", ".join(f"{name} {number}" for name, number in (*named, *((each, _version(each)) for each in _PACKAGES)))


def own_version() -> str:
    """Returns the version of seep itself."""
    return _version(DISTRIBUTION)


def _version(distribution: str) -> str:
    """Returns a version; packages that travelled with the job have none of their own."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
