"""Policies and balancers of schedules: the built-in ones, and some that misbehave on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policies.balance.loads import Balancer, Rebalance, SlotLoads
from policies.balance.registry import make_balancer
from policies.balance.settings import BalanceSettings
from policies.observation import History
from policies.scaling.decision import Decision, Policy
from policies.scaling.registry import make_policy
from policies.scaling.settings import ScalingSettings
from primitives.slots import SlotSet


class WrongOnPurpose(Exception):
    """The error that a policy or balancer of a schedule raises on purpose."""


class Manner(StrEnum):
    """The behaviour of a policy or balancer in a schedule."""

    SHIPPED = "shipped"
    FLIPS = "flips"  #: decides one thing, then its opposite
    RAISES = "raises"
    IMPOSSIBLE = "impossible"  #: decides something impossible
    SLOW = "slow"  #: a built-in one whose answers come late
    HANGS = "hangs"  #: answers only once, and never again


#: Built-in policies, and how often schedules have each.
_POLICIES = ("cpu-threshold", "cpu-threshold", "true-rate", "latency", "schedule", "manual")
BALANCERS = ("hotspot", "autoflow")


def random_manner(rng: random.Random) -> Manner:
    """Returns a random manner; most are sound."""
    return Manner.SHIPPED if rng.random() < 0.6 else rng.choice(list(Manner)[1:])


def settings_of_policy(rng: random.Random, operators: Sequence[str]) -> Mapping[str, Any]:
    """Returns the scaling settings for a built-in policy."""
    name = rng.choice(_POLICIES)
    settings: dict[str, Any] = {}
    if name == "latency":
        settings = {"target": 1.0}
    if name == "schedule":
        times = sorted(rng.sample(range(1, 20), 2))
        settings = {"at": [{"time": at, "operators": {rng.choice(operators): rng.randint(1, 4)}} for at in times]}
    return {"policy": name, "settings": settings}


def policy_of(manner: Manner, scaling: ScalingSettings) -> Policy:
    """Makes the policy of a schedule."""
    strange: dict[Manner, Callable[[], Policy]] = {
        Manner.FLIPS: FlippingPolicy,
        Manner.RAISES: RaisingPolicy,
        Manner.IMPOSSIBLE: ImpossiblePolicy,
    }
    return strange[manner]() if manner in strange else make_policy(scaling)


def balancer_of(manner: Manner, balance: BalanceSettings) -> Balancer:
    """Makes the balancer of a schedule."""
    strange: dict[Manner, Callable[[], Balancer]] = {
        Manner.FLIPS: FlippingBalancer,
        Manner.RAISES: RaisingBalancer,
        Manner.IMPOSSIBLE: ImpossibleBalancer,
    }
    return strange[manner]() if manner in strange else make_balancer(balance)


@dataclass(frozen=True, slots=True)
class FlippingPolicy:
    """Wants many instances of every operator, then one, then many."""

    def decide(self, history: History) -> list[Decision]:
        wanted = 1 + 3 * (len(history.observations) % 2)
        return [Decision(operator, wanted, "it flips") for operator in history.graph.order]


@dataclass(frozen=True, slots=True)
class RaisingPolicy:
    """Raises most of the time, and sometimes decides something."""

    def decide(self, history: History) -> list[Decision]:
        count = len(history.observations)
        if count % 3:
            raise WrongOnPurpose(f"for the {count}th time")
        operator = history.graph.order[count % len(history.graph.order)]
        return [Decision(operator, history.parallelism(operator) + 1, "it is in a good mood")]


@dataclass(frozen=True, slots=True)
class ImpossiblePolicy:
    """Decides something impossible, each time in another way."""

    def decide(self, history: History) -> list[Decision]:
        operator = history.graph.order[len(history.observations) % len(history.graph.order)]
        wishes: list[Any] = [
            [Decision("nobody", 2, "why not")],
            [Decision(operator, 0, "why not")],
            [Decision(operator, -3, "why not")],
            [Decision(operator, 1_000_000, "why not")],
            [Decision(operator, 2.5, "why not")],  # type: ignore[arg-type]
            [Decision(operator, None, "why not")],  # type: ignore[arg-type]
            None,
            [None],
            7,
            "many",
        ]
        decided: list[Decision] = wishes[len(history.observations) % len(wishes)]
        return decided


@dataclass(frozen=True, slots=True)
class FlippingBalancer:
    """Moves some slots to another instance each time, whatever the load."""

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        parts = windows[-1].assignment.parts
        giver = max(parts, key=lambda index: len(parts[index]))
        taker = min(parts, key=lambda index: len(parts[index]))
        free = [slot for slot in parts[giver] if slot not in windows[-1].moving]
        if giver == taker or len(free) < 2:
            return Rebalance()
        return Rebalance({taker: SlotSet([free[0]])}, "it flips")


@dataclass(frozen=True, slots=True)
class RaisingBalancer:
    """Always raises."""

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        raise WrongOnPurpose(f"of {len(windows)} windows")


@dataclass(frozen=True, slots=True)
class ImpossibleBalancer:
    """Moves slots that do not exist, to instances that do not exist, or all of an instance's slots."""

    def decide(self, windows: Sequence[SlotLoads]) -> Rebalance:
        assignment = windows[-1].assignment
        everything = SlotSet.full(assignment.slot_bits)
        decided: list[Any] = [
            Rebalance({max(assignment.parts) + 7: SlotSet([0])}, "why not"),
            Rebalance({min(assignment.parts): SlotSet([1 << 20])}, "why not"),
            Rebalance({min(assignment.parts): everything}, "why not"),
            None,
            {"moves": 3},
        ]
        chosen: Rebalance = decided[len(windows) % len(decided)]
        return chosen
