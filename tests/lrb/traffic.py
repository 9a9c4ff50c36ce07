"""Random legal traffic on a few crowded segments: tolls, stops of every kind, exits, vehicles that fall silent."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pyarrow as pa

from lrb.schema import INPUT
from lrb.validation.reference import Answers, Tuple

#: Feet. Few places to stop at, so that vehicles meet there.
_STOPS = (5280 * 3 + 100, 5280 * 4 - 1, 5280 * 6 + 7)


def traffic(seed: int, *, vehicles: int = 200, seconds: int = 600, xways: int = 1) -> list[Tuple]:
    """By time; the order within a second is drawn by lot."""
    lot = random.Random(seed)
    qids = iter(range(10**9))
    tuples = [each for vid in range(vehicles) for each in _vehicle(lot, vid, seconds, xways, qids)]
    lot.shuffle(tuples)
    return sorted(tuples, key=lambda each: each.time)


def table(tuples: Iterable[Tuple]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in tuples], INPUT)


def rows(answers: Answers) -> list[list[tuple[int, ...]]]:
    """The four outputs in their columns, each in order."""
    return [
        sorted(map(tuple, each)) for each in (answers.tolls, answers.alerts, answers.balances, answers.expenditures)
    ]


def _vehicle(lot: random.Random, vid: int, seconds: int, xways: int, qids: Iterator[int]) -> Iterator[Tuple]:
    time = lot.randrange(min(200, seconds))
    while time < seconds:
        for report in _trip(lot, vid, time, lot.randrange(xways)):
            time = report.time
            if time >= seconds:
                return
            yield report
            if lot.random() < 0.1:
                yield Tuple(2, time, vid, qid=next(qids))
            if lot.random() < 0.02:
                yield Tuple(3, time, vid, xway=lot.randrange(3), qid=next(qids), day=lot.randrange(75))
            if lot.random() < 0.02:
                yield Tuple(2, lot.randrange(seconds), vid + lot.randrange(2) * 10**10, qid=next(qids))
        time += 61 + lot.randrange(60)


def _trip(lot: random.Random, vid: int, time: int, xway: int) -> Iterator[Tuple]:
    """From lane 0 to lane 4, or to where it falls silent; with some stops."""
    direction = int(lot.random() < 0.2)
    gone, end, lane = lot.choice((0, 5280 * 3, 5280 * 3 + 100)), 5280 * lot.randrange(2, 9), 0
    while gone < end or lane == 0:
        position = 5280 * 10 - 1 - gone if direction else gone
        speed = lot.randrange(5, 60)
        for _ in range(_reports(lot, position)):
            yield Tuple(0, time, vid, speed, xway, lane, direction, position // 5280, position)
            time += 30
        if lot.random() < 0.02:
            return
        lane = lot.choice((1, 2, 2))
        gone = min([gone + lot.randrange(4401), *(_gone(stop, direction) for stop in _ahead(gone, direction))])
    position = 5280 * 10 - 1 - gone if direction else gone
    yield Tuple(0, time, vid, 20, xway, 4, direction, position // 5280, position)


def _reports(lot: random.Random, position: int) -> int:
    """At the places to stop at, some stop: for fewer or more reports than make a stop."""
    return lot.choice((1, 1, 1, 2, 3, 4, 5, 8)) if position in _STOPS else 1


def _ahead(gone: int, direction: int) -> list[int]:
    """Stops that a vehicle could reach within 30 seconds: it does not pass over them."""
    return [stop for stop in _STOPS if gone < _gone(stop, direction) <= gone + 4400]


def _gone(position: int, direction: int) -> int:
    return 5280 * 10 - 1 - position if direction else position
