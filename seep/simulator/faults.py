"""Faults and requests of a schedule, as plain data, so that a failing schedule can be minimised and printed."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import NamedTuple


class What(StrEnum):
    KILL = "kill"  #: a process ends; its node is given up a little later
    KILL_PAIR = "kill pair"  #: two at once
    KILL_VM = "kill vm"  #: all nodes of a VM at once
    KILL_CONCERNED = "kill concerned"  #: a node that hosts an operator whose slots have moved, or are about to
    TRIPWIRE = "tripwire"  #: the next node whose instance has backed up after a change of its slots is killed then
    FREEZE = "freeze"  #: a node does nothing for a while; it may be given up meanwhile and come back as a zombie
    ISOLATE = "isolate"  #: a node is cut off from the manager only, given up, and continues to send to its peers
    CUT = "cut"  #: a link between two processes fails, and is restored later
    SLOW = "slow"  #: a node does most things late from now on
    MOVE = "move"  #: plan kind 1: some slots of an operator to another or a new instance
    BLIND_MOVE = "blind move"  #: a move is planned while a node cannot hear the manager
    MOVE_BACK = "move back"  #: plan kind 1: the latest change of an operator is undone
    PREPARED_MOVE = "prepared move"  #: plan kind 1, announced some epochs before its effect
    MERGE = "merge"  #: plan kind 1: moves all slots of an instance elsewhere
    SPLIT = "split"  #: plan kind 3
    BLIND_SPLIT = "blind split"  #: a split while the origin cannot hear the manager, and so continues for a while
    CHECKPOINT = "checkpoint"  #: instances take checkpoints on demand
    REPLICATE = "replicate"  #: instances with state get groups of replicas, or the storage, or no backup any more
    JOIN = "join"  #: a new node joins
    PERSIST = "persist"  #: a cut is announced
    RESTART = "restart"  #: all processes end, the manager too, and a new run begins from the last complete cut
    FINISH = "finish"  #: the input is ended before all of it is read
    SCALE = "scale"  #: the steward is asked for some number of instances
    MIGRATE = "migrate"  #: the steward is asked for a random change, cut by a random strategy
    HAND_OVER = "hand over"  #: the steward is asked to replace an instance by a new one
    STREAM = "stream"  #: the steward is asked for moves of single slots, each at its moment
    CANCEL = "cancel"  #: the steward is asked to continue no migration, or to end one
    BALANCE = "balance"  #: the steward is asked to balance an operator
    DRAIN = "drain"  #: the steward is asked to empty a node
    LEAVE = "leave"  #: the VM of a node is recalled: the node is drained, and the VM ends some time later
    LOSE_VM = "lose vm"  #: all nodes of a VM are lost, as the provider reports
    NO_VMS = "no vms"  #: the provider has no VMs for a while


class Fault(NamedTuple):
    """A fault at a step; `pick` chooses its target among those that exist then, `delay` is its duration."""

    step: int
    what: What
    pick: int
    delay: int


_WEIGHTS = {
    What.KILL: 5,
    What.KILL_PAIR: 1,
    What.KILL_VM: 1,
    What.KILL_CONCERNED: 3,
    What.TRIPWIRE: 3,
    What.FREEZE: 3,
    What.ISOLATE: 3,
    What.CUT: 5,
    What.SLOW: 2,
    What.MOVE: 7,
    What.BLIND_MOVE: 3,
    What.MOVE_BACK: 3,
    What.PREPARED_MOVE: 3,
    What.MERGE: 2,
    What.SPLIT: 4,
    What.BLIND_SPLIT: 3,
    What.CHECKPOINT: 4,
    What.REPLICATE: 4,
    What.JOIN: 1,
    What.PERSIST: 4,
    What.RESTART: 1,
    What.FINISH: 1,
    What.SCALE: 6,
    What.MIGRATE: 6,
    What.HAND_OVER: 3,
    What.STREAM: 3,
    What.CANCEL: 2,
    What.BALANCE: 3,
    What.DRAIN: 3,
    What.LEAVE: 3,
    What.LOSE_VM: 2,
    What.NO_VMS: 2,
}


#: Plans after which a failure of their instances is often scheduled.
_PLANS = (
    What.MOVE,
    What.MOVE_BACK,
    What.BLIND_MOVE,
    What.PREPARED_MOVE,
    What.MERGE,
    What.SCALE,
    What.MIGRATE,
    What.HAND_OVER,
    What.STREAM,
    What.BALANCE,
    What.DRAIN,
    What.LEAVE,
    What.SPLIT,
    What.BLIND_SPLIT,
)


def _sequel(rng: random.Random, step: int) -> Fault:
    """Returns a failure that hits the plan of that step before or after its effect."""
    what = rng.choice((What.KILL_CONCERNED, What.TRIPWIRE))
    return Fault(step + rng.choice((20, 60, 150, 300)), what, rng.randrange(1 << 30), rng.choice((5, 40)))


def random_faults(rng: random.Random, most: int, steps: int, only: tuple[What, ...] = ()) -> list[Fault]:
    """Returns a random schedule of faults over the first `steps` steps, in order; sometimes several close together.

    Each schedule leaves some kinds out and prefers others, so that rare combinations occur.
    """
    kinds = list(only or _WEIGHTS)
    weights = [_WEIGHTS[kind] * rng.choice((0, 1, 1, 5)) for kind in kinds]
    if not any(weights):
        weights = [_WEIGHTS[kind] for kind in kinds]
    faults: list[Fault] = []
    for _ in range(rng.randint(1, most)):
        near = faults and rng.random() < 0.3
        step = faults[-1].step + rng.randint(0, 12) if near else rng.randrange(steps)
        what = rng.choices(kinds, weights)[0]
        faults.append(Fault(step, what, rng.randrange(1 << 30), rng.choice((5, 40, 200, 600))))
        if what in _PLANS and rng.random() < 0.3:
            faults.append(_sequel(rng, step))
    return sorted(fault for fault in faults if fault.what in kinds)
