"""The launcher starts a query. `seep` provides it, so that the query API does not depend on processes.

`import seep` imports this module, so it needs nothing but the standard library: see `seep.spark.namesakes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_found: list[Callable[[], Callable[..., Any]]] = []


def provide(find: Callable[[], Callable[..., Any]]) -> None:
    """Registers `find`, which returns the function that launches a query; its import is slow, so it is called late."""
    _found[:] = [find]


def launch(query: Any, spark: Any, **options: Any) -> Any:
    """Launches the query; see `seep.launch`."""
    return _found[0]()(query, spark, **options)
