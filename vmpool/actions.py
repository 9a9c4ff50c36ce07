"""Actions: the requests of the pool to its shell, and its events."""

from __future__ import annotations

from dataclasses import dataclass

from vmpool.events import PoolEvent
from vmpool.provider import Machine


@dataclass(frozen=True, slots=True)
class Start:
    """Requests the provider to start a VM."""

    name: str


@dataclass(frozen=True, slots=True)
class OrderNodes:
    """Requests Spark to run more nodes, for this VM."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """Cancels the order of a node that is not needed any more, whether it has joined or not."""

    order: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Requests the provider to stop a VM."""

    machine: Machine


Action = Start | OrderNodes | CancelOrder | Stop | PoolEvent
