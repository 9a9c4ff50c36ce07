"""Kernels: functions over arrays that Numba compiles to machine code and caches on disk for later processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles the function at its first call for each combination of types.

    The compiled code releases Python's lock.
    """
    compiled = njit(cache=True, nogil=True)(function)
    if (cache := getattr(compiled, "_cache", None)) is not None:
        _bind_to_source(cache._cache_file)
    return compiled


def _bind_to_source(file: Any) -> None:
    """Adds the source to the version that Numba compares first in an index of compiled code.

    Without that, Numba would unpickle an outdated index before it notices, which fails if the index names a class that
    does not exist any more. So an upgrade of the project in place would break.
    """
    file._version = (file._version, file._source_stamp)
