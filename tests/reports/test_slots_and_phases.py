"""Who owned which slots, and what took how long: each thing once, in its place, however much there is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from primitives.topology import Assignment, Topology, Version
from seep.record.report import make_report
from seep.reports.page import page
from seep.reports.phases import changes_of, phases_svg
from seep.reports.slots import slots_line, slots_svg
from tests.reports.test_page import drawings, report


def slots_of(owners: list[int]) -> dict[str, Any]:
    starts, runs = Assignment(owners).runs
    return {"slots": len(owners), "starts": starts.tolist(), "owners": runs.tolist()}


@given(st.integers(0, 8).flatmap(lambda bits: st.lists(st.integers(0, 20), min_size=1 << bits, max_size=1 << bits)))
def test_a_strip_has_all_slots_side_by_side(owners: list[int]) -> None:
    drawing = ElementTree.fromstring(slots_svg("counter <1>", slots_of(owners)))
    runs = [(float(each.attrib["x"]), float(each.attrib["width"])) for each in drawing.iter("rect")]
    assert runs[0][0] == 0.0
    assert sum(runs[-1]) == pytest.approx(880, abs=0.02)
    for (left, width), (then, _) in pairwise(runs):
        assert left + width == pytest.approx(then, abs=0.02)
    titles = [str(each.findtext("title")) for each in drawing.iter("rect")]
    assert titles[0].startswith("slots 0 to ")
    assert titles[0].endswith(f"counter <1>[{owners[0]}]")


def test_of_many_instances_those_with_most_slots_are_named() -> None:
    line = slots_line(slots_of([*range(30), 7, 7]))
    assert line.startswith("32 slots: [7] 3, [0] 1, [1] 1")
    assert line.endswith("and 18 more instances")


def topology_of(bits: int, counter: int = 1) -> Topology:
    operators = [OperatorSpec("words", Kind.SOURCE), OperatorSpec("counter", Kind.STATEFUL, bits)]
    graph = QueryGraph([*operators, OperatorSpec("out", Kind.SINK)], [Edge("words", "counter"), Edge("counter", "out")])
    return Topology.initial(graph, {"words": 1, "counter": counter, "out": 1})


def changed() -> dict[str, Any]:
    found = report()
    found["summary"]["recoveries"] = [
        {"instance": "counter[0]", "at": 5.0, "seconds": 1.0, "detected": 0.5, "restored": 0.25, "replayed": 0.25}
    ]
    found["summary"]["scalings"] = [
        {"operator": "counter", "at": 9.0, "seconds": 2.0, "before": 1, "after": 2, "waited": 1.5, "latency_peak": 0.1}
    ]
    found["migrations"] = [
        {"operator": "join <&>", "strategy": "fluid", "opened": 1.0, "begun": 2.0, "moved": 2.5, "ended": 3.0},
        {"operator": "never", "strategy": "fluid", "opened": 1.0, "begun": None, "moved": None, "ended": None},
    ]
    return found


def test_each_change_is_a_row_of_its_phases_in_the_order_of_their_beginning() -> None:
    changes = changes_of(changed())
    assert [(each.name, each.start, each.seconds) for each in changes] == [
        ("moved slots of join <&> (fluid)", 1.0, 2.0),
        ("recovered counter[0]", 4.0, 1.0),
        ("scaled counter 1 → 2", 5.5, 3.5),
    ]
    assert [[part.name for part in each.parts] for each in changes] == [
        ["waited", "moved", "settled"],
        ["detected", "restored", "replayed"],
        ["waited", "carried out"],
    ]
    drawing = ElementTree.fromstring(phases_svg(changes, 10.0))
    bars = list(drawing.iter("rect"))
    assert len(bars) == 8
    assert all(float(bar.attrib["x"]) >= 0 and float(bar.attrib["width"]) > 0 for bar in bars)


def test_of_very_many_changes_the_longest_are_drawn() -> None:
    found = report()
    found["summary"]["recoveries"] = [
        {"instance": f"counter[{at}]", "at": 10.0 + at, "seconds": float(at)} for at in range(1, 200)
    ]
    assert {each.seconds for each in changes_of(found)} == set(map(float, range(160, 200)))


def test_a_page_has_the_graph_the_phases_and_the_slots_if_the_report_has_them() -> None:
    topology = topology_of(3, counter=2)
    whole = make_report("q", [], [], rows=1, latency={}, largest_gap=0.0, topology=topology)
    html = page(changed() | {name: whole[name] for name in ("graph", "slots")})
    drawn = drawings(html)
    assert "Phases" in drawn
    assert "Slots of counter" in drawn
    (query,) = [each for name, each in drawn.items() if name.startswith("query graph")]
    assert "2 instances" in "".join(query.itertext()), "as the last sample says"
    assert "counter: 8 slots: [0] 4, [1] 4" in html


def test_very_scattered_slots_are_told_coarsely() -> None:
    before = topology_of(16)
    topology = before.amended("counter", Version(5, Assignment(np.arange(1 << 16) % 7)))
    slots = make_report("q", [], [], rows=1, latency={}, largest_gap=0.0, topology=topology)["slots"]["counter"]
    assert slots["slots"] == 1 << 16
    assert len(slots["starts"]) == len(slots["owners"]) == 4096
