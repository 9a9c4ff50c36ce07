"""VmRoster: the VMs, the nodes on them, and the nodes that are expected.

With `Machine.host`, a node belongs to the VM at its address, whichever VM its order was for; without it, to the VM for
which it was ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from vmpool.vm import VM


class VmRoster:
    """VMs by name, oldest first; `found` makes a VM that the pool did not start, when a node is at its address."""

    def __init__(self, found: Callable[[str, float], VM]) -> None:
        self._vms: dict[str, VM] = {}
        self._found = found

    def __iter__(self) -> Iterator[VM]:
        return iter(tuple(self._vms.values()))

    def __len__(self) -> int:
        return len(self._vms)

    def add(self, vm: VM) -> VM:
        self._vms[vm.name] = vm
        return vm

    def get(self, name: str) -> VM | None:
        return self._vms.get(name)

    def remove(self, name: str) -> VM | None:
        """Removes and returns the VM with this name."""
        return self._vms.pop(name, None)

    def named(self, names: Iterable[str]) -> list[VM]:
        """Returns the existing VMs with these names."""
        return [self._vms[name] for name in names if name in self._vms]

    def own(self) -> list[VM]:
        """Returns the VMs that the pool has started or is starting."""
        return [vm for vm in self if not vm.is_found]

    def vm_with(self, node: str) -> VM | None:
        """Returns the VM of a node."""
        return next((vm for vm in self if node in vm.nodes), None)

    def maker(self, order: str) -> VM | None:
        """Returns the VM for which an order was placed, or on which its node is."""
        return next((vm for vm in self if vm.made(order)), None)

    def is_asking(self) -> bool:
        """Whether nodes are being ordered whose orders are not known yet."""
        return any(vm.asked for vm in self)

    def expect(self, vm: VM, orders: Collection[str]) -> None:
        """Adds orders of nodes for a VM."""
        vm.asked = 0
        vm.orders |= dict.fromkeys(orders, False)

    def place(self, node: str, order: str, host: str | None, now: float) -> VM | None:
        """Puts a registered node on its VM; returns None if its order is not known."""
        maker = self.maker(order)
        if maker is None:
            return None
        home = maker if maker.host is None and not maker.is_found else self._at(str(host), now)
        was_expected = maker.orders.pop(order, None) is not None
        home.nodes[node] = order
        if was_expected and home is not maker and home.orders:
            maker.orders |= [home.orders.popitem()]  # Spark has put the node elsewhere, so another will come here
        return home

    def lose(self, node: str) -> VM | None:
        """Removes a node from its VM; another may come with its order."""
        vm = self.vm_with(node)
        if vm is None:
            return None
        order = vm.nodes.pop(node)
        if self.maker(order) is None:
            vm.orders[order] = True
        return vm

    def _at(self, host: str, now: float) -> VM:
        """Returns the newest VM at an address."""
        for vm in reversed(self._vms.values()):
            if host == (vm.name if vm.is_found else vm.host):
                return vm
        return self.add(self._found(host, now))
