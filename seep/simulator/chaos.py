"""Carries out faults: chooses their targets, and applies them to the world."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.migration.settings import Strategy
from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.control.migration import Migration
from seep.protocol.view import MANAGER, STORAGE
from seep.record.facts import Facts
from seep.simulator.faults import Fault, What

if TYPE_CHECKING:
    from seep.simulator.world import World


def strike(world: World, fault: Fault) -> None:
    """Carries out a fault on the present world; does nothing if there is no target."""
    if world.trace:
        world.trace(world.now, f"fault: {fault.what} (delay {fault.delay}, pick {fault.pick})", True)
    for decision in world.control.open_decisions():
        world.tally.pair(fault.what, decision)
    _STRIKES[fault.what](world, random.Random(fault.pick), fault.delay)
    world.tally.count(fault.what)


def _kill(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        world.kill(rng.choice(nodes), delay)


def _kill_concerned(world: World, rng: random.Random, delay: int) -> None:
    """Kills a node on either side of a handover or a split, which must survive that at any moment."""
    changed = {o for o, history in world.manager.topology.history.items() if len(history) > 1}
    changed |= {split.origin.operator for split in world.manager.splits.values()}
    hosts = {seat.node for i, seat in world.manager.placement.items() if i.operator in changed}
    if victims := [node for node in world.live() if node in hosts]:
        world.kill(rng.choice(victims), delay)


def _tripwire(world: World, _: random.Random, delay: int) -> None:
    world.tripwires.append(delay)


def _kill_pair(world: World, rng: random.Random, delay: int) -> None:
    _kill(world, rng, delay)
    _kill(world, rng, delay)


def _kill_vm(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        vm = world.vms[rng.choice(nodes)]
        for node in [node for node in nodes if world.vms[node] == vm]:
            world.kill(node, delay)


def _freeze(world: World, rng: random.Random, delay: int) -> None:
    """Freezes a node. After a short freeze it is late; after a long one it has been given up, and is a zombie."""
    if nodes := [n for n in world.live() if n not in world.mail.frozen]:
        victim = rng.choice(nodes)
        world.mail.frozen.add(victim)
        if delay >= 200:
            world.at(world.now + 60, lambda: world.lose(victim))
        world.at(world.now + delay, lambda: world.mail.frozen.discard(victim))


def _isolate(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        victim = rng.choice(nodes)
        world.cut(MANAGER, victim, delay)
        world.at(world.now + min(delay, 20), lambda: world.lose(victim))


def _cut(world: World, rng: random.Random, delay: int) -> None:
    """Cuts any link, or the next one on which a message with state has arrived in part."""
    if rng.random() < 0.5:
        world.armed_cuts.append(delay)
        return
    ends = [MANAGER, *world.live()]
    if len(ends) > 1:
        a, b = rng.sample(ends, 2)
        world.cut(a, b, delay)


def _slow(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        victim = rng.choice(nodes)
        world.mail.slow.add(victim)
        world.at(world.now + delay * 5, lambda: world.mail.slow.discard(victim))


def _move(world: World, rng: random.Random, _: int) -> None:
    """Moves some slots of an operator to one instance, old or new."""
    operator, parts = _any_change(world, rng)
    world.perform(MANAGER, world.manager.move(operator, parts)[1])


def _prepared_move(world: World, rng: random.Random, _: int) -> None:
    """Announces a move for a later epoch, which no earlier request or fault may change."""
    operator, parts = _any_change(world, rng)
    first = world.manager.soonest(operator) + rng.randint(1, 12)
    world.perform(MANAGER, world.manager.move(operator, parts, first)[1])


def _any_change(world: World, rng: random.Random) -> tuple[str, dict[int, SlotSet]]:
    operator = _any_operator(world, rng)
    bits = world.query.graph.operators[operator].slot_bits
    slots = SlotSet(rng.sample(range(1 << bits), rng.randint(1, 1 << bits)))
    target = rng.choice([*_indexes(world, operator), world.manager.fresh_index(operator)])
    return operator, {target: slots}


# -- requests to the steward -------------------------------------------------------------------------------------------


def _scale(world: World, rng: random.Random, _: int) -> None:
    """Requests more or fewer instances, sometimes an impossible number."""
    operator = _any_operator(world, rng)
    wanted = rng.choice((1, 2, 3, 4, 1 << world.query.graph.operators[operator].slot_bits, 0, 100))
    world.control.put(lambda facts: world.control.steward.scale(facts, operator, wanted))


def _migrate(world: World, rng: random.Random, _: int) -> None:
    """Requests a migration in which any slot may move to any instance, old or new."""
    operator = _any_operator(world, rng)
    before, fresh = _latest(world, operator), world.manager.fresh_index(operator)
    target = Assignment([rng.choice([owner, *before.parts, fresh]) for owner in before.table])
    chosen = {
        "strategy": rng.choice(list(Strategy)),
        "batch": rng.randint(1, 3),
        "gap": rng.choice((None, None, 0.2)),
        "vertical": rng.random() < 0.2,
        "prepare": rng.random() < 0.7,
    }
    epoch = world.manager.ticked + rng.randint(1, 12) if rng.random() < 0.2 else None
    requests = world.control.requests
    _open(world, lambda facts: requests.migrate(facts.at, {operator: target}, chosen, epoch=epoch))


def _hand_over(world: World, rng: random.Random, _: int) -> None:
    operator = _any_operator(world, rng)
    instance = InstanceId(operator, rng.choice(_indexes(world, operator)))
    _open(world, lambda facts: world.control.requests.hand_over(facts.at, str(instance)))


def _stream(world: World, rng: random.Random, _: int) -> None:
    """Requests a stream of moves of single slots, by the clock or by epochs."""
    operator = _any_operator(world, rng)
    slots = 1 << world.query.graph.operators[operator].slot_bits
    column, last = ("epoch", world.manager.ticked) if rng.random() < 0.5 else ("time", world.control.seconds())
    takers = [*_indexes(world, operator), world.manager.fresh_index(operator)]
    moves = {(last + rng.randint(1, 4), rng.randrange(slots)): rng.choice(takers) for _ in range(rng.randint(1, 4))}
    rows = [{column: at, "slot": slot, "instance": taker} for (at, slot), taker in moves.items()]
    _open(world, lambda facts: world.control.requests.follow(facts.at, operator, rows))


def _open(world: World, requested: Callable[[Facts], list[Migration]]) -> None:
    steward = world.control.steward
    world.control.put(lambda facts: steward.migrate(facts, requested(facts)))


def _cancel(world: World, rng: random.Random, _: int) -> None:
    steward = world.control.steward
    if those := [each for each in steward.migrations.under_way() if each.is_told]:
        number = rng.choice(those).id
        world.control.put(lambda facts: steward.cancel(facts, number))


def _balance(world: World, rng: random.Random, _: int) -> None:
    operator = _any_operator(world, rng)
    world.control.put(lambda facts: world.control.steward.balance(facts, operator))


def _drain(world: World, rng: random.Random, _: int) -> None:
    if nodes := world.live():
        _ask_to_drain(world, rng.choice(nodes))


def _leave(world: World, rng: random.Random, delay: int) -> None:
    """Has a node drained; in half of all cases its VM is taken away some time later."""
    if nodes := world.live():
        victim = rng.choice(nodes)
        _ask_to_drain(world, victim)
        if rng.random() < 0.5:
            world.at(world.now + delay * 10, lambda: _take_vm(world, victim))


def _ask_to_drain(world: World, node: str) -> None:
    world.control.put(lambda facts: world.control.steward.drain(facts, node))


# -- VMs ---------------------------------------------------------------------------------------------------------------


def _lose_vm(world: World, rng: random.Random, _: int) -> None:
    if nodes := world.live():
        _take_vm(world, rng.choice(nodes))


def _take_vm(world: World, node: str) -> None:
    """Ends the VM of a node, with all nodes on it, and reports this to the pool."""
    if node in world.live():
        vm = world.vms[node]
        for each in [each for each in world.live() if world.vms[each] == vm]:
            world.kill(each, 5)
        world.control.fleet.lose(vm)


def _no_vms(world: World, _: random.Random, delay: int) -> None:
    world.control.provider.refuses_until = world.now + delay * 5


# -- plans -------------------------------------------------------------------------------------------------------------


def _blind_move(world: World, rng: random.Random, delay: int) -> None:
    """Moves slots while a node cannot hear the manager; it must not use the old topology after the move."""
    if nodes := world.live():
        world.cut(MANAGER, rng.choice(nodes), delay)
    _move(world, rng, delay)


def _move_back(world: World, rng: random.Random, _: int) -> None:
    changed = [o for o, history in world.manager.topology.history.items() if len(history) > 1]
    if changed:
        operator = rng.choice(changed)
        before = world.manager.topology.history[operator][-2].assignment
        effects = world.manager.move(operator, before.parts)[1]
        world.perform(MANAGER, effects)


def _merge(world: World, rng: random.Random, _: int) -> None:
    """Moves all slots of one instance to another."""
    operator = _any_operator(world, rng)
    indexes = _indexes(world, operator)
    if len(indexes) > 1:
        origin, target = rng.sample(indexes, 2)
        slots = _latest(world, operator).slots_of(origin)
        effects = world.manager.move(operator, {target: slots})[1]
        world.perform(MANAGER, effects)


def _split(world: World, rng: random.Random, _: int) -> None:
    _split_up(world, rng, _any_stateful(world, rng))


def _blind_split(world: World, rng: random.Random, delay: int) -> None:
    """Splits an instance that cannot hear the manager; its messages after the split must not count."""
    origin = _any_stateful(world, rng)
    if (node := world.manager.placement[origin].node) in world.live():
        world.cut(MANAGER, node, delay)
    _split_up(world, rng, origin)


def _any_operator(world: World, rng: random.Random) -> str:
    """A random operator, more often one with state."""
    graph = world.query.graph
    return rng.choice(graph.order if rng.random() < 0.5 else graph.of_kind(Kind.STATEFUL))


def _any_stateful(world: World, rng: random.Random) -> InstanceId:
    operator = rng.choice(world.query.graph.of_kind(Kind.STATEFUL))
    return InstanceId(operator, rng.choice(_indexes(world, operator)))


def _split_up(world: World, rng: random.Random, origin: InstanceId) -> None:
    """Gives some of the slots of an instance to one or two new ones."""
    operator = origin.operator
    owned = list(_latest(world, operator).slots_of(origin.index))
    rng.shuffle(owned)
    given, fresh = owned[: rng.randint(1, len(owned))], world.manager.fresh_index(operator)
    parts = {fresh: SlotSet(given[::2]), fresh + 1: SlotSet(given[1::2])}
    effects = world.manager.split(origin, {i: slots for i, slots in parts.items() if slots})[1]
    world.perform(MANAGER, effects)


def _checkpoint(world: World, rng: random.Random, _: int) -> None:
    operator = rng.choice([None, *world.query.graph.of_kind(Kind.STATEFUL)])
    world.perform(MANAGER, world.manager.checkpoint(operator))


def _replicate(world: World, rng: random.Random, _: int) -> None:
    """Requests replicas on random nodes, sometimes on the instance's own node or on a lost one."""
    groups = dict(world.manager.replication.groups)
    for instance in world.manager.placement:
        if world.query.graph.kind(instance.operator) is Kind.STATEFUL and rng.random() < 0.7:
            nodes = [*world.live(), "lost"]
            group = tuple(rng.sample(nodes, min(len(nodes), rng.randint(0, 3))))
            groups[instance] = (STORAGE,) if rng.random() < 0.2 else group
    world.perform(MANAGER, world.manager.replicate(groups))


def _join(world: World, _: random.Random, __: int) -> None:
    world.register()


def _persist(world: World, _: random.Random, __: int) -> None:
    world.perform(MANAGER, world.manager.persist()[1])


def _restart(world: World, _: random.Random, __: int) -> None:
    world.begin_again()


def _finish(world: World, _: random.Random, __: int) -> None:
    world.perform(MANAGER, world.manager.finish())


def _indexes(world: World, operator: str) -> list[int]:
    return list(_latest(world, operator).parts)


def _latest(world: World, operator: str) -> Assignment:
    return world.manager.topology.history[operator][-1].assignment


_STRIKES: dict[What, Callable[[World, random.Random, int], None]] = {
    What.KILL: _kill,
    What.KILL_CONCERNED: _kill_concerned,
    What.TRIPWIRE: _tripwire,
    What.KILL_PAIR: _kill_pair,
    What.KILL_VM: _kill_vm,
    What.FREEZE: _freeze,
    What.ISOLATE: _isolate,
    What.CUT: _cut,
    What.SLOW: _slow,
    What.MOVE: _move,
    What.BLIND_MOVE: _blind_move,
    What.MOVE_BACK: _move_back,
    What.PREPARED_MOVE: _prepared_move,
    What.MERGE: _merge,
    What.SPLIT: _split,
    What.BLIND_SPLIT: _blind_split,
    What.CHECKPOINT: _checkpoint,
    What.REPLICATE: _replicate,
    What.JOIN: _join,
    What.PERSIST: _persist,
    What.RESTART: _restart,
    What.FINISH: _finish,
    What.SCALE: _scale,
    What.MIGRATE: _migrate,
    What.HAND_OVER: _hand_over,
    What.STREAM: _stream,
    What.CANCEL: _cancel,
    What.BALANCE: _balance,
    What.DRAIN: _drain,
    What.LEAVE: _leave,
    What.LOSE_VM: _lose_vm,
    What.NO_VMS: _no_vms,
}
