"""Migration: steps come to the change that they cut, and each strategy keeps to its bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from formats.settings import WrongSettings, checked
from policies.migration.matchings import matchings
from policies.migration.settings import MigrationSettings, Strategy
from policies.migration.steps import MigrationSteps
from policies.migration.strategies import cut, places_in_turn
from policies.scaling.assignment import rescaled
from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.topology import Assignment
from tests.strategies import assignments

SLOT_BITS = 5
SLOTS = 1 << SLOT_BITS
ANY = assignments(SLOT_BITS, instances=6)
#: Scaling out and in, in which nobody both gives and receives.
RESCALED = st.builds(
    lambda before, more: (before, rescaled(before, max(1, len(before.parts) + more), fresh=9)), ANY, st.integers(-4, 9)
)
SETTINGS = st.builds(MigrationSettings, strategy=st.sampled_from(Strategy), batch=st.integers(1, 9))

Change = Mapping[int, SlotSet]


def settings(strategy: str, batch: int = 16) -> MigrationSettings:
    return MigrationSettings(strategy=Strategy(strategy), batch=batch)


def pairs_of(assignment: Assignment, move: Change) -> Counter[tuple[int, int]]:
    """How many slots each pair of instances hands over in one step."""
    return Counter((int(assignment.owners[slot]), target) for target, slots in move.items() for slot in slots)


def degree(before: Assignment, change: Change, batch: int) -> int:
    """The most batches that one instance gives or receives."""
    batches = {pair: -(-count // batch) for pair, count in pairs_of(before, change).items() if pair[0] != pair[1]}
    ends = [Counter[int](), Counter[int]()]
    for pair, count in batches.items():
        for end, index in zip(ends, pair, strict=True):
            end[index] += count
    return max((count for end in ends for count in end.values()), default=0)


def swaps_all(before: Assignment, after: Assignment) -> bool:
    """Whether an instance keeps nothing of what it has, and gets something: its last step may be put off."""
    return any(not slots & before.slots_of(index) for index, slots in after.parts.items() if before.slots_of(index))


# -- all strategies --------------------------------------------------------------------------------------------------


@given(ANY, ANY, SETTINGS)
def test_the_steps_together_are_the_change_and_no_slot_moves_twice(
    before: Assignment, after: Assignment, chosen: MigrationSettings
) -> None:
    steps, reached = cut(before, after.parts, chosen), before
    for move in steps:
        assert move
        assert all(slots.isdisjoint(reached.slots_of(index)) for index, slots in move.items())
        reached = reached.moved(move)
    assert reached == after
    assert sum(steps.sizes) == np.count_nonzero(before.owners != after.owners)


@given(ANY, ANY, SETTINGS)
def test_nobody_who_owns_something_in_the_end_owns_nothing_in_between(
    before: Assignment, after: Assignment, chosen: MigrationSettings
) -> None:
    reached = before
    for move in cut(before, after.parts, chosen):
        now = reached.moved(move)
        assert set(reached.parts) & set(after.parts) <= set(now.parts)
        reached = now


def test_two_that_swap_their_only_slots_do_so_in_one_step() -> None:
    for strategy in Strategy:
        steps = cut(Assignment([0, 1]), {0: SlotSet([1]), 1: SlotSet([0])}, settings(strategy, 1))
        assert list(steps) == [{0: SlotSet([1]), 1: SlotSet([0])}]


@given(ANY, SETTINGS)
def test_a_change_that_moves_nothing_has_no_steps(before: Assignment, chosen: MigrationSettings) -> None:
    assert list(cut(before, before.parts, chosen)) == []
    assert list(cut(before, {}, chosen)) == []


# -- each strategy ---------------------------------------------------------------------------------------------------


@given(ANY, ANY)
def test_all_at_once_is_one_step(before: Assignment, after: Assignment) -> None:
    assume(before != after)
    assert len(cut(before, after.parts, settings("all-at-once"))) == 1


@given(RESCALED)
def test_fluid_moves_one_slot_in_each_step(case: tuple[Assignment, Change]) -> None:
    assert set(cut(*case, settings("fluid")).sizes) <= {1}


@given(RESCALED, st.integers(1, 9))
def test_batched_moves_a_full_batch_in_each_step_but_the_last(case: tuple[Assignment, Change], batch: int) -> None:
    sizes = cut(*case, settings("batched", batch)).sizes.tolist()
    assert sizes[:-1] == [batch] * len(sizes[:-1])
    assert all(0 < size <= batch for size in sizes)


@given(RESCALED, st.integers(1, 9))
def test_batched_takes_of_every_pair_in_proportion(case: tuple[Assignment, Change], batch: int) -> None:
    before, change = case
    total, moved = pairs_of(before, change), Counter[tuple[int, int]]()
    for move in cut(before, change, settings("batched", batch)):
        moved += pairs_of(before, move)
        for pair, count in total.items():
            assert abs(moved[pair] - count * moved.total() / total.total()) <= len(total)


@hypothesis.settings(suppress_health_check=[HealthCheck.filter_too_much])  # of small assignments, many swap all
@given(ANY, ANY, st.integers(1, 9))
def test_optimised_has_every_instance_in_one_pair_of_a_step_with_one_batch_at_most(
    before: Assignment, after: Assignment, batch: int
) -> None:
    assume(not swaps_all(before, after))
    for move in cut(before, after.parts, settings("optimised", batch)):
        pairs = pairs_of(before, move)
        partners = Counter(index for pair in pairs for index in pair)
        assert max(partners.values()) == 1
        assert max(pairs.values()) <= batch


@given(RESCALED, st.integers(1, 9))
def test_optimised_takes_as_few_steps_as_there_can_be_where_nobody_both_gives_and_receives(
    case: tuple[Assignment, Change], batch: int
) -> None:
    assert len(cut(*case, settings("optimised", batch))) == degree(*case, batch)


@given(ANY, ANY, st.integers(1, 9))
def test_optimised_takes_three_times_the_degree_at_most(before: Assignment, after: Assignment, batch: int) -> None:
    change = after.parts
    assert len(cut(before, change, settings("optimised", batch))) <= 3 * degree(before, change, batch)


def test_optimised_works_on_pairs_that_share_no_instance_at_the_same_time() -> None:
    change = {2: SlotSet([2, 3]), 3: SlotSet([6, 7])}
    steps = list(cut(Assignment.contiguous(2, 3), change, settings("optimised", 1)))
    assert steps == [{2: SlotSet([2]), 3: SlotSet([6])}, {2: SlotSet([3]), 3: SlotSet([7])}]


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1]), st.integers(1, 40)
    )
)
def test_matchings_give_every_pair_as_many_turns_as_it_has_work(work: dict[tuple[int, int], int]) -> None:
    turns = Counter[tuple[int, int]]()
    for times, pairs in matchings(work):
        assert len({index for pair in pairs for index in pair}) == 2 * len(pairs) > 0
        turns.update(dict.fromkeys(pairs, times))
    assert turns == work


@given(st.lists(st.integers(0, 4), min_size=1))
def test_places_in_turn_give_every_group_its_share_of_what_comes_first(groups: list[int]) -> None:
    groups = sorted(groups)
    groups = np.unique(groups, return_inverse=True)[1].tolist()
    places = places_in_turn(np.array(groups))
    assert sorted(places.tolist()) == list(range(len(groups)))
    for group, count in Counter(groups).items():
        own = places[np.array(groups) == group].tolist()
        assert own == sorted(own)
        ideal = [(rank + 0.5) * len(groups) / count for rank in range(count)]
        assert all(abs(place + 0.5 - at) <= len(set(groups)) for place, at in zip(own, ideal, strict=True))


# -- many slots ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_a_million_slots_are_cut_without_making_all_steps(strategy: Strategy) -> None:
    before = Assignment.contiguous(16, 20)
    change = rescaled(before, 32, fresh=16)
    steps = cut(before, change, MigrationSettings(strategy=strategy, batch=4))
    count = {"all-at-once": 1, "fluid": 1 << 19, "batched": 1 << 17, "optimised": 1 << 13}[strategy]
    assert len(steps) == count
    assert sum(map(len, steps[-1].values())) == {"all-at-once": 1 << 19, "fluid": 1, "batched": 4}.get(strategy, 64)


def test_a_step_that_is_not_there_is_an_error_of_index() -> None:
    steps = MigrationSteps.of(np.array([4, 5]), np.array([1, 1]), np.array([0, 1]))
    assert steps[-1] == steps[1] == {1: SlotSet([5])}
    with pytest.raises(IndexError):
        steps[2]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_slot_that_is_to_go_to_two_instances_is_refused() -> None:
    with pytest.raises(UserError, match="slot 1 cannot go to instance 3 and to another one"):
        cut(Assignment([0, 0]), {2: SlotSet([0, 1]), 3: SlotSet([1])}, settings("fluid"))


def test_a_slot_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="slot 9 does not exist; the operator has slots 0 to 1"):
        cut(Assignment([0, 0]), {2: SlotSet([9])}, settings("fluid"))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"strategy": "slow"}, "migration: strategy is 'slow'"),
        ({"batch": 0}, "migration: batch is 0"),
        ({"gap": "fast"}, "migration: gap is 'fast'"),
        ({"gap_epochs": -1}, "migration: gap_epochs is -1"),
        ({"lead": 0}, "migration: lead is 0"),
        ({"pause": 1}, "migration: pause is unknown; known are strategy, batch, gap, gap_epochs, lead"),
    ],
)
def test_wrong_settings_are_refused_with_their_field(said: dict[str, object], words: str) -> None:
    with pytest.raises(WrongSettings, match=words):
        checked(MigrationSettings, said, "migration")
