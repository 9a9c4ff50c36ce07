"""Provider: the interface to a source of VMs. Its calls may take minutes and may fail."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from primitives.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class Machine:
    """A VM that a provider has started."""

    name: str  #: its name in the pool
    id: str  #: its id at the provider
    host: str | None = None  #: the address of its nodes; None if Spark chooses the machine


class ProviderError(EnvironmentFault):
    """A VM could not be started or stopped, by quota, capacity, credentials, network; the message says what to do."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again  #: whether a retry may succeed


class Provider(Protocol):
    """A source of VMs. Its methods are called on threads that may wait; every call may be repeated after a failure."""

    def start(self, name: str) -> Machine:
        """Starts a VM and returns when nodes can run on it. The same name gives the same VM. Raises ProviderError."""
        ...

    def stop(self, machine: Machine) -> None:
        """Stops a VM and everything on it; a missing one is no error. Raises ProviderError."""
        ...

    def lost(self, machines: Collection[Machine]) -> set[str]:
        """Returns names of VMs that are gone or about to go without having been stopped."""
        ...

    def close(self) -> None:
        """Stops all VMs that were started and are left."""
        ...
