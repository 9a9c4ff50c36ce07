"""Delays any provider artificially, to show on one machine the effect of a pool in a cloud."""

from __future__ import annotations

import threading
from collections.abc import Collection

from vmpool.provider import Machine, Provider, ProviderError


class Delayed:
    """Starts every VM of `provider` some seconds later; `close` interrupts the waiting."""

    def __init__(self, provider: Provider, seconds: float) -> None:
        self._provider, self._seconds = provider, seconds
        self._closed = threading.Event()

    def start(self, name: str) -> Machine:
        if self._closed.wait(self._seconds):
            raise ProviderError(f"{name} is not needed any more: the run is over", again=False)
        return self._provider.start(name)

    def stop(self, machine: Machine) -> None:
        self._provider.stop(machine)

    def lost(self, machines: Collection[Machine]) -> set[str]:
        return self._provider.lost(machines)

    def close(self) -> None:
        self._closed.set()
        self._provider.close()
