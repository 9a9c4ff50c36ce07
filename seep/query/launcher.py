"""The launcher: starts a query. `seep` provides it, so that the query API need not know of processes.

`import seep` imports this module, so it needs nothing but the standard library: see `seep.spark.namesakes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_found: list[Callable[[], Callable[..., Any]]] = []


def provide(find: Callable[[], Callable[..., Any]]) -> None:
    """`find` gives what launches a query; it is called when that is first needed, as it takes time to import."""
    _found[:] = [find]


def launch(query: Any, spark: Any, **options: Any) -> Any:
    """A run of the query; see `seep.launch`."""
    return _found[0]()(query, spark, **options)
