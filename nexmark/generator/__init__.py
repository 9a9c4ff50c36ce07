"""The reference model of NEXMark: persons, auctions and bids, each computed from its number alone."""

from nexmark.generator.events import EventGenerator, EventKind
from nexmark.generator.settings import EventSettings
from nexmark.generator.skew import BidSkew, Pattern

__all__ = ["BidSkew", "EventGenerator", "EventKind", "EventSettings", "Pattern"]
