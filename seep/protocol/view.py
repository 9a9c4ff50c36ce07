"""The view: what the manager has decided so far, as one totally ordered sequence of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from primitives.graph import InstanceId
from primitives.topology import Topology
from seep.protocol.cuts import Cut

MANAGER = "manager"
#: Stands among the holders of a backup for the storage outside of the query; it is no node and never lost.
STORAGE = "storage"


class Incarnation(NamedTuple):
    """One life of an instance, written `counter[2]#1`. A later one fences all earlier ones."""

    instance: InstanceId
    number: int

    def __str__(self) -> str:
        return f"{self.instance}#{self.number}"


class Seat(NamedTuple):
    """Where an instance lives now."""

    node: str
    incarnation: int


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Who owns what at which epoch (topology), who lives where now (placement), and which nodes are alive.

    Views are numbered; of two views the one with the higher version is the truth. A node is never named twice, so a
    node that is missing from `nodes` is gone for good, whatever it still says.
    """

    version: int
    topology: Topology
    placement: Mapping[InstanceId, Seat]
    nodes: frozenset[str]
    vms: Mapping[str, str] = field(default_factory=dict)  #: the VM of a node, where that is known
    cut: Cut | None = None  #: the last one that was announced
    leaving: frozenset[str] = frozenset()  #: live nodes that will go: nothing new is to be kept there
    #: who is to keep the backups of an instance, as a chain; of those that are not named, each chooses by itself
    groups: Mapping[InstanceId, tuple[str, ...]] = field(default_factory=dict)

    def incarnation(self, instance: InstanceId) -> Incarnation:
        return Incarnation(instance, self.placement[instance].incarnation)

    def is_current(self, incarnation: Incarnation) -> bool:
        seat = self.placement.get(incarnation.instance)
        return seat is not None and seat.incarnation == incarnation.number

    def is_fenced(self, incarnation: Incarnation) -> bool:
        """Whether a later life of the instance is known."""
        seat = self.placement.get(incarnation.instance)
        return seat is not None and seat.incarnation > incarnation.number
