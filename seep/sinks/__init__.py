"""Sinks: where rows go to, each epoch exactly once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seep.sinks.file_sinks import csv as csv
    from seep.sinks.file_sinks import json_lines as json_lines
    from seep.sinks.file_sinks import parquet as parquet
    from seep.sinks.in_driver import callback as callback
    from seep.sinks.in_driver import collect as collect
    from seep.sinks.null import discard as discard
    from seep.sinks.reading import read as read
    from seep.sinks.spark_sink import spark as spark

#: The module of each public name, imported when first used: Spark's readers of a spool need none of them.
_HOMES = {
    **dict.fromkeys(("csv", "json_lines", "parquet"), "seep.sinks.file_sinks"),
    **dict.fromkeys(("callback", "collect"), "seep.sinks.in_driver"),
    "discard": "seep.sinks.null",
    "read": "seep.sinks.reading",
    "spark": "seep.sinks.spark_sink",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seep.sinks' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
