"""Spark itself as the provider: nothing is started here, as Spark finds a place for each node that is ordered.

In `local[n]` that is a task slot of this machine; on YARN, Kubernetes or a cluster with dynamic allocation, Spark asks
for an executor when its tasks wait for one, and gives it back when it idles.
"""

from __future__ import annotations

from collections.abc import Collection

from vmpool.provider import Machine


class SparkSlots:
    """A provider whose VMs are only names; what becomes of them, Spark says of their nodes."""

    def start(self, name: str) -> Machine:
        return Machine(name, name)

    def stop(self, machine: Machine) -> None:
        """Nothing: the orders of its nodes have been cancelled."""

    def lost(self, machines: Collection[Machine]) -> set[str]:  # noqa: ARG002
        """None: the pool hears of nodes that end."""
        return set()

    def close(self) -> None:
        """Nothing is left."""
