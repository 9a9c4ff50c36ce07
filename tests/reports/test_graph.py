"""The picture of a query: well-formed, legible, and bounded, whatever the names of its operators are."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.graph import Kind
from seep.reports.graph import MOST, Notes, graph_svg, layers

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each operator's box."""
    found = [each for each in parsed(svg).iter(f"{SVG}rect") if each.attrib.get("class", "").startswith("box")]
    return [
        (float(e.attrib["x"]), float(e.attrib["y"]), float(e.attrib["x"]) + float(e.attrib["width"]),
         float(e.attrib["y"]) + float(e.attrib["height"]))
        for e in found
    ]  # fmt: skip


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in parsed(svg).iter(f"{SVG}text")]


CHAIN = {"numbers": Kind.SOURCE, "double": Kind.STATELESS, "count": Kind.STATEFUL, "out": Kind.SINK}
EDGES = [("numbers", "double"), ("double", "count"), ("count", "out")]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Kind], list[tuple[str, str]]]:
    """Any acyclic graph: each operator reads from some of those before it."""
    names = [f"operator-{at}" for at in range(draw(st.integers(1, 25)))]
    edges = [
        (names[draw(st.integers(0, at - 1))], name)
        for at, name in enumerate(names)
        if at
        for _ in range(draw(st.integers(0, 3)))
    ]
    return dict.fromkeys(names, Kind.STATELESS), edges


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_each_operator_stands_right_of_all_that_feed_it_and_no_two_boxes_overlap(given: object) -> None:
    kinds, edges = given  # type: ignore[misc]
    svg = graph_svg(kinds, edges, {name: Notes(["a line", "another"], used=0.5) for name in list(kinds)[::3]})
    upstream = {name: [start for start, end in edges if end == name] for name in kinds}
    depth = {name: at for at, layer in enumerate(layers(upstream)) for name in layer}
    assert all(depth[start] < depth[end] for start, end in edges)
    found = boxes(svg)
    assert len(found) == len(kinds)
    for one, other in combinations(found, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    _, _, width, height = map(float, parsed(svg).attrib["viewBox"].split())
    assert all(left >= 0 and right <= width and top >= 0 and bottom <= height for left, top, right, bottom in found)


def test_an_arrow_goes_from_the_right_edge_of_a_box_to_the_left_edge_of_another() -> None:
    svg = graph_svg(CHAIN, EDGES)
    (path, *_) = [each.attrib["d"] for each in parsed(svg).iter(f"{SVG}path") if each.attrib["class"] == "edge"]
    numbers = [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", path)]
    first, second = sorted(boxes(svg))[:2]
    assert (numbers[0], numbers[-2]) == (first[2], second[0])


def test_an_arrow_that_passes_layers_by_passes_their_boxes_by() -> None:
    svg = graph_svg(CHAIN, [*EDGES, ("numbers", "out")])
    ways = [each.attrib["d"] for each in parsed(svg).iter(f"{SVG}path") if each.attrib["class"] == "edge"]
    (long,) = [way for way in ways if way.count("L") == 2]
    points = [tuple(map(float, pair.split())) for pair in re.findall(r"(-?[\d.]+ -?[\d.]+)", long)]
    for x, y in points[4:-4]:
        assert not any(left < x < right and top < y < bottom for left, top, right, bottom in boxes(svg))


def test_lines_and_labels_are_shown_and_long_ones_are_whole_in_the_title() -> None:
    name = "join-of-bids-and-auctions-by-their-number"
    svg = graph_svg(
        {"numbers": Kind.SOURCE, name: Kind.STATEFUL}, [("numbers", name)], {}, {("numbers", name): "12k rows/s"}
    )
    assert "12k rows/s" in texts(svg)
    assert not any(name in text for text in texts(svg))
    assert any(name in "".join(each.itertext()) for each in parsed(svg).iter(f"{SVG}title"))


def test_names_are_text_whatever_they_contain() -> None:
    name = '</title></svg><script>alert("1")</script>&'
    svg = graph_svg(
        {name: Kind.SOURCE, "out": Kind.SINK}, [(name, "out")], {name: Notes([name])}, {(name, "out"): name}
    )
    assert not list(parsed(svg).iter(f"{SVG}script"))
    assert "<script" not in svg


def test_a_bar_is_as_long_as_the_used_share_and_never_longer_than_the_box() -> None:
    for used, length in ((0.25, 39.0), (7.0, 156.0), (-1.0, 0.0)):
        svg = graph_svg(CHAIN, EDGES, {"count": Notes(used=used)})
        (bar,) = [each for each in parsed(svg).iter(f"{SVG}rect") if each.attrib.get("class") == "used"]
        assert float(bar.attrib["width"]) == length


def test_of_very_many_operators_the_first_are_drawn_and_the_picture_says_so() -> None:
    names = [f"operator-{at}" for at in range(MOST + 50)]
    svg = graph_svg(dict.fromkeys(names, Kind.STATELESS), pairwise(names))
    assert len(boxes(svg)) == MOST
    assert "50 more operators are not drawn" in texts(svg)
