"""The roster: which nodes are live, and which incarnation of which instance lives where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set

from primitives.graph import InstanceId
from seep.protocol.view import Incarnation, Seat


class Roster:
    """The nodes and instances that the manager knows. No incarnation or instance gets a number twice."""

    def __init__(self, first_incarnation: int) -> None:
        self._first_incarnation = first_incarnation
        #: live nodes, and the last view that each has acknowledged
        self.nodes: dict[str, int] = {}
        #: live nodes on which an instance ever began
        self.hosted: set[str] = set()
        #: of each live node, the version of the first view that it gets
        self._first_views: dict[str, int] = {}
        #: where live nodes run, as far as that is known
        self.vms: dict[str, str] = {}
        #: the version of the view that tells the last loss of a node that had hosted anything
        self.loss_told = 0
        #: live nodes that will go: nothing is put there any more
        self.leaving: set[str] = set()
        #: where each instance lives, or lived last if its node is lost
        self.placement: dict[InstanceId, Seat] = {}
        #: the number of each instance's next incarnation, until the instance is no more
        self._next: dict[InstanceId, int] = {}
        #: operator -> the lowest index above all that were ever used
        self._fresh: dict[str, int] = {}

    # -- nodes --------------------------------------------------------------------------------------------------------

    def join(self, node: str, vm: str | None, first_view: int) -> None:
        """Adds a node; the first view that it gets has the version `first_view`."""
        self.nodes[node] = 0
        self._first_views[node] = first_view
        if vm is not None:
            self.vms[node] = vm

    def lose(self, node: str, next_view: int) -> bool:
        """The node is gone, which the view of version `next_view` tells; says whether it was live until now."""
        if self.nodes.pop(node, None) is None:
            return False
        self.vms.pop(node, None)
        self.leaving.discard(node)
        del self._first_views[node]
        if node in self.hosted:
            self.hosted.discard(node)
            self.loss_told = next_view
        return True

    def acknowledged(self, node: str, version: int) -> None:
        self.nodes[node] = version

    def is_known_to_all(self, version: int) -> bool:
        """Whether every live node has acknowledged a view, or begins with it or a later one."""
        return all(seen >= version or self._first_views[node] >= version for node, seen in self.nodes.items())

    def least_loaded(
        self, reserved: Iterable[str], avoid: Collection[str], near: Collection[str] = (), first: bool = False
    ) -> str | None:
        """A node with the fewest instances and reservations; one to avoid or to be left only in need.

        Of equals, one that is near; with `first`, one that is near goes before one with fewer.
        """
        load = Counter(seat.node for seat in self.placement.values())
        load.update(reserved)

        def rank(node: str) -> tuple[object, ...]:
            far = node not in near
            return node in self.leaving, node in avoid, first and far, load[node], far, node

        return min(self.nodes, key=rank, default=None)

    # -- instances ----------------------------------------------------------------------------------------------------

    def seat(self, identity: Incarnation, node: str) -> None:
        """Places an incarnation on a node; from now on it is the current one."""
        self.placement[identity.instance] = Seat(node, identity.number)
        self.hosted.add(node)

    def remove(self, instance: InstanceId) -> None:
        """Removes an instance; its index stays taken."""
        del self.placement[instance]
        self.forget(instance)

    def forget(self, instance: InstanceId) -> None:
        """Forgets the number of an instance that will not live again."""
        self._next.pop(instance, None)

    def next_incarnation(self, instance: InstanceId) -> Incarnation:
        number = self.upcoming(instance)
        self._next[instance] = number + 1
        self._fresh[instance.operator] = max(self.fresh_index(instance.operator), instance.index + 1)
        return Incarnation(instance, number)

    def was_born(self, instance: InstanceId) -> bool:
        """Whether the index of an instance is taken, or lower than one that is."""
        return instance.index < self.fresh_index(instance.operator)

    def fresh_index(self, operator: str) -> int:
        """From this number on, no instance of the operator ever had one."""
        return self._fresh.get(operator, 0)

    @property
    def numbered(self) -> Set[InstanceId]:
        """Instances whose incarnations are counted."""
        return self._next.keys()

    def upcoming(self, instance: InstanceId) -> int:
        """The number of the instance's next incarnation."""
        return self._next.get(instance, self._first_incarnation)

    def incarnation(self, instance: InstanceId) -> Incarnation:
        return Incarnation(instance, self.placement[instance].incarnation)

    def is_current(self, identity: Incarnation) -> bool:
        seat = self.placement.get(identity.instance)
        return seat is not None and seat.incarnation == identity.number

    def is_live(self, instance: InstanceId) -> bool:
        """Whether the instance's node is live."""
        return self.placement[instance].node in self.nodes

    def living_on(self, node: str) -> list[InstanceId]:
        return [instance for instance, seat in self.placement.items() if seat.node == node]
