"""Balance: what each balancer moves and leaves, and what throughput comes to in a closed loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.balance.autoflow import AutoFlow, AutoFlowSettings
from policies.balance.hotspot import Hotspot, HotspotSettings
from policies.balance.levelling import first_fit
from policies.balance.loads import Balancer, Heaviest, Rebalance, SlotLoads, by_instance, work_of
from primitives.slots import SlotSet
from primitives.topology import Assignment
from tests.policies.skew import Curve, Skewed, always, owned_by, rotating, skewed, spike
from tests.strategies import assignments

BALANCERS = (AutoFlow(), Hotspot())
THREE = Assignment([0, 0, 0, 0, 1, 1, 2, 2])


def window(rows: list[int], assignment: Assignment = THREE, **said: Any) -> SlotLoads:
    return SlotLoads(1.0, assignment, np.array(rows), **said)


def loads(assignment: Assignment, rows: NDArray[Any]) -> dict[int, int]:
    return {index: int(rows[slots.array].sum()) for index, slots in assignment.parts.items()}


# -- laws ------------------------------------------------------------------------------------------------------------

ROWS = st.lists(st.integers(0, 50), min_size=16, max_size=16).map(np.array)
WINDOWS = st.builds(
    lambda assignment, rows: [SlotLoads(1.0, assignment, each) for each in rows],
    assignments(4, instances=5),
    st.lists(ROWS, min_size=1, max_size=4),
)


@pytest.mark.parametrize("balancer", BALANCERS, ids=lambda each: type(each).__name__)
@given(windows=WINDOWS)
def test_slots_go_to_instances_that_are_there_and_nobody_loses_all(
    balancer: Balancer, windows: list[SlotLoads]
) -> None:
    before = windows[-1].assignment
    moves = balancer.decide(windows).moves
    after = before.moved(moves)
    assert set(moves) <= set(before.parts) == set(after.parts)
    assert all(slots and slots.isdisjoint(before.slots_of(index)) for index, slots in moves.items())


@pytest.mark.parametrize("balancer", BALANCERS, ids=lambda each: type(each).__name__)
@given(assignment=assignments(4, instances=5), rows=ROWS)
def test_under_a_steady_load_the_fullest_has_less_after_a_move(
    balancer: Balancer, assignment: Assignment, rows: NDArray[Any]
) -> None:
    moves = balancer.decide([SlotLoads(1.0, assignment, rows)] * 3).moves
    fullest, before = max(loads(assignment, rows).values()), loads(assignment, rows)
    after = loads(assignment.moved(moves), rows)
    if list(before.values()).count(fullest) == 1 and moves:
        assert max(after.values()) < fullest
    assert max(after.values()) <= fullest


@given(assignments(4, instances=5), ROWS)
def test_a_hotspot_balancer_comes_to_rest_under_a_steady_load(assignment: Assignment, rows: NDArray[Any]) -> None:
    moved = []
    for _ in range(6):
        moves = Hotspot().decide([SlotLoads(1.0, assignment, rows)] * 3).moves
        assignment = assignment.moved(moves)
        moved.append(len(moves))
    assert moved[-1] == 0


@given(WINDOWS, st.sets(st.integers(0, 15)))
def test_slots_on_their_way_are_left_alone(windows: list[SlotLoads], moving: set[int]) -> None:
    last = windows[-1]
    windows = [*windows[:-1], SlotLoads(1.0, last.assignment, last.rows, moving=SlotSet(moving))]
    moved = {slot for slots in Hotspot().decide(windows).moves.values() for slot in slots}
    assert moved.isdisjoint(moving)


@given(WINDOWS, st.integers(1, 4))
def test_no_more_slots_move_than_are_allowed(windows: list[SlotLoads], most: int) -> None:
    moves = Hotspot(HotspotSettings(max_moves=most, margin=0)).decide(windows).moves
    assert sum(map(len, moves.values())) <= most


@given(st.lists(st.integers(0, 20)), st.integers(0, 60))
def test_first_fit_takes_whatever_still_goes_in(sizes: list[int], room: int) -> None:
    taken = first_fit(np.array(sizes, np.float64), float(room))
    left = room
    for size, chosen in zip(sizes, taken, strict=True):
        assert chosen == (0 < size <= left)
        left -= size * chosen


# -- AutoFlow's Algorithm 3 ------------------------------------------------------------------------------------------


def algorithm_3(window: SlotLoads, factor: float) -> list[int]:
    """The slots that move, as the paper writes the algorithm down; without those that have no rows."""
    total = {index: int(window.rows[slots.array].sum()) for index, slots in window.assignment.parts.items()}
    max_id, min_id = max(total, key=total.__getitem__), min(total, key=total.__getitem__)
    count = {slot: int(window.rows[slot]) for slot in window.assignment.slots_of(max_id)}
    migrated: list[int] = []
    diff = total[max_id] - total[min_id]
    if total[max_id] and diff / total[max_id] >= factor:
        gap = diff / 2
        while gap > 0 and count:
            slot = max(count, key=count.__getitem__)
            if gap >= count[slot] > 0:
                migrated.append(slot)
                gap -= count[slot]
            del count[slot]
    return sorted(migrated)


@given(assignments(4, instances=5), ROWS, st.sampled_from([0.01, 0.2, 0.3, 0.5, 1.0]))
def test_autoflow_moves_what_algorithm_3_moves(assignment: Assignment, rows: NDArray[Any], factor: float) -> None:
    windows = [SlotLoads(1.0, assignment, rows)]
    moves = AutoFlow(AutoFlowSettings(factor=factor)).decide(windows).moves
    assert sorted(slot for slots in moves.values() for slot in slots) == algorithm_3(windows[0], factor)


def test_autoflow_gives_the_largest_slots_that_fit_into_half_the_gap_to_the_emptiest() -> None:
    decided = AutoFlow().decide([window([50, 10, 25, 20, 5, 5, 5, 5])])
    # 105 against 10: room for 47. Slot 0 does not fit; 25 and 20 do; in the order of slots it would be 10 and 25
    assert decided.moves == {1: SlotSet([2, 3])}
    assert decided.why == "instance 0 had 105 rows in 1 s, instance 1 had 10: 2 slots go there"


def test_autoflow_compares_the_fullest_with_the_emptiest_and_not_with_the_mean() -> None:
    windows = [window([9, 9, 9, 73, 40, 40, 48, 47])]  # 100, 80 and 95 rows: 1.09 times the mean, and a gap of 0.2
    assert AutoFlow(AutoFlowSettings(factor=0.2)).decide(windows).moves == {1: SlotSet([0])}
    assert AutoFlow(AutoFlowSettings(factor=0.21)).decide(windows).moves == {}


def test_autoflow_moves_nothing_while_there_are_no_rows() -> None:
    assert AutoFlow(AutoFlowSettings(factor=0.01)).decide([window([0] * 8)]) == Rebalance()


def test_autoflow_waits_until_slots_on_their_way_have_arrived() -> None:
    assert AutoFlow().decide([window([50, 10, 20, 10, 5, 5, 5, 5], moving=SlotSet([7]))]).moves == {}


# -- hotspots --------------------------------------------------------------------------------------------------------


def test_one_uneven_window_is_not_enough() -> None:
    uneven, even = window([30, 30, 30, 30, 5, 5, 5, 5]), window([5, 5, 5, 5, 10, 10, 10, 10])
    assert Hotspot().decide([even, even, uneven]).moves == {}
    decided = Hotspot().decide([even, uneven, uneven])
    assert decided.moves
    assert decided.why.startswith("by rows the fullest of 3 instances has 2.")


def test_several_instances_get_some_at_once() -> None:
    decided = Hotspot().decide([window([30, 30, 30, 30, 5, 5, 5, 5])] * 2)
    assert sorted(decided.moves) == [1, 2]


def test_a_hotspot_that_would_be_as_hot_elsewhere_stays_and_the_others_leave_it() -> None:
    decided = Hotspot().decide([window([60, 10, 10, 4, 5, 5, 5, 5])] * 2)
    after = THREE.moved(decided.moves)
    assert after.slots_of(0) == SlotSet([0])
    assert max(loads(after, np.array([60, 10, 10, 4, 5, 5, 5, 5])).values()) == 60


def test_a_slot_that_is_more_than_half_the_gap_moves_if_the_fullest_then_has_less() -> None:
    rows = [60, 50, 0, 0, 15, 15, 15, 15]
    after = THREE.moved(Hotspot().decide([window(rows)] * 2).moves)
    assert max(loads(after, np.array(rows)).values()) == 60


def test_a_single_hot_slot_does_not_move_at_all() -> None:
    assert Hotspot().decide([window([60, 0, 0, 0, 5, 5, 5, 5])] * 3).moves == {}


def test_slots_that_moved_rest() -> None:
    rows = [30, 30, 30, 30, 5, 5, 5, 5]
    before = Assignment([1, 0, 0, 0, 0, 1, 2, 2])  # slots 0 and 4 have changed hands since
    moved = Hotspot().decide([window(rows, before), window(rows), window(rows)]).moves
    assert 0 not in {slot for slots in moved.values() for slot in slots}
    rested = Hotspot(HotspotSettings(rest=1)).decide([window(rows, before), window(rows), window(rows)]).moves
    assert rested == Hotspot().decide([window(rows)] * 3).moves


def test_what_takes_long_weighs_more_than_what_has_many_rows() -> None:
    cpu = np.array([0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01])
    even = window([10] * 8, Assignment([0, 0, 0, 1, 1, 1, 2, 2]))
    assert Hotspot().decide([even] * 2).moves == {}
    slow = window([10] * 8, cpu=cpu)
    decided = Hotspot().decide([slow] * 2)
    assert decided.why.startswith("by CPU time the fullest of 3 instances has 2.73 times the mean")
    assert {slot for slots in decided.moves.values() for slot in slots} < {0, 1, 2, 3}


def test_the_cpu_time_of_slots_of_which_it_is_not_known_follows_from_their_rows() -> None:
    cpu = np.array([0.2, np.nan, 0.1, 0.1, 0.1, 0.1, 0.1, np.nan])
    work = work_of([window([20, 30, 10, 10, 10, 10, 10, 0], cpu=cpu)])
    assert work == pytest.approx(np.array([[0.2, 0.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.0]]))


def test_rows_count_where_a_window_does_not_tell_of_cpu_time() -> None:
    with_cpu, without = window([10] * 8, cpu=np.ones(8)), window([20] * 8)
    assert work_of([with_cpu, without]).tolist() == [[10.0] * 8, [20.0] * 8]
    unknown = window([10] * 8, cpu=np.full(8, np.nan))
    assert work_of([unknown]).tolist() == [[10.0] * 8]


@given(assignments(4, instances=5), st.lists(ROWS, min_size=1, max_size=3))
def test_the_work_of_instances_is_that_of_their_slots(assignment: Assignment, rows: list[NDArray[Any]]) -> None:
    work = np.array(rows, np.float64)
    found = by_instance(work, assignment.owners, 5)
    for index in range(5):
        assert found[:, index].tolist() == work[:, assignment.slots_of(index).array].sum(axis=1).tolist()


# -- slots that are too hot ------------------------------------------------------------------------------------------

HOT = [60, 1, 1, 1, 5, 5, 5, 5]


def test_a_slot_that_is_too_hot_is_told_once_while_it_lasts() -> None:
    hot = window(HOT, heaviest={0: Heaviest("the", 0.9)})
    told = [Hotspot().decide([hot] * count).hot for count in range(1, 6)]
    assert [len(each) for each in told] == [0, 1, 0, 0, 0]
    (found,) = told[1]
    assert (found.slot, found.instance, found.key) == (0, 0, "the")
    assert found.share == pytest.approx(60 / 83)
    assert found.why == (
        "slot 0 of instance 0 makes 72 % of all work, and one of 3 instances should have 33 %; its heaviest key the "
        "has 90 % of its rows; to move it would not help: aggregate before the rows are keyed, or divide the key"
    )


def test_a_slot_that_becomes_too_hot_again_is_told_again() -> None:
    hot, even = window(HOT), window([10] * 8)
    assert len(Hotspot().decide([hot, hot, even, hot, hot]).hot) == 1


def test_without_a_heaviest_key_the_slot_alone_is_told() -> None:
    (found,) = Hotspot().decide([window(HOT)] * 2).hot
    assert found.key is None
    assert "key" not in found.why.partition("aggregate")[0]


def test_nothing_is_too_hot_for_the_only_instance() -> None:
    assert Hotspot().decide([window(HOT, Assignment([0] * 8))] * 3).hot == ()


# -- closed loop -----------------------------------------------------------------------------------------------------

#: Skew of AutoFlow's evaluation: on how many instances, and the curve.
STEADY = {
    "50 % on one of 3": (3, always(skewed(owned_by([0], 3), 0.5))),
    "80 % on one of 3": (3, always(skewed(owned_by([0], 3), 0.8))),
    "60 % on two of 5": (5, always(skewed(owned_by([0, 1], 5), 0.6))),
    "80 % on two of 5": (5, always(skewed(owned_by([0, 1], 5), 0.8))),
}
NOISE = (0.0, 0.3)


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("case", STEADY)
def test_under_steady_skew_the_fullest_soon_has_little_more_than_the_mean_and_all_is_quiet(
    case: str, noise: float
) -> None:
    instances, curve = STEADY[case]
    run = Skewed(curve, instances, Hotspot(), noise, takes=1).run(40)
    assert np.mean(run.throughput[10:]) >= 1 / 1.1
    assert min(run.throughput[10:]) >= 1 / (1.1 if not noise else 1.15)
    assert sum(run.moved[10:]) == 0
    assert run.told == []


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("seconds", [10, 20])
def test_a_spike_is_levelled_out_and_what_comes_after_it_too(seconds: int, noise: float) -> None:
    curve = spike(skewed(owned_by([0], 3), 0.8), 10, 10 + seconds)
    run = Skewed(curve, 3, Hotspot(), noise, takes=1).run(60)
    assert min(run.throughput[:10] + run.throughput[13 : 10 + seconds]) >= 1 / 1.25
    assert min(run.throughput[-20:]) >= 1 / 1.15
    assert np.mean(run.throughput) > np.mean(Skewed(curve, 3, None, noise).run(60).throughput)


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("period", [1, 2, 3, 5, 10, 20])
@pytest.mark.parametrize("instances", [3, 5])
def test_a_hotspot_that_goes_round_is_spread_and_not_run_after(instances: int, period: int, noise: float) -> None:
    windows = 8 * max(period, 5) * instances
    curve = rotating(0.8, instances, period)
    alone = Skewed(curve, instances, None, noise).run(windows)
    run = Skewed(curve, instances, Hotspot(), noise, takes=1).run(windows)
    reached = np.cumsum(run.throughput) / np.cumsum(alone.throughput)
    assert reached.min() >= 0.95  # at no time was much less done than without
    assert np.mean(run.throughput) >= 2 * np.mean(alone.throughput)
    half = windows // 2
    assert sum(run.moved[half:]) < sum(run.moved[:half])


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_rotating_single_slot_moves_nothing_but_the_others(share: float) -> None:
    """One slot of each instance in its turn: to move it would not help, and it is gone before it could."""

    def curve(at: int) -> NDArray[np.float64]:
        return skewed(np.arange(256) == (at // 4 % 3) * 86, share)

    alone, run = (Skewed(curve, 3, each).run(48) for each in (None, Hotspot()))
    assert np.mean(run.throughput) >= np.mean(alone.throughput)
    assert run.told


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_at_rest_the_fullest_has_little_more_than_the_mean_or_no_slot_of_it_would_help_elsewhere(
    instances: int, seed: int
) -> None:
    shares = np.random.default_rng(seed).pareto(1.2, 256) + 0.1
    shares /= shares.sum()
    run = Skewed(always(shares), instances, Hotspot()).run(12)
    assert run.moved[-1] == 0
    assert bool(run.told) == (shares.max() > 1.1 / instances)
    has = np.bincount(run.assignment.owners, weights=shares, minlength=instances)
    fullest, settings = int(has.argmax()), HotspotSettings()
    if has.max() > settings.factor * has.mean():
        for slot in run.assignment.slots_of(fullest):
            after = has.copy()
            after[fullest] -= shares[slot]
            after[has.argmin()] += shares[slot]
            assert after.max() >= (1 - settings.margin) * has.max() - 1e-4  # rows are whole


def test_many_slots_are_levelled_as_few_are() -> None:
    curve: Curve = always(skewed(owned_by([0, 1], 16, 16), 0.8))
    run = Skewed(curve, 16, Hotspot(), slot_bits=16).run(6)
    assert run.throughput[-1] >= 1 / 1.1
