"""Actions: what the pool asks its shell to do, its events included."""

from __future__ import annotations

from dataclasses import dataclass

from vmpool.events import PoolEvent
from vmpool.provider import Machine


@dataclass(frozen=True, slots=True)
class Start:
    """The provider is to start a VM."""

    name: str


@dataclass(frozen=True, slots=True)
class OrderNodes:
    """Spark is to run so many nodes more, for this VM."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """A node is not wanted any more, whether it has come or not."""

    order: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The provider is to end a VM."""

    machine: Machine


Action = Start | OrderNodes | CancelOrder | Stop | PoolEvent
