"""Stateful stream processing that can grow, shrink, heal and rebalance while it runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seep.query import launcher

if TYPE_CHECKING:
    from formats.evolution import column
    from primitives.errors import EnvironmentFault, InternalError, SeepError, UserError
    from seep import sinks, sources, testing
    from seep.operators.aggregation.agg import count, first, last, max, mean, min, sum
    from seep.operators.context import Context, Inputs
    from seep.operators.custom import Operator, StatelessOperator
    from seep.operators.errors import UserCodeFailed
    from seep.operators.windows import Session as session
    from seep.operators.windows import Sliding as sliding
    from seep.operators.windows import Tumbling as tumbling
    from seep.query.query import Query
    from seep.query.stream import Stream
    from seep.rows.rate import Profile, Rate
    from seep.running.falling_back import launch
    from seep.running.live_runs import runs
    from seep.running.run import Run
    from seep.running.stateful import stateful
    from seep.spark.inlet.source import from_spark
    from seep.spark.out.registering import register
    from seep.spark.processors.operator import from_processor

__all__ = [
    "Context",
    "EnvironmentFault",
    "Inputs",
    "InternalError",
    "Operator",
    "Profile",
    "Query",
    "Rate",
    "Run",
    "SeepError",
    "StatelessOperator",
    "Stream",
    "UserCodeFailed",
    "UserError",
    "column",
    "count",
    "first",
    "from_processor",
    "from_spark",
    "last",
    "launch",
    "max",
    "mean",
    "min",
    "register",
    "runs",
    "session",
    "sinks",
    "sliding",
    "sources",
    "stateful",
    "sum",
    "testing",
    "tumbling",
]

#: The module of each public name, imported on first use, so that `import seep` itself is fast.
_HOMES = {
    **dict.fromkeys(("EnvironmentFault", "InternalError", "SeepError", "UserError"), "primitives.errors"),
    **dict.fromkeys(("count", "first", "last", "max", "mean", "min", "sum"), "seep.operators.aggregation.agg"),
    "Run": "seep.running.run",
    "launch": "seep.running.falling_back",
    "runs": "seep.running.live_runs",
    "column": "formats.evolution",
    **dict.fromkeys(("Profile", "Rate"), "seep.rows.rate"),
    **dict.fromkeys(("Operator", "StatelessOperator"), "seep.operators.custom"),
    **dict.fromkeys(("Context", "Inputs"), "seep.operators.context"),
    "Query": "seep.query.query",
    "from_processor": "seep.spark.processors.operator",
    "from_spark": "seep.spark.inlet.source",
    "stateful": "seep.running.stateful",
    "Stream": "seep.query.stream",
    "UserCodeFailed": "seep.operators.errors",
    "register": "seep.spark.out.registering",
    "session": "seep.operators.windows:Session",
    "sliding": "seep.operators.windows:Sliding",
    "tumbling": "seep.operators.windows:Tumbling",
}


def __getattr__(name: str) -> Any:
    if name in ("sinks", "sources", "testing"):
        return import_module(f"seep.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'seep' has no attribute {name!r}")
    module, _, there = _HOMES[name].partition(":")
    found = globals()[name] = getattr(import_module(module), there or name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


launcher.provide(lambda: __getattr__("launch"), lambda: __getattr__("testing").first_rows)
