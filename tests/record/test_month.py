"""A run of a month: whatever comes and goes, the record of it stays small, and knows what it has to know."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from itertools import count

import pytest

from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.events import MoveAnnounced, MoveComplete, NodeLost, Rebound, Retired, StateRestored
from seep.protocol.view import Incarnation, Seat
from seep.record.events import BottleneckFound, NodeJoined, ReplicasPlaced, ScaledOut
from seep.record.reports import HandedPart, InstanceFigures, LetterSample, SlotRows
from tests.record.kit import GRAPH, Recorded, figures, launched, node
from tests.record.test_events import EXAMPLES

MINUTE, HOUR = 60.0, 3_600.0
MOST = 64 << 20
#: Nodes at a time, and instances on each.
NODES, HOSTED = 4, 6
COUNTED = SlotRows(first=0, type="uint8", rows=b"\x01\x02", epochs=1, heaviest=(1, "key", 0.5))


class Month:
    """A run in which nodes are lost and instances are moved all the time."""

    def __init__(self) -> None:
        self.it = Recorded()
        self.record = self.it.record
        self.query = launched()
        self._names = (f"n{number}" for number in count())
        self._numbers, self._turns = count(), count(1)
        self._epoch = 0
        self.nodes: dict[str, list[Incarnation]] = {}
        for _ in range(NODES):
            self._join()
        self.record.begin()

    def pass_time(self, seconds: float) -> None:
        """Nodes report, epochs are committed; now and then something changes."""
        self.it.clock.now += seconds
        self._epoch += 20
        turn = next(self._turns)
        for name, hosted in self.nodes.items():
            self.record.take(name, node(self.it.clock.now, *(self._figures(each, turn) for each in hosted)))
        self.record.committed(self._epoch)
        self.record.observe(self.query, 1)
        if turn % 3 == 0:
            self._scale()
        if turn % 20 == 0:
            self._lose_a_node()
        if turn % 4 == 0:
            self.record.end_window("counter", 4.0, Assignment.contiguous(1, 4), SlotSet.empty())
        self.status = self.record.status(self.query, {"used": NODES}, ("counter",))
        self.record.sample(self.status)

    def sample(self, seconds: float, every: float) -> None:
        """Nothing happens for a while, and that is sampled."""
        end = self.it.clock.now + seconds
        while self.it.clock.now < end:
            self.it.clock.now += every
            self.record.sample(replace(self.status, at=self.record.log.now))

    def tell_much(self, times: int) -> None:
        """Whatever can happen happens often, and slots move in very many steps."""
        for example, _ in EXAMPLES:
            for _ in range(times):
                self.record.tell(replace(example))
        steps = tuple(HandedPart(epoch, 1000, 10, 3) for epoch in range(12_000))
        (name, hosted), *_ = self.nodes.items()
        self.record.take(name, node(self.it.clock.now + 1.0, replace(self._figures(hosted[0], 1), handed=steps)))
        for _ in range(40):
            sink = replace(self._figures(hosted[-1], 1), latencies=(0.01,) * 10_000)
            self.record.take(name, node(self.it.clock.now + 2.0, sink))

    def _figures(self, identity: Incarnation, turn: int) -> InstanceFigures:
        operator, index = identity.instance
        is_sink, is_counted = operator == "out", operator == "counter" and turn % 4 == 1
        return figures(
            operator,
            identity.number,
            index,
            epoch=self._epoch,
            counted=self._epoch + 1,
            rows_in=turn * 1000,
            rows_out=turn * 1000,
            state_bytes=1 << 20,
            watermark=turn,
            edges={"map->counter:0": turn},
            counters={"late": turn},
            latencies=(0.01, 0.02, 0.05, 0.1) if is_sink else (),
            letters=(LetterSample(turn, "halve", "ValueError", "x" * 500),) * 5 if operator == "map" else (),
            slots=SlotRows(first=0, type="uint8", rows=b"\x01\x02", epochs=1, heaviest=(1, "key", 0.5))
            if is_counted
            else None,
        )

    def _join(self) -> None:
        name = next(self._names)
        operators = [name for name in GRAPH.order for _ in range(2)][-HOSTED:]
        self.nodes[name] = [Incarnation(InstanceId(operator, next(self._numbers)), 0) for operator in operators]
        self.record.tell(NodeJoined(node=name))

    def _scale(self) -> None:
        """An instance of a node is replaced by a new one, which gets its slots."""
        number = next(self._numbers)
        name, hosted = next(iter(self.nodes.items()))
        old = hosted.pop(0)
        new = Incarnation(InstanceId(old.instance.operator, number), 0)
        operator = new.instance.operator
        self.record.tell(MoveAnnounced(operator=operator, plan=number, first=self._epoch, slots=4, view=number))
        self.record.take(
            name,
            node(
                self.it.clock.now + 0.1,
                *(self._figures(each, number) for each in hosted),
                figures(operator, 0, number, handed=(HandedPart(self._epoch, 1000, 10, 3),)),
            ),
        )
        hosted.append(new)
        self.record.left(name, figures(operator, old.number, old.instance.index, counters={"late": 1}, rows_out=7))
        self.record.tell(MoveComplete(operator=operator, plan=number))
        self.record.tell(Retired(subject=old.instance))
        self.record.tell(
            ScaledOut(operator=operator, before=1, after=2, seconds=0.1, waited=0.0, latency_peak=0.2, why="much to do")
        )

    def _lose_a_node(self) -> None:
        name, hosted = next(iter(self.nodes.items()))
        placement = {each.instance: Seat(name, each.number) for each in hosted}
        self.record.killed(name, placement)
        self.record.given_up(name, "silent for 3 s", placement, self._epoch + 10)
        for each in hosted:
            self.record.lost(each, self._epoch - 20)
        self.record.drop(name)
        self.record.tell(NodeLost(node=name))
        del self.nodes[name]
        self._join()
        *_, heir = self.nodes
        self.nodes[heir] = [Incarnation(each.instance, each.number + 1) for each in hosted]
        for each in hosted:
            self.record.tell(Rebound(subject=each.instance, to=heir))
            if GRAPH.kind(each.instance.operator) is Kind.STATEFUL:
                self.record.tell(StateRestored(subject=each.instance, epoch=self._epoch - 20))
        self.record.tell(ReplicasPlaced(groups={each.instance: (heir, name) for each in hosted}))
        self.record.tell(BottleneckFound(subject=hosted[0].instance, cause="cpu", why="x" * 200))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def month() -> tuple[Month, int]:
    """Of a run of a month, and the bytes that its record has taken."""
    gc.collect()
    tracemalloc.start()
    try:
        month = Month()
        for _ in range(29 * 24):  # one turn an hour
            month.pass_time(HOUR)
        month.tell_much(1_100)
        for _ in range(22):
            month.pass_time(MINUTE)
            month.sample(HOUR - MINUTE, MINUTE)
        month.sample(2 * HOUR, 10.0)
        month.sample(5 * MINUTE, 0.5)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return month, used


def test_the_record_of_a_month_is_small(month: tuple[Month, int]) -> None:
    assert month[1] < MOST


def test_the_record_of_a_month_has_its_beginning_its_end_and_what_happened_once(month: tuple[Month, int]) -> None:
    it = month[0]
    times = [sample.at for sample in it.record.samples]
    assert times[0] == pytest.approx(HOUR)
    assert times == sorted(times)
    assert len(times) > 2_500, "by half a second, by ten, by minutes and by hours"
    totals = it.record.log.totals
    assert {example.kind for example, _ in EXAMPLES} == totals.keys()
    assert max(totals.values()) > 1_100
    assert max(len(it.record.log.of(kind)) for kind in totals) == 1_000
    assert len(it.record.handed) == 10_000


def test_of_those_who_have_gone_nothing_is_kept_but_what_they_have_counted(month: tuple[Month, int]) -> None:
    it = month[0]
    assert {each.name for each in it.record.status(it.query).hosts} == set(it.nodes)
    assert len(it.record.state_bytes) <= NODES * HOSTED
    kept = it.record._tally
    assert len(kept._live) <= NODES * HOSTED + 1
    assert len(kept._left) <= 1024
    assert len(it.record._slots._known) <= NODES * HOSTED + 1
    assert it.record.counters[0]["late"] > 0
    assert len(it.record.recoveries) <= 720 + NODES * HOSTED


def test_the_report_of_a_month_is_of_bounded_size(month: tuple[Month, int]) -> None:
    it = month[0]
    report = it.record.report("q", rows=1, is_over=False, vm_seconds={})
    assert len(report["series"]) < 5_000
    assert len(report["events"]) <= 1_000 * len(EXAMPLES)
    assert len(report["latencies"]["timeline"]) < 2_000
