"""Provider: the interface to a source of VMs: a few calls that may take minutes and may fail."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from primitives.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class Machine:
    """A VM that a provider has started."""

    name: str  #: the pool's name for it
    id: str  #: the provider's
    host: str | None = None  #: the address at which its nodes will be; None where Spark chooses the machine


class ProviderError(EnvironmentFault):
    """A VM could not be had or ended: quota, capacity, credentials, network; the message says which and what to do."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again  #: whether another try may succeed by itself


class Provider(Protocol):
    """Where VMs come from. Called on threads that may wait; every call may be made again after a failure."""

    def start(self, name: str) -> Machine:
        """Starts a VM and returns once nodes can run on it; the same name again gives the same VM. ProviderError."""
        ...

    def stop(self, machine: Machine) -> None:
        """Ends a VM and all on it; one that is gone is no error. ProviderError."""
        ...

    def lost(self, machines: Collection[Machine]) -> set[str]:
        """Names of those that are gone or about to go without having been stopped, by the provider's word."""
        ...

    def close(self) -> None:
        """Ends what is left of all that was started."""
        ...
