"""The reference model of NEXMark: persons, auctions and bids, any range of which is a function of its numbers."""

from nexmark.generator.events import Events, Kind
from nexmark.generator.settings import Settings
from nexmark.generator.skew import Pattern, Skew

__all__ = ["Events", "Kind", "Pattern", "Settings", "Skew"]
