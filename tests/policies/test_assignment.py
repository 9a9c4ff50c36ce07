"""New assignments: who gets which slots, and that no more of them move than must."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.scaling.assignment import relocated, rescaled, split_parts
from primitives.errors import InternalError, UserError
from primitives.slots import SlotSet
from primitives.topology import Assignment
from tests.strategies import assignments, slot_sets

SLOT_BITS = 5
SLOTS = 1 << SLOT_BITS
ANY = assignments(SLOT_BITS, instances=6)
SHARES = st.builds(Assignment.contiguous, st.integers(1, SLOTS), st.just(SLOT_BITS))
WEIGHTS = st.lists(st.integers(0, 9), min_size=SLOTS, max_size=SLOTS).map(lambda each: np.array(each, np.float64))


def sizes(assignment: Assignment) -> dict[int, int]:
    return {index: len(slots) for index, slots in assignment.parts.items()}


def moved(parts: dict[int, SlotSet]) -> int:
    return sum(map(len, parts.values()))


# -- more and fewer --------------------------------------------------------------------------------------------------


@given(ANY | SHARES, st.integers(1, SLOTS), st.lists(st.integers(0, 7), max_size=5), st.none() | WEIGHTS)
def test_whatever_is_asked_for_comes_out_and_those_that_stay_own_something(
    before: Assignment, parallelism: int, hot: list[int], weights: np.ndarray | None
) -> None:
    fresh = max(before.parts) + 3
    parts = rescaled(before, parallelism, fresh, hot, weights)
    after = before.moved(parts)
    new = max(0, parallelism - len(before.parts))
    assert len(after.parts) == parallelism  # so each of them owns a slot at least
    assert set(after.parts) - set(before.parts) == set(range(fresh, fresh + new))
    assert new == 0 or set(before.parts) <= set(after.parts)
    assert all(slots and slots.isdisjoint(before.slots_of(index)) for index, slots in parts.items())
    assert parallelism != len(before.parts) or parts == {}


@given(SHARES, st.integers(1, SLOTS))
def test_even_shares_stay_even_and_the_fewest_slots_move(before: Assignment, parallelism: int) -> None:
    parts = rescaled(before, parallelism, fresh=99)
    after = before.moved(parts)
    assert max(sizes(after).values()) - min(sizes(after).values()) <= 1
    # the least that any even assignment takes: what exceeds the larger of the even shares must go
    larger, count = divmod(SLOTS, parallelism)
    targets = [larger + 1] * count + [larger] * (parallelism - count)
    kept = sum(map(min, sorted(sizes(before).values(), reverse=True), targets))
    assert moved(parts) == SLOTS - kept


@given(ANY, st.integers(0, 20))
def test_of_any_shares_only_new_instances_get_some_and_only_the_fullest_give(before: Assignment, more: int) -> None:
    parts = rescaled(before, len(before.parts) + more, fresh=6)
    after = before.moved(parts)
    assert set(parts) == set(range(6, 6 + more))
    level = max(sizes(after).values())
    gave = {index for index in before.parts if sizes(after)[index] < sizes(before)[index]}
    assert all(sizes(after)[index] >= max(sizes(after)[other] for other in gave) - 1 for index in gave)
    assert all(sizes(after)[index] <= level for index in before.parts)
    assert all(len(slots) in (SLOTS // len(after.parts), SLOTS // len(after.parts) + 1) for slots in parts.values())


@given(ANY, st.integers(1, 5))
def test_only_the_slots_of_those_that_leave_move_and_the_emptiest_leave(before: Assignment, fewer: int) -> None:
    assume(fewer < len(before.parts))
    parts = rescaled(before, len(before.parts) - fewer, fresh=6)
    after = before.moved(parts)
    leaving = set(before.parts) - set(after.parts)
    assert moved(parts) == sum(sizes(before)[index] for index in leaving)
    assert max(sizes(before)[index] for index in leaving) <= min(sizes(before)[index] for index in after.parts)
    took = [sizes(after)[index] for index in parts]
    assert max(took) - min(took) <= 1
    assert all(sizes(after)[index] >= max(took) - 1 for index in after.parts)


def test_of_equals_the_one_with_the_highest_index_leaves() -> None:
    assert rescaled(Assignment([0, 1, 2, 3]), 3, fresh=4) == {0: SlotSet([3])}


# -- hot instances ---------------------------------------------------------------------------------------------------


def test_hot_instances_are_halved_and_the_others_left_alone() -> None:
    before = Assignment.contiguous(4, 4)
    assert rescaled(before, 6, fresh=7, hot=[2, 0]) == {7: SlotSet([10, 11]), 8: SlotSet([2, 3])}


def test_with_fewer_new_instances_than_hot_ones_the_hottest_are_relieved() -> None:
    assert rescaled(Assignment.contiguous(4, 4), 5, fresh=7, hot=[2, 0]) == {7: SlotSet([10, 11])}


def test_with_more_new_instances_than_hot_ones_each_is_split_further() -> None:
    parts = rescaled(Assignment.contiguous(2, 3), 4, fresh=2, hot=[1])
    assert parts == {2: SlotSet([6]), 3: SlotSet([7])}


def test_a_hot_instance_with_a_single_slot_cannot_give_so_the_fullest_does() -> None:
    assert rescaled(Assignment([0, 1, 1, 1]), 3, fresh=2, hot=[0]) == {2: SlotSet([3])}


def test_an_instance_that_is_gone_already_is_not_hot_any_more() -> None:
    assert rescaled(Assignment([0, 0, 1, 1]), 3, fresh=5, hot=[4]) == {5: SlotSet([3])}


# -- weights ---------------------------------------------------------------------------------------------------------


def test_with_weights_a_hot_instance_is_split_where_the_work_is_halved() -> None:
    weights = np.array([9.0, 1, 1, 1, 1, 1, 1, 3])
    assert rescaled(Assignment([0] * 8), 2, fresh=1, hot=[0], weights=weights) == {1: SlotSet.range(1, 7)}


def test_with_weights_the_heaviest_gives_not_the_fullest() -> None:
    weights = np.array([5.0, 5, 1, 1, 1, 1, 1, 1])
    assert rescaled(Assignment([0, 0, 1, 1, 1, 1, 1, 1]), 3, fresh=2, weights=weights) == {2: SlotSet([1])}


@given(st.integers(1, 8), st.integers(1, 8), WEIGHTS)
def test_with_weights_the_heaviest_instance_never_gets_heavier(present: int, more: int, weights: np.ndarray) -> None:
    before = Assignment.contiguous(present, SLOT_BITS)
    after = before.moved(rescaled(before, present + more, fresh=present, weights=weights))
    heaviest = [max(weights[slots.array].sum() for slots in each.parts.values()) for each in (before, after)]
    assert heaviest[1] <= heaviest[0]


# -- one instance ----------------------------------------------------------------------------------------------------


@given(ANY)
def test_a_relocated_instance_leaves_everything_to_the_new_one(before: Assignment) -> None:
    index = next(iter(before.parts))
    after = before.moved(relocated(before, index, fresh=6))
    assert after.slots_of(6) == before.slots_of(index)
    assert index not in after.parts
    assert len(after.parts) == len(before.parts)


@given(slot_sets(SLOT_BITS, min_size=1), st.data())
def test_an_owner_that_is_split_keeps_the_first_part_and_new_indices_get_the_others(
    slots: SlotSet, data: st.DataObject
) -> None:
    parts = data.draw(st.integers(1, len(slots)), "parts")
    given_away = split_parts(slots, parts, fresh=3)
    shares = [slots - SlotSet([s for part in given_away.values() for s in part]), *given_away.values()]
    assert list(given_away) == list(range(3, 3 + parts - 1))
    assert SlotSet([s for share in shares for s in share]) == slots
    assert {len(share) for share in shares} <= {len(slots) // parts, math.ceil(len(slots) / parts)}
    assert sum(map(len, shares)) == len(slots)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [0, 5])
def test_more_instances_than_slots_or_none_are_refused(parallelism: int) -> None:
    with pytest.raises(UserError, match=f"with 4 slots cannot have {parallelism} instances; choose 1 to 4"):
        rescaled(Assignment([0, 0, 1, 1]), parallelism, fresh=2)


def test_an_instance_is_not_split_into_more_parts_than_it_has_slots() -> None:
    with pytest.raises(UserError, match="2 slots cannot be split into 3; choose 1 to 2"):
        split_parts(SlotSet([4, 7]), 3, fresh=1)


def test_indices_weights_and_owners_that_cannot_be_are_refused() -> None:
    before = Assignment([0, 0, 1, 1])
    with pytest.raises(InternalError, match="index 1 is not fresh: there is an instance 1"):
        rescaled(before, 3, fresh=1)
    with pytest.raises(InternalError, match="4 slots need a weight each"):
        rescaled(before, 3, fresh=2, weights=np.ones(3))
    with pytest.raises(InternalError, match="instance 7 owns no slot"):
        relocated(before, 7, fresh=8)
