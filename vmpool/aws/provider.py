"""VMs from EC2: launches instances of a cluster's worker template, which join its Spark master on their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import Field

from formats.settings import checked
from primitives.errors import UserError
from vmpool.aws.client import Aws
from vmpool.aws.instances import ALIVE, GOING, await_running, find_instances, launch, terminate
from vmpool.aws.names import ROLE, WORKER
from vmpool.aws.settings import CLUSTER_NAME, AwsAccess
from vmpool.provider import Machine, ProviderError

#: Tag with the run that started an instance, so that `close` stops only instances of this run.
RUN = "seep:run"

T = TypeVar("T")


class Ec2PoolSettings(AwsAccess):
    """Settings of the provider `ec2`, under `pool.settings` in a policy file."""

    cluster: str = Field(pattern=CLUSTER_NAME, description="Name of the cluster that `seep deploy ec2` has brought up.")
    tags: dict[str, str] = Field(default_factory=dict, description="More tags for the instances.")


class Ec2Provider:
    """Implements `vmpool.provider.Provider`."""

    def __init__(self, settings: Ec2PoolSettings, run: str) -> None:
        self._aws = Aws(settings)
        self._cluster = settings.cluster
        self._run = run
        self._tags = {**settings.tags, RUN: run}

    def start(self, name: str) -> Machine:
        """Returns when the instance runs; its worker joins the master a minute or two later, once it is installed."""
        return _as_provider(lambda: self._start(name))

    def stop(self, machine: Machine) -> None:
        """Stops a VM without waiting for its end."""
        _as_provider(lambda: self._end(ids=[machine.id]))

    def lost(self, machines: Collection[Machine]) -> set[str]:
        """Returns the VMs that EC2 has ended or is ending.

        An announced interruption is no loss yet (`vmpool.interruption`).
        """
        if not machines:
            return set()
        told = _as_provider(lambda: find_instances(self._aws, self._cluster, ids=[each.id for each in machines]))
        working = {each.id for each in told if each.state not in GOING}
        return {each.name for each in machines if each.id not in working}

    def close(self) -> None:
        """Stops all instances of this run, also those whose start was interrupted."""
        _as_provider(lambda: self._end({RUN: self._run}))

    def _start(self, name: str) -> Machine:
        instance = launch(self._aws, self._cluster, WORKER, f"{self._run}-{name}", self._tags)
        await_running(self._aws, [instance])
        return Machine(name, instance.id, instance.host)

    def _end(self, with_tags: Mapping[str, str] = MappingProxyType({}), ids: Collection[str] = ()) -> None:
        found = find_instances(self._aws, self._cluster, {ROLE: WORKER, **with_tags}, ids=ids)
        terminate(self._aws, [each for each in found if each.state in ALIVE], wait=False)


def from_settings(settings: Mapping[str, Any], *, run: str, **_: Any) -> Ec2Provider:
    """Makes the provider for a pool. It ignores master and nodes: the cluster's worker template has both."""
    return Ec2Provider(checked(Ec2PoolSettings, dict(settings), "pool.settings"), run)


def _as_provider(call: Callable[[], T]) -> T:
    """Calls Amazon, and marks wrong settings as errors that a retry does not help."""
    try:
        return call()
    except UserError as reason:
        raise ProviderError(str(reason), again=False) from reason
