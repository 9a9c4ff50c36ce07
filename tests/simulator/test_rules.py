"""Each rule of the protocol, switched off, makes the simulator fail: the rules matter, and the simulator sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from policies.scaling import scale_in
from primitives.graph import InstanceId
from primitives.partition import partition_buffer_state
from primitives.trim import safe_to_trim
from seep.control.balancing import Balancing
from seep.control.drains import Drains
from seep.control.migrations import Migrations
from seep.control.policy_rounds import PolicyRounds
from seep.control.scalings import Scaling, Scalings
from seep.control.vm_needs import VMNeeds
from seep.protocol.cuts import Beginning
from seep.protocol.instances import instance, keyed, source
from seep.protocol.instances.departures import Departures
from seep.protocol.instances.inbox import Inbox
from seep.protocol.instances.instance import Instance
from seep.protocol.manager import safety
from seep.protocol.manager.epochs import Epochs
from seep.protocol.manager.moves import Moves
from seep.protocol.manager.plans import Refused
from seep.protocol.manager.recovery import Recovery
from seep.protocol.manager.replication import BackupCopy, Replication
from seep.protocol.messages import FromNothing, Logged
from seep.protocol.node import Node
from seep.simulator.cells import Cells
from seep.simulator.faults import What
from seep.simulator.schedule import Outcome, Plan, Verdict, minimise, run_schedule
from seep.simulator.world import Limits
from vmpool.pool import Pool

#: A schedule that cannot end shows it early enough: runs that follow all rules stay far below this.
LIMITS = Limits(steps=30_000)


def skip_the_duplicate_drop() -> AbstractContextManager[Any]:
    return patch.object(Inbox, "is_duplicate", lambda _self, _epoch, _sender: False)


def trim_one_epoch_early() -> AbstractContextManager[Any]:
    def too_far(
        topology: Any, sender: InstanceId, trimmed: int, limit: int, safe_epoch: Callable[[InstanceId], int], **of: Any
    ) -> int:
        return safe_to_trim(topology, sender, trimmed, limit, lambda receiver: safe_epoch(receiver) + 1, **of)

    return patch.object(safety, "safe_to_trim", too_far)


def accept_what_zombies_say() -> AbstractContextManager[Any]:
    return patch.object(Instance, "_is_attached", lambda self, sender: sender.instance in self._attached)


def drop_departed_state_before_the_targets_backup() -> AbstractContextManager[Any]:
    begin = Departures.begin

    def begin_and_drop(self: Departures, epoch: int, targets: Mapping[InstanceId, Any]) -> Any:
        receivers = begin(self, epoch, targets)
        for slots in targets.values():
            self._state.drop(slots)
        return receivers

    return patch.object(Departures, "begin", begin_and_drop)


def route_one_epoch_with_the_wrong_topology() -> AbstractContextManager[Any]:
    def late(emission: Any, topology: Any, epoch: int, sender: Any, receiver: InstanceId, batches: Any) -> Any:
        is_first = topology.version_at(receiver.operator, epoch).first == epoch
        return partition_buffer_state(emission, topology, epoch - is_first, sender, receiver, batches)

    return patch.object(instance, "partition_buffer_state", late)


def tick_before_a_plan_is_acknowledged() -> AbstractContextManager[Any]:
    return patch.object(Moves, "holds_back", lambda _self, _epoch: False)


def let_data_leave_a_source_before_it_is_logged() -> AbstractContextManager[Any]:
    deliver = source.SourceInstance._deliver

    def deliver_at_once(self: Any, work: Any) -> None:
        deliver(self, work)
        self._on_logged(Logged(self.me, work.epoch))

    return patch.object(source.SourceInstance, "_deliver", deliver_at_once)


def let_positions_leave_a_source_before_they_are_logged() -> AbstractContextManager[Any]:
    return patch.object(source.SourceInstance, "_depart", keyed.KeyedInstance._depart)


def read_letters_from_the_future() -> AbstractContextManager[Any]:
    receive = Node.receive
    return patch.object(Node, "receive", lambda self, sender, _version, body: receive(self, sender, 0, body))


def let_a_split_forget_what_it_will_replay() -> AbstractContextManager[Any]:
    return patch.object(safety.SafeEpochs, "pin", lambda _self, _instance: None)


def leave_departed_slots_out_of_checkpoints() -> AbstractContextManager[Any]:
    def owned(self: Any) -> Any:
        return self.view.topology.slots(self.me.instance, self.processed)

    return patch.object(keyed.KeyedInstance, "_slots_kept", owned)


def begin_empty_where_state_is_lost() -> AbstractContextManager[Any]:
    def begin_empty(self: Any, lost: InstanceId) -> None:
        if self._state.roster.nodes:
            self._placer.start(lost, self._placer.pick_node(), FromNothing(self._state.safe.of(lost)))

    return patch.object(Recovery, "_search", begin_empty)


def give_up_without_asking_for_unrecorded_copies() -> AbstractContextManager[Any]:
    return patch.object(Recovery, "_search", Recovery._fail)


def count_a_backup_as_soon_as_one_replica_has_it() -> AbstractContextManager[Any]:
    def of_the_newest(self: Replication, owner: InstanceId, live: Any) -> Any:
        chain = self._chains.get(owner)
        if chain is None:
            return None
        order, epoch = max(chain.has.values())
        return epoch, BackupCopy(tuple(node for node in chain.holders if node in live) or ("n1",), order)

    return patch.object(Replication, "counts", of_the_newest)


def complete_a_cut_before_the_sinks_have_committed_it() -> AbstractContextManager[Any]:
    committed = Epochs._has_committed

    def at_once(self: Any, sink: InstanceId, epoch: int) -> bool:
        return epoch != self._state.final or committed(self, sink, epoch)

    return patch.object(Epochs, "_has_committed", at_once)


def give_a_new_life_the_incarnations_of_the_last() -> AbstractContextManager[Any]:
    return patch.object(Beginning, "first_incarnation", 0)


def forget_what_changed_since_the_last_cut() -> AbstractContextManager[Any]:
    """As if a delta of the newest backup were one of the newest cut."""

    def since_the_backup(self: Any, slots: Any, since: int | None = None) -> Any:
        later = [mark for mark in self.marks if since is not None and mark > since]
        return snapshot(self, slots, min(later, default=since))

    snapshot = Cells.snapshot
    return patch.object(Cells, "snapshot", since_the_backup)


def forget_that_what_was_restored_ahead_is_new() -> AbstractContextManager[Any]:
    return patch.object(Cells, "adopt", lambda _self, _slots: None)


# -- rules of control --------------------------------------------------------------------------------------------------


def try_for_ever_to_split_what_is_in_storage() -> AbstractContextManager[Any]:
    """As if that would pass, and each try were progress."""

    def carry_on(self: Scalings, facts: Any, scaling: Any) -> None:
        if scaling.operator in facts.query.not_on_nodes and self._is_split_wanted(facts.query, scaling.decision):
            scaling.got_on = facts.at
        else:
            followed(self, facts, scaling)

    followed = Scalings._carry_on
    return patch.object(Scalings, "_carry_on", carry_on)


def never_give_a_scaling_up() -> AbstractContextManager[Any]:
    return patch.object(Scalings, "_is_stuck", lambda _self, _facts, _scaling: False)


def never_give_a_drain_up() -> AbstractContextManager[Any]:
    note = Drains._note

    def gets_on(self: Drains, facts: Any, node: str, drain: Any) -> Any:
        owners = note(self, facts, node, drain)
        drain.got_on = facts.at
        return owners

    return patch.object(Drains, "_note", gets_on)


def never_give_a_wish_for_balance_up() -> AbstractContextManager[Any]:
    return patch.object(Balancing, "_end_wishes", lambda _self, _facts: None)


def let_policies_change_what_was_asked_for_by_hand() -> AbstractContextManager[Any]:
    opened = Scalings.open

    def open_anyway(self: Scalings, facts: Any, decision: Any, seen: int | None = None) -> None:
        if (there := self._open.get(decision.operator)) is not None and not there.is_begun:
            there.seen = there.before
        opened(self, facts, decision, seen)

    return patch.object(Scalings, "open", open_anyway)


def heed_late_answers_of_policies() -> AbstractContextManager[Any]:
    return patch.object(PolicyRounds, "_notice_late", lambda _self, _facts: None)


def end_decisions_without_a_word() -> AbstractContextManager[Any]:
    return patch.object(Scalings, "_end", lambda self, _facts, scaling, _event, _why: self._close(scaling))


def tell_what_was_not_carried_out_as_done() -> AbstractContextManager[Any]:
    def told_as_done(self: Scalings, facts: Any, scaling: Any, instances: int) -> None:
        change = self._end_change(facts, scaling, instances)
        self._close(scaling)
        self._tell_done(facts, scaling, change)

    return patch.object(Scalings, "_note_over", told_as_done)


def open_a_second_decision_on_an_operator() -> AbstractContextManager[Any]:
    def open_beside(self: Scalings, facts: Any, decision: Any, seen: int | None = None) -> None:
        before = facts.query.instances(decision.operator)
        key = decision.operator if decision.operator not in self._open else f"{decision.operator} again"
        self._open[key] = Scaling(decision, facts.at, before, seen)

    return patch.object(Scalings, "open", open_beside)


def want_nodes_for_what_is_over() -> AbstractContextManager[Any]:
    return patch.object(VMNeeds, "forget", lambda _self, _operator: None)


def wait_for_ever_for_what_was_refused_once() -> AbstractContextManager[Any]:
    announced = Migrations._on_announced

    def not_again(self: Migrations, migration: Any, parts: Any, facts: Any, answer: object) -> None:
        announced(self, migration, parts, facts, answer)
        if isinstance(answer, Refused) and migration.again:
            migration.again = float("inf")

    return patch.object(Migrations, "_on_announced", not_again)


def merge_whoever_has_little_to_do_whatever_it_leads_to() -> AbstractContextManager[Any]:
    return patch.object(scale_in, "_has_room", lambda *_: True)


def lose_sight_of_vms_that_did_not_start() -> AbstractContextManager[Any]:
    def failed(self: Pool, name: str, reason: str, again: bool, now: float) -> None:
        del name, reason
        self._starts.failed(now, again=again)

    return patch.object(Pool, "start_failed", failed)


ALL: tuple[What, ...] = ()
REPLICAS = (What.REPLICATE, What.KILL, What.CHECKPOINT, What.JOIN)

#: The rule that is broken, the kinds of fault that show it soonest, and how many schedules may pass unnoticed.
BROKEN: dict[Callable[[], AbstractContextManager[Any]], tuple[tuple[What, ...], int]] = {
    skip_the_duplicate_drop: (ALL, 400),
    trim_one_epoch_early: (ALL, 20),
    accept_what_zombies_say: ((What.BLIND_SPLIT,), 1_000),
    drop_departed_state_before_the_targets_backup: (ALL, 200),
    route_one_epoch_with_the_wrong_topology: (ALL, 50),
    tick_before_a_plan_is_acknowledged: ((What.BLIND_MOVE,), 500),
    let_data_leave_a_source_before_it_is_logged: (ALL, 200),
    let_positions_leave_a_source_before_they_are_logged: ((What.MERGE, What.ISOLATE, What.KILL), 500),
    read_letters_from_the_future: (ALL, 50),
    let_a_split_forget_what_it_will_replay: ((What.SPLIT, What.CHECKPOINT), 500),
    leave_departed_slots_out_of_checkpoints: (ALL, 200),
    begin_empty_where_state_is_lost: (ALL, 200),
    give_up_without_asking_for_unrecorded_copies: (ALL, 1_000),
    count_a_backup_as_soon_as_one_replica_has_it: (REPLICAS, 1_000),
    give_a_new_life_the_incarnations_of_the_last: ((What.RESTART, What.KILL), 100),
}

#: The same for the rules of steward and pool.
BROKEN |= {
    try_for_ever_to_split_what_is_in_storage: ((What.SCALE,), 150),
    never_give_a_scaling_up: (ALL, 50),
    never_give_a_drain_up: ((What.DRAIN, What.LEAVE), 50),
    never_give_a_wish_for_balance_up: ((What.BALANCE,), 50),
    let_policies_change_what_was_asked_for_by_hand: ((What.SCALE,), 50),
    heed_late_answers_of_policies: (ALL, 200),
    end_decisions_without_a_word: (ALL, 10),
    tell_what_was_not_carried_out_as_done: (ALL, 100),
    open_a_second_decision_on_an_operator: (ALL, 20),
    want_nodes_for_what_is_over: (ALL, 20),
    lose_sight_of_vms_that_did_not_start: (ALL, 20),
}

#: The same for rules that take longer runs to be broken: several cuts and restarts in each, or many moves.
CUTS = Plan(
    most_faults=25,
    over_steps=2500,
    limits=Limits(rows=24, steps=100_000),
    only=(What.PERSIST, What.RESTART, What.CHECKPOINT, What.MOVE),
)
#: Moves that are prepared ahead, with checkpoints between what is restored ahead and the handover.
MOVES = Plan(
    most_faults=40,
    over_steps=2500,
    limits=Limits(rows=40, steps=100_000),
    only=(What.PREPARED_MOVE, What.KILL_CONCERNED, What.MIGRATE, What.CHECKPOINT),
)
CALM = Plan(most_faults=2, over_steps=300, limits=Limits(rows=30, steps=100_000), only=(What.CHECKPOINT, What.SCALE))
REFUSALS = Plan(
    most_faults=12,
    over_steps=1500,
    limits=Limits(rows=50, steps=100_000),
    only=(What.MIGRATE, What.MOVE, What.SPLIT, What.STREAM),
)
BROKEN_IN_LONG_RUNS: dict[Callable[[], AbstractContextManager[Any]], tuple[Plan, int]] = {
    complete_a_cut_before_the_sinks_have_committed_it: (CUTS, 400),
    forget_what_changed_since_the_last_cut: (CUTS, 200),
    forget_that_what_was_restored_ahead_is_new: (MOVES, 120),
    wait_for_ever_for_what_was_refused_once: (REFUSALS, 60),
    merge_whoever_has_little_to_do_whatever_it_leads_to: (CALM, 60),
}


#: Which take longest to be noticed.
SLOW = (
    accept_what_zombies_say,
    complete_a_cut_before_the_sinks_have_committed_it,
    forget_that_what_was_restored_ahead_is_new,
    forget_what_changed_since_the_last_cut,
    give_up_without_asking_for_unrecorded_copies,
    let_positions_leave_a_source_before_they_are_logged,
)


def rules(broken: Iterable[Callable[[], AbstractContextManager[Any]]]) -> list[Any]:
    return [
        pytest.param(rule, marks=[pytest.mark.acceptance] if rule in SLOW else [], id=rule.__name__) for rule in broken
    ]


def first_violation(plan: Plan, within: int) -> Outcome | None:
    outcomes = (run_schedule(seed, plan) for seed in range(within))
    return next((outcome for outcome in outcomes if outcome.verdict is Verdict.VIOLATION), None)


@pytest.mark.parametrize("broken", rules(BROKEN))
def test_the_simulator_notices_a_broken_rule(broken: Callable[[], AbstractContextManager[Any]]) -> None:
    kinds, within = BROKEN[broken]
    with broken():
        assert first_violation(Plan(only=kinds, limits=LIMITS), within) is not None


@pytest.mark.parametrize("broken", rules(BROKEN_IN_LONG_RUNS))
def test_the_simulator_notices_a_rule_that_is_broken_in_long_runs(
    broken: Callable[[], AbstractContextManager[Any]],
) -> None:
    with broken():
        assert first_violation(*BROKEN_IN_LONG_RUNS[broken]) is not None


def test_runs_full_of_cuts_and_restarts_are_exact() -> None:
    assert first_violation(CUTS, 40) is None


def test_a_violation_is_cut_down_to_faults_that_all_matter() -> None:
    plan = Plan(limits=LIMITS)
    with drop_departed_state_before_the_targets_backup():
        found = first_violation(plan, within=200)
        assert found is not None
        least = minimise(found, plan)
        assert least.verdict is Verdict.VIOLATION
        assert len(least.faults) <= len(found.faults)
        for i in range(len(least.faults)):
            fewer = [*least.faults[:i], *least.faults[i + 1 :]]
            assert run_schedule(least.seed, plan, fewer).verdict is not Verdict.VIOLATION
