"""Machines: the master, and the workers that `up` starts; those that the pool has started end with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seep.deploy.ec2.part import CloudPart
from seep.deploy.ec2.templates import find_master
from vmpool.aws.instances import ALIVE, Ec2Instance, await_running, find_instances, launch, terminate
from vmpool.aws.names import MASTER, ROLE, WORKER


@dataclass(frozen=True, slots=True)
class Master(CloudPart):
    """The instance with Spark's master."""

    @property
    def label(self) -> str:
        return f"master ({self.site.settings.machine_type(MASTER)})"

    def find(self) -> str | None:
        there = find_master(self)
        return there.id if there else None

    def create(self) -> str:
        master = launch(self.site.aws, self.site.cluster, MASTER, MASTER, self.site.settings.tags)
        await_running(self.site.aws, [master])
        return master.id

    def delete(self) -> None:
        there = find_master(self)
        terminate(self.site.aws, [there] if there else [], wait=True)


@dataclass(frozen=True, slots=True)
class Workers(CloudPart):
    """The first `count` workers; started together, and ended together, with those of the pool."""

    count: int

    @property
    def label(self) -> str:
        spot = ", spot" if self.site.settings.machines.spot else ""
        workers = "1 worker" if self.count == 1 else f"{self.count} workers"
        return f"{workers} ({self.site.settings.machine_type(WORKER)}{spot})"

    def find(self) -> str | None:
        there = self.by_name()
        wanted = list(worker_names(self.count))
        return _ids(there[name] for name in wanted) if there.keys() >= set(wanted) else None

    def left(self) -> str | None:
        there = self.by_name()
        return _ids(there.values()) if there else None

    def create(self) -> str:
        tags = self.site.settings.tags
        workers = [launch(self.site.aws, self.site.cluster, WORKER, name, tags) for name in worker_names(self.count)]
        await_running(self.site.aws, workers)
        return _ids(workers)

    def delete(self) -> None:
        terminate(self.site.aws, list(self.by_name().values()), wait=True)

    def by_name(self) -> dict[str, Ec2Instance]:
        """Returns all existing workers, by the names of their VMs."""
        found = find_instances(self.site.aws, self.site.cluster, {ROLE: WORKER})
        return {each.name: each for each in found if each.state in ALIVE}


def worker_names(count: int) -> Iterable[str]:
    """Returns the names of the workers that `up` and `scale` start.

    >>> list(worker_names(2))
    ['worker-1', 'worker-2']
    """
    return (f"worker-{number}" for number in range(1, count + 1))


def is_numbered(name: str) -> bool:
    """Whether a worker was started by `up` or `scale`, and not by the pool.

    >>> is_numbered("worker-12"), is_numbered("run7-vm3")
    (True, False)
    """
    return name.startswith("worker-") and name.removeprefix("worker-").isdecimal()


def _ids(instances: Iterable[Ec2Instance]) -> str:
    return ", ".join(each.id for each in instances) or "none wanted"
