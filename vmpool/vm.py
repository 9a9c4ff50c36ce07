"""A VM in the pool: its state between order and end, and its nodes."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from enum import StrEnum

from vmpool.backoff import Backoff
from vmpool.provider import Machine


class VmState(StrEnum):
    """The state of a VM."""

    ORDERED = "ordered"  #: the provider is starting it
    BOOTING = "booting"  #: it is up, some of its nodes are still to join
    WARM = "warm"  #: all its nodes have joined, none is used
    USED = "used"  #: at least one of its nodes is used
    STOPPING = "stopping"  #: it gets no new work, and is stopped when it has none


@dataclass(slots=True)
class Departure:
    """The end of a VM: its nodes are not offered any more."""

    since: float
    why: str
    may_stay: bool = False  #: it is only surplus, and stays if it is used after all
    is_loss: bool = False
    under_way: bool = False  #: the provider has been told to stop it


@dataclass(slots=True, eq=False)
class VM:
    """A VM from its order until it is stopped."""

    name: str
    size: int  #: number of nodes that it should have; 0 if the pool found it and did not start it
    ordered: float
    stops: Backoff
    machine: Machine | None = None
    nodes: dict[str, str] = field(default_factory=dict)  #: live nodes -> their orders
    orders: dict[str, bool] = field(default_factory=dict)  #: orders without a live node -> whether they have had one
    asked: int = 0  #: number of requested nodes whose orders are not known yet
    is_ready: bool = False  #: whether all its nodes have been there at once
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
        """Returns the number of nodes that are neither there nor expected."""
        return max(0, self.size - len(self.nodes) - len(self.orders) - self.asked)

    def uses(self, used: Set[str]) -> bool:
        return not used.isdisjoint(self.nodes)

    def made(self, order: str) -> bool:
        """Whether an order was placed for this VM, and has not ended."""
        return order in self.orders or order in self.nodes.values()

    def state(self, used: Set[str]) -> VmState:
        if self.departure:
            return VmState.STOPPING
        if self.machine is None and not self.is_found:
            return VmState.ORDERED
        if self.uses(used):
            return VmState.USED
        return VmState.WARM if len(self.nodes) >= self.size else VmState.BOOTING
