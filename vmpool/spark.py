"""Spark as the provider: nothing is started here, as Spark finds a place for each ordered node.

In `local[n]` that is a task slot of this machine. On YARN, Kubernetes or a cluster with dynamic allocation, Spark
requests an executor when its tasks wait for one, and releases it when it is idle.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from primitives.errors import UserError
from vmpool.provider import Machine


def from_settings(settings: dict[str, Any], **_: Any) -> SparkSlots:
    """The provider `spark` of a pool; UserError if there are settings."""
    if settings:
        raise UserError(f"pool.settings: {', '.join(settings)} is unknown; provider spark takes none")
    return SparkSlots()


class SparkSlots:
    """A provider whose VMs are only names; Spark reports what happens to their nodes."""

    def start(self, name: str) -> Machine:
        return Machine(name, name)

    def stop(self, machine: Machine) -> None:
        """Does nothing: the orders of its nodes have been cancelled."""

    def lost(self, machines: Collection[Machine]) -> set[str]:  # noqa: ARG002
        """Returns nothing: the pool is told when nodes end."""
        return set()

    def close(self) -> None:
        """Does nothing: no VM is left."""
