"""Settings of the event generator: number, time and content of events. Equal settings make equal events."""

from __future__ import annotations

from dataclasses import dataclass

from nexmark.generator.skew import BidSkew
from primitives.errors import UserError
from seep.rows.rate import Profile, Rate

#: 2015-07-15T00:00:00Z: a fixed time, so that runs can be repeated.
BASE = 1_436_918_400_000

#: The step between consecutive events' numbers in a group that is out of order.
STEP = 953

_MOST_IN_FLIGHT = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Settings of the reference model, as in the specification's section on the generator; sizes are in bytes."""

    seed: int = 1
    rate: int = 10_000  #: events per second of arrival
    profile: Profile = Profile.STEADY  #: shape of the rate over time, for event time and arrival
    period: float = 60.0  #: seconds of one period of the profile
    dilation: int = 1  #: factor by which event time is faster than arrival
    base: int = BASE  #: event time of the first event
    persons: int = 1  #: persons, auctions and bids take turns in these numbers
    auctions: int = 3
    bids: int = 46
    in_flight: int = 100  #: number of open auctions
    active_people: int = 1_000
    hot_auctions: int = 2  #: one bid in this number does not go to the hot auction
    hot_sellers: int = 4
    hot_bidders: int = 4
    group: int = 1  #: size of the groups within which events are out of order
    held_back: float = 0.0  #: fraction of the events that come up to 3 s late; in logs only
    skew: BidSkew | None = None
    text: bool = True  #: whether strings are generated
    filler: bool = True  #: whether records are filled up to their sizes
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100

    def __post_init__(self) -> None:
        if min(self.rate, self.dilation, self.persons, self.auctions, self.active_people, self.group) < 1:
            raise UserError("rate, dilation, persons, auctions, active people and group are 1 or more")
        if self.bids < 0 or min(self.hot_auctions, self.hot_sellers, self.hot_bidders) < 1:
            raise UserError("there are 0 bids or more, and the ratios of what is hot are 1 or more")
        if not 0 <= self.in_flight < _MOST_IN_FLIGHT or not 0 <= self.held_back <= 1:
            raise UserError("auctions in flight are 0 or more, and the part that is held back is from 0 to 1")
        if self.group > 1 and self.group % STEP == 0:
            raise UserError(f"a group of {self.group} events cannot be put out of order, as {STEP} divides it")

    @property
    def cycle(self) -> int:
        """Number of events after which the sequence of kinds repeats."""
        return self.persons + self.auctions + self.bids

    @property
    def pace(self) -> Rate | None:
        """The rate of the events, or None if it is steady."""
        return None if self.profile is Profile.STEADY else Rate(float(self.rate), self.profile, self.period)
