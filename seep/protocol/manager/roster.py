"""The roster: the live nodes, and the node and current incarnation of each instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set

from primitives.graph import InstanceId
from seep.protocol.view import Incarnation, Seat


class Roster:
    """The nodes and instances that the manager knows. No number of an incarnation or instance is used twice."""

    def __init__(self, first_incarnation: int) -> None:
        self._first_incarnation = first_incarnation
        #: live nodes, and the last view that each has acknowledged
        self.nodes: dict[str, int] = {}
        #: live nodes on which an instance ever began
        self.hosted: set[str] = set()
        #: of each live node, the version of the first view that it gets
        self._first_views: dict[str, int] = {}
        #: the VMs of live nodes, if known
        self.vms: dict[str, str] = {}
        #: the version of the view with the last loss of a node that had hosted an instance
        self.loss_told = 0
        #: live nodes that will leave: no instance is placed there
        self.leaving: set[str] = set()
        #: the node and incarnation of each instance; of an instance without a live node, the last ones
        self.placement: dict[InstanceId, Seat] = {}
        #: the number of each instance's next incarnation, until the instance has ended
        self._next: dict[InstanceId, int] = {}
        #: operator -> the lowest index above all that were ever used
        self._fresh: dict[str, int] = {}

    # -- nodes --------------------------------------------------------------------------------------------------------

    def join(self, node: str, vm: str | None, first_view: int) -> None:
        """Adds a node, whose first view has the version `first_view`."""
        self.nodes[node] = 0
        self._first_views[node] = first_view
        if vm is not None:
            self.vms[node] = vm

    def lose(self, node: str, next_view: int) -> bool:
        """Removes a lost node, as the view of version `next_view` will tell; returns whether it was live until now."""
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
        """Returns whether every live node has acknowledged a view, or begins with it or a later one."""
        return all(seen >= version or self._first_views[node] >= version for node, seen in self.nodes.items())

    def least_loaded(
        self, reserved: Iterable[str], avoid: Collection[str], near: Collection[str] = (), first: bool = False
    ) -> str | None:
        """Returns a node with the fewest instances and reservations; nodes to avoid or about to leave only if needed.

        Of equally loaded nodes, it prefers a near one; with `first`, it prefers a near one with any load.
        """
        load = Counter(seat.node for seat in self.placement.values())
        load.update(reserved)

        def rank(node: str) -> tuple[object, ...]:
            far = node not in near
            return node in self.leaving, node in avoid, first and far, load[node], far, node

        return min(self.nodes, key=rank, default=None)

    # -- instances ----------------------------------------------------------------------------------------------------

    def seat(self, identity: Incarnation, node: str) -> None:
        """Places an incarnation on a node, and makes it the current one."""
        self.placement[identity.instance] = Seat(node, identity.number)
        self.hosted.add(node)

    def remove(self, instance: InstanceId) -> None:
        """Removes an instance; its index stays taken."""
        del self.placement[instance]
        self.forget(instance)

    def forget(self, instance: InstanceId) -> None:
        """Forgets the number of an instance that will not start again."""
        self._next.pop(instance, None)

    def next_incarnation(self, instance: InstanceId) -> Incarnation:
        number = self.upcoming(instance)
        self._next[instance] = number + 1
        self._fresh[instance.operator] = max(self.fresh_index(instance.operator), instance.index + 1)
        return Incarnation(instance, number)

    def was_born(self, instance: InstanceId) -> bool:
        """Returns whether the index of an instance is taken, or lower than one that is."""
        return instance.index < self.fresh_index(instance.operator)

    def fresh_index(self, operator: str) -> int:
        """Returns the lowest index above all that instances of the operator have ever had."""
        return self._fresh.get(operator, 0)

    @property
    def numbered(self) -> Set[InstanceId]:
        """The instances whose incarnations are counted."""
        return self._next.keys()

    def upcoming(self, instance: InstanceId) -> int:
        """Returns the number of the instance's next incarnation."""
        return self._next.get(instance, self._first_incarnation)

    def incarnation(self, instance: InstanceId) -> Incarnation:
        return Incarnation(instance, self.placement[instance].incarnation)

    def is_current(self, identity: Incarnation) -> bool:
        seat = self.placement.get(identity.instance)
        return seat is not None and seat.incarnation == identity.number

    def is_live(self, instance: InstanceId) -> bool:
        """Returns whether the instance's node is live."""
        return self.placement[instance].node in self.nodes

    def living_on(self, node: str) -> list[InstanceId]:
        return [instance for instance, seat in self.placement.items() if seat.node == node]
