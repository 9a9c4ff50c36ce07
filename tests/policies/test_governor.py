"""The governor: what it lets through, what it clamps, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.observation import History
from policies.scaling.decision import Decision
from policies.scaling.governor import Governor
from policies.scaling.registry import Manual
from policies.scaling.settings import Bounds, ScalingSettings
from primitives.errors import InternalError, UserError
from tests.policies.scenes import changed, named, repeated, report

SLOTS = {"words": 4, "splitter": 256, "counter": 256, "out": 2}


@dataclass
class Wishes:
    """A policy that always wants the same."""

    wishes: Any

    def decide(self, history: History) -> list[Decision]:
        assert history.observations
        return self.wishes  # type: ignore[no-any-return]


def wish(operator: str, parallelism: int) -> Decision:
    return Decision(operator, parallelism, f"{operator}: because")


def decided(wishes: Sequence[Decision], seen: History | None = None, **settings: Any) -> list[tuple[str, int]]:
    governor = Governor(Wishes(wishes), ScalingSettings(**settings), SLOTS)
    return [(each.operator, each.parallelism) for each in governor.decide(seen or repeated(20))]


def test_what_is_allowed_is_let_through_as_it_is() -> None:
    wished = Decision("counter", 2, "counter: because", (named("counter[0]"),))
    assert Governor(Wishes([wished]), ScalingSettings(), SLOTS).decide(repeated(1)) == [wished]


def test_several_operators_are_decided_on_at_once_in_flow_order() -> None:
    assert decided([wish("counter", 2), wish("splitter", 3)]) == [("splitter", 3), ("counter", 2)]


def test_a_wish_for_what_there_is_is_no_decision() -> None:
    assert decided([wish("counter", 1)]) == []


def test_of_several_wishes_for_one_operator_the_largest_counts() -> None:
    assert decided([wish("counter", 4), wish("counter", 2)]) == [("counter", 4)]


@pytest.mark.parametrize(("kind", "operator"), [("sources", "words"), ("sinks", "out")])
def test_sources_and_sinks_are_scaled_only_where_that_is_said(kind: str, operator: str) -> None:
    wished = [wish(operator, 2)]
    assert decided(wished) == []
    allowed: dict[str, Any] = {kind: True}
    assert decided(wished, **allowed) == [(operator, 2)]
    assert decided(wished, operators={operator: Bounds(max=3)}) == [(operator, 2)]
    assert decided(wished, **allowed, operators={operator: Bounds(scale=False)}) == []


def test_an_operator_that_is_not_to_be_scaled_never_is() -> None:
    assert decided([wish("counter", 2)], operators={"counter": Bounds(scale=False)}) == []
    assert decided([wish("counter", 2)], default=Bounds(scale=False)) == []
    assert decided([wish("counter", 2)], default=Bounds(scale=False), operators={"counter": Bounds()}) == [
        ("counter", 2)
    ]


def test_a_wish_beyond_the_bounds_is_clamped_and_says_so() -> None:
    governor = Governor(Wishes([wish("counter", 9)]), ScalingSettings(operators={"counter": Bounds(max=4)}), SLOTS)
    assert governor.decide(repeated(1)) == [Decision("counter", 4, "counter: because; at most 4 are allowed")]


def test_a_wish_that_the_bounds_make_what_there_is_is_no_decision() -> None:
    assert decided([wish("counter", 9)], operators={"counter": Bounds(max=1)}) == []


def test_no_operator_gets_more_instances_than_it_has_slots() -> None:
    assert decided([wish("out", 9), wish("counter", 999)], sinks=True) == [("counter", 256), ("out", 2)]
    assert decided([wish("out", 1)], sinks=True, operators={"out": Bounds(min=5)}) == [("out", 2)]


def test_an_operator_outside_its_bounds_is_corrected_though_nobody_asked() -> None:
    settings = ScalingSettings(operators={"counter": Bounds(min=2), "splitter": Bounds(max=1)})
    seen = repeated(1, report("splitter[0]"), report("splitter[1]"))
    assert Governor(Manual(), settings, SLOTS).decide(seen) == [
        Decision("splitter", 1, "splitter: 2 instances; at most 1 are allowed"),
        Decision("counter", 2, "counter: 1 instances; at least 2 are allowed"),
    ]


def test_an_operator_that_rests_is_left_alone_and_others_are_not() -> None:
    wishes = [wish("counter", 2), wish("splitter", 2)]
    both, other = [("splitter", 2), ("counter", 2)], [("splitter", 2)]

    def at_20s(done: float | None) -> list[tuple[str, int]]:
        return decided(wishes, repeated(4, changes=[changed("counter", 2, 1, begun=3.0, done=done)]), cooldown=15.0)

    assert (at_20s(done=5.0), at_20s(done=5.1), at_20s(done=None)) == (both, other, other)


def test_nothing_is_decided_on_an_operator_that_did_not_report() -> None:
    seen = repeated(1, report("counter[0]"))
    [latest] = seen.observations
    bare = History(seen.graph, (type(latest)(latest.at, latest.seconds, {}),))
    assert decided([wish("counter", 2)], bare) == []


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (
            [wish("countr", 2)],
            "Wishes decides on 'countr', which the query does not have; its operators are words, spl",
        ),
        (None, "Wishes decides None; decide must return a list"),
        (["counter"], "Wishes decides 'counter', which is no policies.scaling.decision.Decision"),
        ([wish("counter", 2.5)], "Wishes decides on 2.5 instances of counter"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_decides_nonsense_is_told_so_by_name(wishes: Any, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        decided(wishes)


def test_an_exception_in_a_policy_names_policy_and_time() -> None:
    class Broken:
        def decide(self, history: History) -> list[Decision]:
            return [wish("counter", 1 // len(history.changes))]

    with pytest.raises(UserError, match=r"policy Broken fails at 10\.0 s: ZeroDivisionError"):
        Governor(Broken(), ScalingSettings(), SLOTS).decide(repeated(2))


def test_an_error_of_our_own_in_a_policy_passes_as_it_is() -> None:
    class Honest:
        def decide(self, history: History) -> list[Decision]:
            raise InternalError(f"at {history.now}")

    with pytest.raises(InternalError, match=r"at 10\.0"):
        Governor(Honest(), ScalingSettings(), SLOTS).decide(repeated(2))


BOUNDS = st.builds(
    lambda scale, least, more: Bounds(scale=scale, min=least, max=more and least + more),
    st.booleans(),
    st.integers(1, 5),
    st.none() | st.integers(1, 5),
)


@given(
    st.lists(st.tuples(st.sampled_from(list(SLOTS)), st.integers(-3, 300)), max_size=6),
    st.dictionaries(st.sampled_from(list(SLOTS)), BOUNDS),
    st.dictionaries(st.sampled_from(list(SLOTS)), st.integers(1, 4)),
)
def test_whatever_a_policy_wants_only_what_is_allowed_comes_out(
    wishes: list[tuple[str, int]], bounds: dict[str, Bounds], present: dict[str, int]
) -> None:
    seen = repeated(1, *(report(f"{operator}[{i}]") for operator, count in present.items() for i in range(count)))
    out = decided([wish(*each) for each in wishes], seen, operators=bounds)
    assert len({operator for operator, _ in out}) == len(out)
    for operator, parallelism in out:
        said = bounds.get(operator, Bounds())
        most = min(said.max or SLOTS[operator], SLOTS[operator])
        assert said.scale
        assert operator in bounds or operator not in ("words", "out")
        assert min(said.min, most) <= parallelism <= most
        assert parallelism != present.get(operator, 1)
