"""A VM as the pool sees it: its state between order and end, and its nodes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from enum import StrEnum

from vmpool.backoff import Backoff
from vmpool.provider import Machine


class VmState(StrEnum):
    """Where a VM stands."""

    ORDERED = "ordered"  #: the provider works on it
    BOOTING = "booting"  #: it is up, some of its nodes are still to join
    WARM = "warm"  #: all its nodes have joined, none is used
    USED = "used"  #: a node of it is
    STOPPING = "stopping"  #: it gets no work any more, and goes when it has none


@dataclass(slots=True)
class Departure:
    """A VM is to go: nobody is offered its nodes from now on."""

    since: float
    why: str
    may_stay: bool = False  #: it goes only because it is not needed, and stays if it is used after all
    is_loss: bool = False
    under_way: bool = False  #: the provider has been told to stop it


@dataclass(slots=True, eq=False)
class VM:
    """A VM from its order until it is stopped."""

    name: str
    size: int  #: nodes that it should have; 0 for one that the pool found and did not start
    ordered: float
    stops: Backoff
    machine: Machine | None = None
    nodes: dict[str, str] = field(default_factory=dict)  #: all that live -> their orders
    orders: dict[str, bool] = field(default_factory=dict)  #: all of which no node lives -> whether one has
    asked: int = 0  #: nodes that Spark is being asked for, whose orders are not known yet
    is_ready: bool = False  #: all its nodes have been there at once
    is_used: bool = False  #: at the last step
    surplus_since: float | None = None
    departure: Departure | None = None

    @property
    def is_found(self) -> bool:
        return self.size == 0

    @property
    def host(self) -> str | None:
        return self.machine.host if self.machine else None

    @property
    def missing(self) -> int:
        """Nodes that are neither there nor expected."""
        return max(0, self.size - len(self.nodes) - len(self.orders) - self.asked)

    def uses(self, used: Set[str]) -> bool:
        return not used.isdisjoint(self.nodes)

    def made(self, order: str) -> bool:
        """Whether an order was placed for this VM, and is not over."""
        return order in self.orders or order in self.nodes.values()

    def state(self, used: Set[str]) -> VmState:
        if self.departure:
            return VmState.STOPPING
        if self.machine is None and not self.is_found:
            return VmState.ORDERED
        if self.uses(used):
            return VmState.USED
        return VmState.WARM if len(self.nodes) >= self.size else VmState.BOOTING
