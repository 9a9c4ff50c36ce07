"""EventGenerator: computes any events, as columns, from their numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nexmark.generator import model as columns
from nexmark.generator import text
from nexmark.generator.chance import Draw
from nexmark.generator.model import CATEGORIES, FIRST_CATEGORY, Ints, Model
from nexmark.generator.settings import STEP, EventSettings
from nexmark.schema import AUCTION, BID, PERSON

#: Bytes of a record without its strings.
_FIXED = {"person": 8, "auction": 48, "bid": 32}


class EventKind(IntEnum):
    """The kind of an event, as in the column `kind`."""

    PERSON = 0
    AUCTION = 1
    BID = 2


class EventGenerator:
    """Generates the events of some settings.

    An event has a number, which determines its content, and a position in the order of arrival. These are the same
    unless events are out of order.

    >>> events = EventGenerator(EventSettings(rate=1_000))
    >>> bids = events.numbers(np.arange(100), [EventKind.BID])
    >>> bids[:3].tolist(), events.times(bids[:3]).tolist()
    ([4, 5, 6], [1436918400004, 1436918400005, 1436918400006])
    >>> events.columns(EventKind.BID, bids, ["auction", "price"])["auction"].type
    DataType(int64)
    """

    def __init__(self, settings: EventSettings) -> None:
        self.settings = settings
        self._pace = settings.pace
        self._wanted: dict[tuple[EventKind, ...], NDArray[np.bool_]] = {}
        self.model = Model(
            seed=np.uint64(settings.seed * 0x9E3779B97F4A7C15 & (1 << 64) - 1),
            persons=settings.persons,
            auctions=settings.auctions,
            cycle=settings.cycle,
            in_flight=settings.in_flight,
            active=settings.active_people,
            hot_auctions=settings.hot_auctions,
            hot_sellers=settings.hot_sellers,
            hot_bidders=settings.hot_bidders,
        )

    # --- numbers and positions ----------------------------------------------------------------------------------------

    def at(self, positions: Ints) -> Ints:
        """Returns the numbers of the events at these positions."""
        group = self.settings.group
        if group == 1:
            return positions
        numbers: Ints = positions // group * group + positions * STEP % group
        return numbers

    def kinds(self, numbers: Ints) -> NDArray[np.int8]:
        """Returns the kind of each event."""
        places = numbers % self.settings.cycle
        people = self.settings.persons
        return (places >= people).astype(np.int8) + (places >= people + self.settings.auctions)

    def where(self, numbers: Ints, kinds: Sequence[EventKind]) -> Ints:
        """Returns the indexes of the events of these kinds."""
        return columns.of_kinds(numbers, self._of(tuple(kinds)))  # type: ignore[no-any-return]

    def numbers(self, positions: Ints, kinds: Sequence[EventKind]) -> Ints:
        """Returns the numbers of the events of these kinds at these positions."""
        numbers = self.at(positions)
        return numbers[self.where(numbers, kinds)]

    def share(self, kinds: Sequence[EventKind]) -> float:
        """Returns the fraction of all events that these kinds are."""
        return float(self._of(tuple(kinds)).mean())

    def _of(self, kinds: tuple[EventKind, ...]) -> NDArray[np.bool_]:
        if kinds not in self._wanted:
            self._wanted[kinds] = np.isin(self.kinds(np.arange(self.settings.cycle)), kinds)
        return self._wanted[kinds]

    # --- times --------------------------------------------------------------------------------------------------------

    def times(self, numbers: Ints) -> Ints:
        """Returns event times, in milliseconds."""
        return self._due(numbers, self.settings.dilation)

    def arrivals(self, positions: Ints) -> Ints:
        """Returns the arrival times of the events at these positions, without the delay of held-back events."""
        return self._due(positions, 1)

    def _due(self, numbers: Ints, dilation: int) -> Ints:
        base = self.settings.base
        if self._pace is None:
            return columns.steady_times(numbers, base, dilation, self.settings.rate)  # type: ignore[no-any-return]
        return base + np.floor(self._pace.due_times(numbers) * 1_000 * dilation).astype(np.int64)

    def watermarks(self, first: int, end: int, last: int | None = None) -> Ints:
        """Returns the lowest event time at or after each position of a range; positions end at `last`, if given."""
        group = self.settings.group
        if group == 1:
            return self.times(np.arange(first, end))
        begin, over = first // group * group, -(-end // group) * group
        numbers = np.full(over - begin, np.iinfo(np.int64).max)
        there = over if last is None else min(over, last)
        numbers[: there - begin] = self.at(np.arange(begin, there))
        least = np.minimum.accumulate(numbers.reshape(-1, group)[:, ::-1], axis=1)[:, ::-1].ravel()
        return self.times(least[first - begin : end - begin])

    # --- contents -----------------------------------------------------------------------------------------------------

    def columns(self, kind: EventKind, numbers: Ints, names: Sequence[str]) -> dict[str, pa.Array]:
        """Returns columns of events of one kind."""
        makers = {EventKind.PERSON: self._person, EventKind.AUCTION: self._auction, EventKind.BID: self._bid}
        made = makers[kind](numbers, frozenset(names))
        return {name: made[name] if isinstance(made[name], pa.Array) else pa.array(made[name]) for name in names}

    def _person(self, numbers: Ints, names: frozenset[str]) -> Mapping[str, Any]:
        made: dict[str, Any] = {"id": columns.persons(numbers, self.model), **self._timed(numbers, names)}
        if names - {"id", "date_time"}:
            strings = text.people(numbers, self.model)._asdict() if self.settings.text else {}
            made |= {name: strings.get(name, _no_text(len(numbers))) for name in text.Person._fields}
            made["extra"] = self._filler("person", numbers, strings.values(), self.settings.person_bytes)
        assert made.keys() <= set(PERSON.names)
        return made

    def _auction(self, numbers: Ints, names: frozenset[str]) -> Mapping[str, Any]:
        made: dict[str, Any] = {"id": columns.auctions(numbers, self.model), **self._timed(numbers, names)}
        if names & {"initial_bid", "reserve"}:
            made["initial_bid"] = columns.prices(numbers, self.model, int(Draw.PRICE))
            made["reserve"] = made["initial_bid"] + columns.prices(numbers, self.model, int(Draw.RESERVE))
        if "expires" in names:
            made["expires"] = self._expiries(numbers)
        if "seller" in names:
            made["seller"] = columns.sellers(numbers, self.model)
        if "category" in names:
            made["category"] = columns.choices(numbers, self.model, int(Draw.CATEGORY), CATEGORIES) + FIRST_CATEGORY
        if names & {"item", "desc", "extra"}:
            made |= self._auction_text(numbers)
        assert made.keys() <= set(AUCTION.names)
        return made

    def _auction_text(self, numbers: Ints) -> dict[str, pa.Array]:
        if not self.settings.text:
            item = desc = _no_text(len(numbers))
            strings = []
        else:
            item, desc = text.items(numbers, self.model), text.descriptions(numbers, self.model)
            strings = [item, desc]
        extra = self._filler("auction", numbers, strings, self.settings.auction_bytes)
        return {"item": item, "desc": desc, "extra": extra}

    def _bid(self, numbers: Ints, names: frozenset[str]) -> Mapping[str, Any]:
        made: dict[str, Any] = dict(self._timed(numbers, names))
        if "auction" in names:
            made["auction"] = self._bid_auctions(numbers)
        if "bidder" in names:
            made["bidder"] = columns.bidders(numbers, self.model)
        if "price" in names:
            made["price"] = columns.prices(numbers, self.model, int(Draw.PRICE))
        if "extra" in names:
            made["extra"] = self._filler("bid", numbers, [], self.settings.bid_bytes)
        assert made.keys() <= set(BID.names)
        return made

    def _timed(self, numbers: Ints, names: frozenset[str]) -> dict[str, Ints]:
        return {"date_time": self.times(numbers)} if "date_time" in names else {}

    def _expiries(self, numbers: Ints) -> Ints:
        ahead = self.settings.in_flight * self.settings.cycle // self.settings.auctions
        times = self.times(numbers)
        return columns.expiries(numbers, times, self.times(numbers + ahead) - times, self.model)  # type: ignore[no-any-return]

    def _bid_auctions(self, numbers: Ints) -> Ints:
        auctions: Ints = columns.bid_auctions(numbers, self.model)
        if self.settings.skew is None or not len(numbers):
            return auctions
        since = self.times(numbers) - self.settings.base
        return self.settings.skew.redirect(self.model.seed, numbers, auctions, since)

    def _filler(self, kind: str, numbers: Ints, strings: Any, size: int) -> pa.Array:
        if not self.settings.filler:
            return _no_text(len(numbers))
        used = sum((pc.binary_length(each).to_numpy().astype(np.int64) for each in strings), np.int64(_FIXED[kind]))
        return text.fillers(numbers, self.model, np.broadcast_to(size - used, numbers.shape).astype(np.int64))


def _no_text(count: int) -> pa.Array:
    return pa.nulls(count, pa.string())
