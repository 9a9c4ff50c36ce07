"""Queries: what the parts of a run want to know of a manager, asked of one that letters have brought somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from seep.driver import queries
from seep.protocol.manager.manager import Manager
from seep.protocol.messages import OffsetsRead
from tests.protocol.staging import ALL, GRAPH, NUMBERS, OUT, SUM, SUM1, life
from tests.protocol.test_manager import HALF, HOME, KEEPER, SPARE, Desk


def read(desk: Desk, epoch: int) -> None:
    """The source has read an epoch of one slot, and stands where it says."""
    desk.hear(HOME[NUMBERS], OffsetsRead(life(NUMBERS), epoch, {0: ((epoch,), epoch)}, False))


def test_live_nodes_that_leave_are_not_among_those_that_stay() -> None:
    manager = Manager(GRAPH)
    for name in ("n10", "n9", "n2"):
        manager.node_joined(name)
    manager.launch()
    manager.node_leaving("n9")
    assert queries.live_nodes(manager) == {"n2", "n9", "n10"}
    assert queries.staying_nodes(manager) == ["n2", "n10"]


def test_the_placement_is_that_of_all_instances() -> None:
    assert queries.placement(Desk().manager) == HOME


def test_the_latest_assignment_has_what_is_announced_and_not_in_effect_yet() -> None:
    desk = Desk(spare=[SPARE])
    assert set(queries.latest_assignment(desk.manager, "sum").parts) == {0}
    desk.manager.move("sum", {1: HALF})
    assert queries.latest_assignment(desk.manager, "sum").parts[1] == HALF


def test_an_instance_has_a_backup_once_its_holder_has_said_so() -> None:
    desk = Desk()
    assert queries.backup_of(desk.manager, SUM) is None
    desk.tick(3)
    desk.back_up(SUM, 2)
    backup = queries.backup_of(desk.manager, SUM)
    assert backup is not None
    assert backup.holders == (KEEPER,)


def test_an_operator_is_safe_as_far_as_all_its_instances_are() -> None:
    desk = Desk(spare=[SPARE], lead=0)
    desk.manager.move("sum", {1: HALF})
    desk.acknowledge()
    desk.tick(4)
    desk.back_up(SUM, 4)
    assert queries.safe_epoch(desk.manager, "sum") < 4
    desk.back_up(SUM1, 3)
    assert queries.safe_epoch(desk.manager, "sum") == 3


def test_the_final_epoch_is_known_once_the_query_is_ending() -> None:
    desk = Desk()
    desk.tick(2)
    assert (queries.is_ending(desk.manager), queries.final_epoch(desk.manager)) == (False, None)
    desk.manager.finish()
    assert (queries.is_ending(desk.manager), queries.final_epoch(desk.manager)) == (True, 3)


def test_a_cut_says_what_it_waits_for_until_it_is_over() -> None:
    desk = Desk()
    assert queries.cut_waits_for(desk.manager) is None
    cut, _ = desk.manager.persist()
    assert cut is not None
    assert queries.cut_waits_for(desk.manager) == f"the cut after epoch {cut.epoch} waits for the state of {SUM}"
    desk.manager.abandon_cut(cut.id, "late")
    assert queries.cut_waits_for(desk.manager) is None


def test_the_outlook_of_a_cut_has_the_slots_of_those_that_will_own_any() -> None:
    desk = Desk(spare=[SPARE])
    desk.manager.move("sum", {1: HALF})
    outlook = queries.cut_outlook(desk.manager)
    assert outlook.complete_epoch is None
    assert sorted(outlook.slots) == sorted(GRAPH.operators)
    assert set(outlook.slots["sum"]) == {HALF, ALL - HALF}
    assert outlook.slots["pass"] == (ALL,)


def test_the_home_of_a_slot_is_the_node_of_its_owner() -> None:
    desk = Desk()
    assert queries.home_of(desk.manager, "numbers", 1) == HOME[NUMBERS]


def test_the_oldest_position_that_is_needed_is_that_after_the_trimmed_epoch() -> None:
    desk = Desk(trim_every=1)
    assert queries.oldest_needed(desk.manager, "numbers") == {}
    desk.tick(5)
    for epoch in range(1, 6):
        read(desk, epoch)
    desk.settle(4)
    trimmed = desk.manager.safe.trimmed[NUMBERS]
    assert trimmed > 0
    assert queries.oldest_needed(desk.manager, "numbers") == {0: ((trimmed,), trimmed)}


def test_positions_behind_a_sink_are_those_of_the_epoch_that_it_has_committed() -> None:
    desk = Desk()
    desk.tick(5)
    for epoch in range(1, 6):
        read(desk, epoch)
    desk.commit(3)
    assert queries.positions_behind(desk.manager, NUMBERS, OUT) == {0: ((3,), 3)}


def test_nobody_asks_by_a_function_without_a_name() -> None:
    """Whoever waits for an answer that does not come is told what was asked."""
    root = Path(__file__).parents[2]
    sources = [path for name in ("seep", "benchmarks", "lrb", "nexmark") for path in root.glob(f"{name}/**/*.py")]
    asked = re.compile(r"(process|manager|loop)\.(ask|change|on_loop)\(\s*lambda")
    assert sources
    assert [path.name for path in sources if asked.search(path.read_text(encoding="utf-8"))] == []
