"""VMs from Google Compute Engine: starts workers of a cluster that `seep deploy gcp up` has made."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from formats.settings import checked
from primitives.errors import UserError
from vmpool.gcp.api import INSTANCE, TEMPLATE, Compute, cores_of, internal_address, is_ending
from vmpool.gcp.names import CLUSTER, RUN, VM, labels_of, named, plain
from vmpool.gcp.settings import GceSettings
from vmpool.provider import Machine, ProviderError


def from_settings(settings: dict[str, Any], *, run: str, master: str, nodes_per_vm: int) -> GceProvider:
    """Makes the provider `gce` of a pool whose nodes join Spark's `master`.

    Raises UserError if the settings do not fit.
    """
    if not master.startswith("spark://"):
        raise UserError(
            f"pool.provider gce needs the master of its cluster, such as spark://seep-demo-master:7077, not {master}"
        )
    return GceProvider(checked(GceSettings, settings, "pool.settings"), run, nodes_per_vm)


class GceProvider:
    """A provider of the pool: each VM comes from the cluster's worker template, and has the run's label."""

    def __init__(self, settings: GceSettings, run: str, nodes_per_vm: int) -> None:
        self._settings = settings
        self._run = run
        self._nodes_per_vm = nodes_per_vm
        self._api = Compute(settings)
        self._closed = threading.Event()

    def start(self, name: str) -> Machine:
        """Starts a VM and returns when it has joined the master; a VM that does not join is removed."""
        instance = self._name(name)
        with _as_provider_error():
            is_there = self._is_there(instance)
            try:
                if not is_there:
                    self._create(instance, name)
                self._await_ready(instance)
                return Machine(name, instance, internal_address(self._existing(instance)))
            except BaseException:
                self._api.delete(INSTANCE, instance)
                raise

    def stop(self, machine: Machine) -> None:
        """Removes the VM with its disk, without waiting for the end."""
        with _as_provider_error():
            self._api.delete(INSTANCE, machine.id, wait=False)

    def lost(self, machines: Collection[Machine]) -> set[str]:
        """Returns the VMs that have stopped, are stopping, or do not exist any more."""
        with _as_provider_error():
            running = {found.name for found in self._started() if not is_ending(found)}
        return {machine.name for machine in machines if machine.id not in running}

    def close(self) -> None:
        """Removes all VMs that the run has started, or is starting."""
        self._closed.set()
        with _as_provider_error():
            for found in self._started():
                self._api.delete(INSTANCE, found.name, wait=False)

    def _is_there(self, instance: str) -> bool:
        """Whether an earlier attempt has made the VM; removes the rest of a stopped one."""
        found = self._api.find(INSTANCE, instance)
        if found is not None and labels_of(found).get(RUN) != plain(self._run):
            raise UserError(f"instance {instance} is not of run {self._run}; remove it, or choose another cluster name")
        if found is not None and is_ending(found):
            self._api.delete(INSTANCE, instance)
            return False
        return found is not None

    def _create(self, instance: str, name: str) -> None:
        template = self._template()
        labels = dict(template.properties.labels) | {RUN: plain(self._run), VM: plain(name)}
        source = f"projects/{self._settings.project}/global/instanceTemplates/{template.name}"
        self._api.insert(INSTANCE, {"name": instance, "labels": labels}, source_instance_template=source)

    def _template(self) -> Any:
        """Returns the cluster's worker template. Raises UserError if its workers do not fit the run's nodes."""
        cluster = self._settings.cluster
        found = self._api.find(TEMPLATE, named(cluster, "worker"))
        if found is None or labels_of(found).get(CLUSTER) != cluster:
            raise UserError(f"cluster {cluster} has no template of workers; make it with `seep deploy gcp up`")
        if (cores := cores_of(found)) != self._nodes_per_vm:
            raise UserError(
                f"workers of cluster {cluster} have {cores} cores and pool.nodes_per_vm is {self._nodes_per_vm}; "
                "give machines.nodes_per_worker of the cluster file the same value, and run `seep deploy gcp up`"
            )
        return found

    def _await_ready(self, instance: str) -> None:
        """Waits until the start-up script reports that the worker has joined."""
        deadline = time.monotonic() + self._settings.ready
        while (state := self._api.state(instance)) != "ready":
            self._existing(instance)
            if state and state.startswith("failed"):
                raise ProviderError(f"the start-up script of {instance} {state}; {_WHERE_TO_LOOK}")
            if time.monotonic() > deadline:
                raise ProviderError(f"{instance} did not join within {self._settings.ready:g} s; {_WHERE_TO_LOOK}")
            if self._closed.wait(self._settings.poll):
                raise ProviderError(f"{instance} is not needed any more", again=False)

    def _existing(self, instance: str) -> Any:
        """Returns the VM's present state. Raises ProviderError if it has stopped."""
        found = self._api.find(INSTANCE, instance)
        if found is None or is_ending(found):
            raise ProviderError(f"{instance} ended while it started; spot capacity may have been taken away")
        return found

    def _started(self) -> list[Any]:
        return self._api.instances({CLUSTER: self._settings.cluster, RUN: plain(self._run)})

    def _name(self, name: str) -> str:
        return named(self._settings.cluster, f"pool-{plain(self._run)}-{plain(name)}")


#: The VM itself has been removed by then.
_WHERE_TO_LOOK = "start one with `seep deploy gcp scale` and read `journalctl --unit google-startup-scripts` there"


@contextmanager
def _as_provider_error() -> Iterator[None]:
    """Converts wrong settings to a ProviderError that a retry does not help."""
    try:
        yield
    except UserError as reason:
        raise ProviderError(str(reason), again=False) from reason
