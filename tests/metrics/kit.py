"""What tests of metrics share: a scripted run, whose nodes report, are lost, and host instances that come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from primitives.graph import InstanceId
from seep.metrics.definitions import samples
from seep.metrics.metric import Present
from seep.protocol.view import Incarnation, Seat
from seep.record.facts import Facts
from seep.record.histogram import DurationCounts
from tests.record.kit import Recorded, figures, launched

#: Series -> value; a series is the name of a metric and its labels.
Series = dict[tuple[str, tuple[str, ...]], float | DurationCounts]


@dataclass
class Script:
    """A run that does what a test says. Its instances are those of `counter`, by index."""

    it: Recorded = field(default_factory=Recorded)
    placement: dict[InstanceId, Seat] = field(default_factory=dict)
    counters: dict[InstanceId, dict[str, int]] = field(default_factory=dict)  #: of the present incarnations
    nodes: list[str] = field(default_factory=list)
    at: float = 0.0
    born: int = 0

    def __post_init__(self) -> None:
        self.it.record.begin()

    def add(self) -> InstanceId:
        """A new instance starts on a node of its own."""
        who = InstanceId("counter", self.born)
        self.born += 1
        self._seat(who, 0)
        return who

    def work(self, who: InstanceId, rows: int, **more: Any) -> None:
        """An instance processes rows, and its node reports."""
        counters = self.counters[who]
        for name in counters:
            counters[name] += rows
        self._report(who, **more)

    def lose(self, who: InstanceId) -> None:
        """The node of an instance is lost, and another one takes its place, whose counters begin with 0."""
        node, incarnation = self.placement[who]
        self.it.record.given_up(node, "dead", self.placement, 5)
        self.it.record.lost(Incarnation(who, incarnation), 0)
        self.it.record.drop(node)
        self.nodes.remove(node)
        self._seat(who, incarnation + 1)

    def retire(self, who: InstanceId, rows: int) -> None:
        """An instance processes its last rows, sends its last word, and ends."""
        for name in self.counters[who]:
            self.counters[who][name] += rows
        seat = self.placement.pop(who)
        self.it.record.left(seat.node, self._figures(who, seat.incarnation))
        self.it.record.drop(seat.node)
        self.nodes.remove(seat.node)

    def facts(self, **more: Any) -> Facts:
        """The facts at this moment."""
        query = replace(
            launched(),
            placement=dict(self.placement),
            nodes=frozenset(self.nodes),
            safe=dict.fromkeys(self.placement, 0),
            groups={},
        )
        self.it.record.sample(self.it.record.status(query, **more))
        return Facts(at=self.at, query=query, status=self.it.record.latest)

    def present(self, **more: Any) -> Present:
        present = Present.of("r1", "words", self.facts(**more))
        assert present is not None
        return present

    def series(self, chosen: Callable[[str], bool] = lambda _: True) -> Series:
        return series_of(self.present(), chosen)

    def _seat(self, who: InstanceId, incarnation: int) -> None:
        node = f"n{who.index}.{incarnation}"
        self.nodes.append(node)
        self.placement[who] = Seat(node, incarnation)
        self.counters[who] = {"rows_in": 0, "rows_out": 0}

    def _figures(self, who: InstanceId, incarnation: int, **more: Any) -> Any:
        counted = self.counters[who]
        late = {"counters": {"late": counted["rows_in"] // 2, "dead_letters": counted["rows_in"] // 3}}
        return figures(who.operator, incarnation, who.index, **{**counted, "cpu": counted["rows_in"] / 7} | late | more)

    def _report(self, who: InstanceId, **more: Any) -> None:
        self.at += 1.0
        seat = self.placement[who]
        self.it.take(seat.node, self.at, self._figures(who, seat.incarnation, **more), cpu=self.at)


def series_of(present: Present, chosen: Callable[[str], bool] = lambda _: True) -> Series:
    """All series at a moment; no two of them have the same name and labels."""
    found: list[tuple[tuple[str, tuple[str, ...]], float | DurationCounts]] = [
        ((metric.name, each.labels), each.value)
        for metric, of in samples(present)
        if chosen(metric.name)
        for each in of
    ]
    assert len(dict(found)) == len(found)
    return dict(found)
