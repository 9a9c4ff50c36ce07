"""Inspection of stored state: listing, statistics, comparison, export and rewriting."""

from __future__ import annotations

from seep.inspection.comparing import Difference, diff
from seep.inspection.container import StoredContainer
from seep.inspection.exporting import Format, export
from seep.inspection.filling import Filling, Skew, skew, stats
from seep.inspection.in_spark import dataframe
from seep.inspection.listing import checkpoints, queries
from seep.inspection.rewriting import rewrite
from seep.inspection.stored import LATEST, Stored
from seep.rows.readable import packed, readable, unpacked

__all__ = [
    "LATEST",
    "Difference",
    "Filling",
    "Format",
    "Skew",
    "Stored",
    "StoredContainer",
    "checkpoints",
    "dataframe",
    "diff",
    "export",
    "packed",
    "queries",
    "readable",
    "rewrite",
    "skew",
    "stats",
    "unpacked",
]
