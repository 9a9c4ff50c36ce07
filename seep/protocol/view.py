"""The view: the manager's decisions so far, as one totally ordered sequence of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from primitives.graph import InstanceId
from primitives.topology import Topology
from seep.protocol.cuts import Cut

MANAGER = "manager"
#: The name of the storage among the holders of a backup; it is not a node and is never lost.
STORAGE = "storage"


class Incarnation(NamedTuple):
    """One incarnation of an instance, written `counter[2]#1`. A later one fences all earlier ones."""

    instance: InstanceId
    number: int

    def __str__(self) -> str:
        return f"{self.instance}#{self.number}"


class Seat(NamedTuple):
    """The current node and incarnation of an instance."""

    node: str
    incarnation: int


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The owners of slots at each epoch (topology), the node of each instance now (placement), and the live nodes.

    Views are numbered; of two views, the one with the higher version is valid. The name of a node is never used
    again, so a node that is missing from `nodes` is lost, and its later messages are ignored.
    """

    version: int
    topology: Topology
    placement: Mapping[InstanceId, Seat]
    nodes: frozenset[str]
    vms: Mapping[str, str] = field(default_factory=dict)  #: the VM of each node, where it is known
    cut: Cut | None = None  #: the cut that was announced last
    leaving: frozenset[str] = frozenset()  #: live nodes that will leave: no new backup is kept there
    #: instance -> the chain of nodes that is to keep its backups; an instance that is not named chooses by itself
    groups: Mapping[InstanceId, tuple[str, ...]] = field(default_factory=dict)

    def incarnation(self, instance: InstanceId) -> Incarnation:
        return Incarnation(instance, self.placement[instance].incarnation)

    def is_current(self, incarnation: Incarnation) -> bool:
        seat = self.placement.get(incarnation.instance)
        return seat is not None and seat.incarnation == incarnation.number

    def is_fenced(self, incarnation: Incarnation) -> bool:
        """Returns whether a later incarnation of the instance is known."""
        seat = self.placement.get(incarnation.instance)
        return seat is not None and seat.incarnation > incarnation.number
