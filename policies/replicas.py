"""Replica groups (Rhino): chooses the nodes that hold copies of an instance's state, so that any can take it over."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from primitives.errors import UserError
from primitives.graph import InstanceId

#: The nodes with an instance's replicas, in the order of the chain: the first gets each checkpoint first.
Group = tuple[str, ...]


def replica_groups(
    sizes: Mapping[InstanceId, int],
    hosts: Mapping[InstanceId, str],
    nodes: Collection[str],
    r: int,
    vms: Mapping[str, str] | None = None,
    present: Mapping[InstanceId, Group] | None = None,
    tolerance: float = 0.25,
) -> dict[InstanceId, Group]:
    """Returns the replica group of each instance in `sizes` (bytes of state): `r` distinct nodes, never its own.

    Groups are smaller if there are not enough nodes. `hosts` has the node of each instance, and `vms` the VM of each
    node (a VM of its own, if not given). Nodes that are leaving must not be among `nodes`.

    Bin packing: the largest instance first, each to the nodes with the least load, preferably on VMs that the group
    does not have yet. Members in `present` stay, and come first: they are up to date. Besides lost members, some are
    replaced only while the fullest node has more than 1 + `tolerance` times the mean, by moves that help.

    Law, with N nodes on VMs of their own and r < N: the fullest node has at most that, or N
    (N - r) times the mean plus the largest replica.

    >>> a, b = InstanceId("count", 0), InstanceId("count", 1)
    >>> replica_groups({a: 100, b: 50}, {a: "n1", b: "n2"}, ["n1", "n2", "n3"], r=1)
    {InstanceId(operator='count', index=0): ('n2',), InstanceId(operator='count', index=1): ('n1',)}
    """
    if r < 1:
        raise UserError(f"a replica group of {r} nodes holds nothing; choose one at least")
    packing = _Packing(sizes, hosts, dict.fromkeys(sorted(nodes), 0), vms or {})
    for instance in sorted(sizes):
        packing.keep(instance, (present or {}).get(instance, ()), r)
    for instance in sorted(sizes, key=lambda each: (-sizes[each], each)):
        packing.fill(instance, r)
    packing.level(1 + tolerance)
    return {instance: tuple(packing.groups[instance]) for instance in sizes}


@dataclass(slots=True)
class _Packing:
    """Groups that are being built."""

    sizes: Mapping[InstanceId, int]
    hosts: Mapping[InstanceId, str]
    loads: dict[str, int]  #: bytes on each node
    vms: Mapping[str, str]
    groups: dict[InstanceId, list[str]] = field(default_factory=dict)

    def keep(self, instance: InstanceId, members: Group, r: int) -> None:
        self.groups[instance] = []
        for node in members:
            if node in self._candidates(instance) and len(self.groups[instance]) < r:
                self._add(instance, node)

    def fill(self, instance: InstanceId, r: int) -> None:
        while len(self.groups[instance]) < r and (candidates := self._candidates(instance)):
            self._add(instance, min(candidates, key=lambda node: self._cost(instance, node)))

    def level(self, most: float) -> None:
        """Replaces members on the fullest node while it has more than `most` times the mean, and that helps."""
        mean = sum(self.loads.values()) / len(self.loads) if self.loads else 0.0
        while self.loads and max(self.loads.values()) > most * mean:
            fullest = max(self.loads, key=self.loads.__getitem__)
            found = max(self._reliefs(fullest), default=None)
            if found is None:
                return
            _, instance, node = found
            self._remove(instance, fullest)
            self._add(instance, node)

    def _reliefs(self, fullest: str) -> Iterator[tuple[int, InstanceId, str]]:
        """Returns replacements, with their gain, that relieve the fuller of two nodes, and share no VM more."""
        emptiest_first = sorted(self.loads, key=lambda node: (self.loads[node], node))
        for instance, group in self.groups.items():
            if fullest in group:
                node = self._substitute(instance, fullest, emptiest_first)
                size, gap = self.sizes[instance], self.loads[fullest] - self.loads.get(node or fullest, 0)
                if node and 0 < size < gap:
                    yield min(size, gap - size), instance, node

    def _substitute(self, instance: InstanceId, member: str, nodes: Collection[str]) -> str | None:
        """Returns the first of the nodes that can replace a member, or None."""
        others = [node for node in self.groups[instance] if node != member]
        taken, shared = {self.hosts.get(instance), member, *others}, self._shared(instance, member, others)
        return next(
            (node for node in nodes if node not in taken and self._shared(instance, node, others) <= shared), None
        )

    def _candidates(self, instance: InstanceId) -> list[str]:
        taken = {self.hosts.get(instance), *self.groups[instance]}
        return [node for node in self.loads if node not in taken]

    def _cost(self, instance: InstanceId, node: str) -> tuple[int, int, str]:
        return self._shared(instance, node, self.groups[instance]), self.loads[node], node

    def _shared(self, instance: InstanceId, node: str, others: Collection[str]) -> int:
        """Returns how many of the instance's node and other replicas would be lost together with a node's VM."""
        host = self.hosts.get(instance)
        return sum(self._vm(other) == self._vm(node) for other in (*others, *([host] if host else [])))

    def _vm(self, node: str) -> str:
        return self.vms.get(node, node)

    def _add(self, instance: InstanceId, node: str) -> None:
        self.groups[instance].append(node)
        self.loads[node] += self.sizes[instance]

    def _remove(self, instance: InstanceId, node: str) -> None:
        self.groups[instance].remove(node)
        self.loads[node] -= self.sizes[instance]
