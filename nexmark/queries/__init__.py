"""The queries of NEXMark, in the canonical reading of the specification, written with the public API."""

from nexmark.queries import original, studies
from nexmark.queries.definition import QUERIES, Nexmark

__all__ = ["QUERIES", "Nexmark", "original", "studies"]
