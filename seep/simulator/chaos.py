"""Faults take effect: who is hit, what is cut, which plan is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from seep.protocol.view import MANAGER
from seep.simulator.faults import Fault, What

if TYPE_CHECKING:
    from seep.simulator.world import World


def strike(world: World, fault: Fault) -> None:
    """Carries a fault out on what is there at this moment; one that finds no victim does nothing."""
    if world.trace:
        world.trace(world.now, f"fault: {fault.what} (delay {fault.delay}, pick {fault.pick})", True)
    _STRIKES[fault.what](world, random.Random(fault.pick), fault.delay)
    world.tally.count(fault.what)


def _kill(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        world.end(rng.choice(nodes), delay)


def _kill_concerned(world: World, rng: random.Random, delay: int) -> None:
    """A handover or a split must survive the end of either side, at any moment."""
    changed = {o for o, history in world.manager.topology.history.items() if len(history) > 1}
    changed |= {split.origin.operator for split in world.manager.splits.values()}
    hosts = {seat.node for i, seat in world.manager.placement.items() if i.operator in changed}
    if victims := [node for node in world.live() if node in hosts]:
        world.end(rng.choice(victims), delay)


def _tripwire(world: World, _: random.Random, delay: int) -> None:
    world.tripwires.append(delay)


def _kill_pair(world: World, rng: random.Random, delay: int) -> None:
    _kill(world, rng, delay)
    _kill(world, rng, delay)


def _kill_vm(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        vm = world.vms[rng.choice(nodes)]
        for node in [node for node in nodes if world.vms[node] == vm]:
            world.end(node, delay)


def _freeze(world: World, rng: random.Random, delay: int) -> None:
    """Frozen for short, a node is only late; frozen for long, it is given up and comes back as a zombie."""
    if nodes := [n for n in world.live() if n not in world.frozen]:
        victim = rng.choice(nodes)
        world.frozen.add(victim)
        if delay >= 200:
            world.at(world.now + 60, lambda: world.give_up(victim))
        world.at(world.now + delay, lambda: world.frozen.discard(victim))


def _isolate(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        victim = rng.choice(nodes)
        world.cut(MANAGER, victim, delay)
        world.at(world.now + min(delay, 20), lambda: world.give_up(victim))


def _cut(world: World, rng: random.Random, delay: int) -> None:
    ends = [MANAGER, *world.live()]
    if len(ends) > 1:
        a, b = rng.sample(ends, 2)
        world.cut(a, b, delay)


def _slow(world: World, rng: random.Random, delay: int) -> None:
    if nodes := world.live():
        victim = rng.choice(nodes)
        world.slow.add(victim)
        world.at(world.now + delay * 5, lambda: world.slow.discard(victim))


def _move(world: World, rng: random.Random, _: int) -> None:
    """Some slots of an operator go to one instance, old or new."""
    operator = _any_operator(world, rng)
    bits = world.query.graph.operators[operator].slot_bits
    slots = SlotSet(rng.sample(range(1 << bits), rng.randint(1, 1 << bits)))
    target = rng.choice([*_indexes(world, operator), world.manager.fresh_index(operator)])
    effects = world.manager.move(operator, {target: slots})[1]
    world.perform(MANAGER, effects)


def _blind_move(world: World, rng: random.Random, delay: int) -> None:
    """The one that cannot hear the manager must not go by the old topology when the plan takes effect."""
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


def _drain(world: World, rng: random.Random, _: int) -> None:
    """Scale in: one instance loses everything to another."""
    operator = _any_operator(world, rng)
    indexes = _indexes(world, operator)
    if len(indexes) > 1:
        origin, target = rng.sample(indexes, 2)
        slots = world.manager.topology.history[operator][-1].assignment.slots_of(origin)
        effects = world.manager.move(operator, {target: slots})[1]
        world.perform(MANAGER, effects)


def _leave(world: World, rng: random.Random, delay: int) -> None:
    """A spot VM is called back: all that lives there goes to new instances elsewhere; some time later it is gone."""
    if not (nodes := world.live()):
        return
    victim = rng.choice(nodes)
    world.perform(MANAGER, world.manager.node_leaving(victim))
    for instance in [i for i, seat in world.manager.placement.items() if seat.node == victim]:
        slots = world.manager.topology.history[instance.operator][-1].assignment.slots_of(instance.index)
        fresh = world.manager.fresh_index(instance.operator)
        world.perform(MANAGER, world.manager.move(instance.operator, {fresh: slots})[1])
    if rng.random() < 0.5:
        world.at(world.now + delay * 10, lambda: world.end(victim, 5) if victim in world.live() else None)


def _split(world: World, rng: random.Random, _: int) -> None:
    _split_up(world, rng, _any_stateful(world, rng))


def _blind_split(world: World, rng: random.Random, delay: int) -> None:
    """What the origin sends after the split is effective must not count."""
    origin = _any_stateful(world, rng)
    if (node := world.manager.placement[origin].node) in world.live():
        world.cut(MANAGER, node, delay)
    _split_up(world, rng, origin)


def _any_operator(world: World, rng: random.Random) -> str:
    """Any, but more often one with state."""
    graph = world.query.graph
    return rng.choice(graph.order if rng.random() < 0.5 else graph.of_kind(Kind.STATEFUL))


def _any_stateful(world: World, rng: random.Random) -> InstanceId:
    operator = rng.choice(world.query.graph.of_kind(Kind.STATEFUL))
    return InstanceId(operator, rng.choice(_indexes(world, operator)))


def _split_up(world: World, rng: random.Random, origin: InstanceId) -> None:
    """Gives some of the slots of an instance to one or two new ones."""
    operator = origin.operator
    owned = list(world.manager.topology.history[operator][-1].assignment.slots_of(origin.index))
    rng.shuffle(owned)
    given, fresh = owned[: rng.randint(1, len(owned))], world.manager.fresh_index(operator)
    parts = {fresh: SlotSet(given[::2]), fresh + 1: SlotSet(given[1::2])}
    effects = world.manager.split(origin, {i: slots for i, slots in parts.items() if slots})[1]
    world.perform(MANAGER, effects)


def _checkpoint(world: World, rng: random.Random, _: int) -> None:
    operator = rng.choice([None, *world.query.graph.of_kind(Kind.STATEFUL)])
    world.perform(MANAGER, world.manager.checkpoint(operator))


def _join(world: World, _: random.Random, __: int) -> None:
    world.join()


def _persist(world: World, _: random.Random, __: int) -> None:
    world.perform(MANAGER, world.manager.persist()[1])


def _restart(world: World, _: random.Random, __: int) -> None:
    world.restart()


def _finish(world: World, _: random.Random, __: int) -> None:
    world.perform(MANAGER, world.manager.finish())


def _indexes(world: World, operator: str) -> list[int]:
    return list(world.manager.topology.history[operator][-1].assignment.parts)


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
    What.DRAIN: _drain,
    What.LEAVE: _leave,
    What.SPLIT: _split,
    What.BLIND_SPLIT: _blind_split,
    What.CHECKPOINT: _checkpoint,
    What.JOIN: _join,
    What.PERSIST: _persist,
    What.RESTART: _restart,
    What.FINISH: _finish,
}
