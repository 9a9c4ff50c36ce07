"""Faults take effect: who is hit, what is cut, which plan is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.migration.settings import MigrationSettings, Strategy
from policies.migration.steps import Steps
from policies.migration.strategies import cut
from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.plans import Refusal, Refused
from seep.protocol.view import MANAGER, STORAGE
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
        world.kill(rng.choice(nodes), delay)


def _kill_concerned(world: World, rng: random.Random, delay: int) -> None:
    """A handover or a split must survive the end of either side, at any moment."""
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
    """Frozen for short, a node is only late; frozen for long, it is given up and comes back as a zombie."""
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
    """Some slots of an operator go to one instance, old or new."""
    operator, parts = _any_change(world, rng)
    world.perform(MANAGER, world.manager.move(operator, parts)[1])


def _prepared_move(world: World, rng: random.Random, _: int) -> None:
    """All that is asked for meanwhile, and all that fails, must leave it as it is."""
    operator, parts = _any_change(world, rng)
    first = world.manager.soonest(operator) + rng.randint(1, 12)
    world.perform(MANAGER, world.manager.move(operator, parts, first)[1])


def _any_change(world: World, rng: random.Random) -> tuple[str, dict[int, SlotSet]]:
    operator = _any_operator(world, rng)
    bits = world.query.graph.operators[operator].slot_bits
    slots = SlotSet(rng.sample(range(1 << bits), rng.randint(1, 1 << bits)))
    target = rng.choice([*_indexes(world, operator), world.manager.fresh_index(operator)])
    return operator, {target: slots}


def _migrate(world: World, rng: random.Random, delay: int) -> None:
    """Any slot may go to any instance, old or new."""
    operator = _any_operator(world, rng)
    before, fresh = _latest(world, operator), world.manager.fresh_index(operator)
    owners = [rng.choice([owner, *before.parts, fresh]) for owner in before.table]
    settings = MigrationSettings(strategy=rng.choice(list(Strategy)), batch=rng.randint(1, 3))
    _Walk(world, operator, cut(before, Assignment(owners).parts, settings), pause=min(delay, 40)).go_on()


@dataclass(slots=True)
class _Walk:
    """The steps of a migration, each announced when the one before has taken effect."""

    world: World
    operator: str
    steps: Steps
    pause: int  #: until it looks again
    at: int = 0
    first: int = 0  #: the epoch of the last step
    life: int = 0

    def __post_init__(self) -> None:
        self.life = self.world.lives

    def go_on(self) -> None:
        if self.world.lives != self.life or self.at == len(self.steps):
            return
        if self._committed() < self.first or self._step():
            self.world.at(self.world.now + self.pause, self.go_on)

    def _step(self) -> bool:
        """Whether it is to go on: what has changed hands otherwise meanwhile may stand in its way for good."""
        manager = self.world.manager
        answer, effects = manager.move(self.operator, self.steps[self.at])
        self.world.perform(MANAGER, effects)
        if isinstance(answer, Refused):
            self.at += answer.why is Refusal.NOTHING
            return answer.why in (Refusal.BUSY, Refusal.NO_NODE, Refusal.NOTHING)
        self.at, self.first = self.at + 1, manager.moves[answer.plan].first
        self.world.tally.count("step" if self.at < len(self.steps) else "migrated")
        return True

    def _committed(self) -> int:
        placed = self.world.manager.placement
        sinks = [instance for instance in placed if self.world.query.graph.kind(instance.operator) is Kind.SINK]
        return min(self.world.manager.safe.of(sink) for sink in sinks)


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
        slots = _latest(world, operator).slots_of(origin)
        effects = world.manager.move(operator, {target: slots})[1]
        world.perform(MANAGER, effects)


def _leave(world: World, rng: random.Random, delay: int) -> None:
    """A spot VM is called back: all that lives there goes to new instances elsewhere; some time later it is gone."""
    if not (nodes := world.live()):
        return
    victim = rng.choice(nodes)
    world.perform(MANAGER, world.manager.node_leaving(victim))
    for instance in [i for i, seat in world.manager.placement.items() if seat.node == victim]:
        slots = _latest(world, instance.operator).slots_of(instance.index)
        fresh = world.manager.fresh_index(instance.operator)
        world.perform(MANAGER, world.manager.move(instance.operator, {fresh: slots})[1])
    if rng.random() < 0.5:
        world.at(world.now + delay * 10, lambda: world.kill(victim, 5) if victim in world.live() else None)


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
    """Any nodes, among them those that cannot: the one that hosts the instance, and one that was lost."""
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
    What.MIGRATE: _migrate,
    What.DRAIN: _drain,
    What.LEAVE: _leave,
    What.SPLIT: _split,
    What.BLIND_SPLIT: _blind_split,
    What.CHECKPOINT: _checkpoint,
    What.REPLICATE: _replicate,
    What.JOIN: _join,
    What.PERSIST: _persist,
    What.RESTART: _restart,
    What.FINISH: _finish,
}
