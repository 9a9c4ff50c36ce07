"""Launches queries and previews streams. `seep` provides both, so that the query API does not depend on processes.

`import seep` imports this module, so it needs nothing but the standard library: see `seep.spark.namesakes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Find = Callable[[], Callable[..., Any]]

_found: dict[str, _Find] = {}


def provide(launch: _Find, preview: _Find) -> None:
    """Registers what returns the functions that launch a query and preview a stream; their imports come late."""
    _found.update(launch=launch, preview=preview)


def launch(query: Any, spark: Any, **options: Any) -> Any:
    """Launches the query; see `seep.launch`."""
    return _found["launch"]()(query, spark, **options)


def preview(stream: Any, rows: int, epochs: int) -> Any:
    """Returns the first rows of a stream; see `Stream.preview`."""
    return _found["preview"]()(stream, rows, epochs)
