"""A Standalone cluster's own workers as VMs: one process for each VM, each at its own loopback address.

It behaves like a small cloud: VMs take seconds to start, can be killed, and their nodes connect over real addresses.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ByteSize, Field

from formats.settings import Seconds, Section, checked
from primitives.errors import EnvironmentFault, UserError
from vmpool.daemon import Daemon, worker_at
from vmpool.provider import Machine, ProviderError

#: The highest last part of an address.
_LAST_HOST = 254
_MIB = 1 << 20


class StandaloneSettings(Section):
    """`pool.settings` of the provider `standalone`."""

    memory: ByteSize = Field(
        ByteSize(1 << 30), description="Memory of each worker; its executors take spark.executor.memory of it."
    )
    first_host: int = Field(
        2, ge=2, le=_LAST_HOST, description="The first worker is at 127.0.0.x with this x, the next at the next."
    )
    timeout: Seconds = Field(60.0, description="Time that a worker may take until it has registered.")


def from_settings(settings: dict[str, Any], *, run: str, master: str, nodes_per_vm: int) -> StandaloneProvider:  # noqa: ARG001
    """Makes the provider `standalone` of a pool. Raises UserError if master or settings do not fit."""
    if not master.startswith("spark://"):
        raise UserError(
            f"pool.provider standalone starts workers of a Standalone cluster, and the master is {master}: "
            "give that of such a cluster (spark://host:port), or choose provider spark"
        )
    return StandaloneProvider(master, nodes_per_vm, checked(StandaloneSettings, settings, "pool.settings"))


class StandaloneProvider:
    """A provider whose VMs are Spark workers, each with as many cores as it has nodes."""

    def __init__(self, master: str, cores: int, settings: StandaloneSettings | None = None) -> None:
        self._master, self._cores = master, cores
        self._settings = settings or StandaloneSettings()
        self._directory = Path(tempfile.mkdtemp(prefix="seep-vms-"))
        self._numbers = itertools.cycle(range(self._settings.first_host, _LAST_HOST + 1))
        self._workers: dict[str, Daemon] = {}
        self._closed = False
        self._lock = threading.Lock()

    def start(self, name: str) -> Machine:
        """Returns when the worker has registered, which takes about two seconds."""
        worker = self._worker(name)
        try:
            worker.await_up(self._settings.timeout, lambda: not self._closed)
        except (EnvironmentFault, OSError) as reason:
            self._end(name)
            raise ProviderError(str(reason)) from reason
        return Machine(name, f"worker at {worker.host}", worker.host)

    def stop(self, machine: Machine) -> None:
        self._end(machine.name)

    def lost(self, machines: Collection[Machine]) -> set[str]:
        """Returns the VMs whose worker has ended; its executors end with it."""
        with self._lock:
            workers = dict(self._workers)
        return {each.name for each in machines if each.name not in workers or not workers[each.name].is_alive()}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            names = list(self._workers)
        if names:
            with ThreadPoolExecutor(len(names), "seep pool stop") as stopping:
                list(stopping.map(self._end, names))
        shutil.rmtree(self._directory, ignore_errors=True)

    def pids(self) -> dict[str, int]:
        """Returns the pid of each VM's worker, which is its process group too."""
        with self._lock:
            return {name: worker.pid for name, worker in self._workers.items()}

    def _worker(self, name: str) -> Daemon:
        """Returns the worker of that name; starts a new one before anyone can stop it."""
        with self._lock:
            if self._closed:
                raise ProviderError(f"{name} is not needed any more: the run is over", again=False)
            if name not in self._workers:
                self._workers[name] = self._new_worker(name)
                self._workers[name].start()
            return self._workers[name]

    def _new_worker(self, name: str) -> Daemon:
        host = self._free_host()
        memory = f"{self._settings.memory // _MIB}m"
        return worker_at(host, self._directory / name, master=self._master, cores=self._cores, memory=memory)

    def _free_host(self) -> str:
        """Returns the next address; a used one is not reused soon, as late reports about its nodes may still come."""
        taken = {worker.host for worker in self._workers.values()}
        tries = (f"127.0.0.{next(self._numbers)}" for _ in range(_LAST_HOST))
        host = next((each for each in tries if each not in taken), None)
        if host is None:
            raise ProviderError(f"all addresses up to 127.0.0.{_LAST_HOST} have a VM; set pool.max_vms", again=False)
        return host

    def _end(self, name: str) -> None:
        with self._lock:
            worker = self._workers.pop(name, None)
        if worker:
            worker.stop()
