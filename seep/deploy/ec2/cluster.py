"""A cluster in EC2: its parts, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from primitives.errors import UserError
from seep.deploy.cluster import Tell
from seep.deploy.ec2.identity import IamRole, InstanceProfile
from seep.deploy.ec2.machines import Master, Workers, is_numbered, worker_names
from seep.deploy.ec2.network import SecurityGroup
from seep.deploy.ec2.part import CloudPart, Site
from seep.deploy.ec2.settings import Ec2Settings
from seep.deploy.ec2.templates import LaunchTemplate, find_master
from seep.deploy.startup import master_url
from vmpool.aws.client import Aws
from vmpool.aws.instances import terminate
from vmpool.aws.names import MASTER, WORKER


def open_cluster(settings: Ec2Settings, tell: Tell = lambda _: None) -> Ec2Cluster:
    """Returns the cluster that a file describes; it makes no resource and sends no request before it is used."""
    return Ec2Cluster(Site(Aws(settings), settings), tell)


@dataclass(frozen=True, slots=True)
class Ec2Cluster:
    """A cluster in EC2. Each of its operations can be interrupted at any point, and repeated."""

    site: Site
    tell: Tell

    @property
    def name(self) -> str:
        """The name in the file."""
        return self.site.cluster

    @property
    def hourly(self) -> Mapping[str, float | None]:
        """Label -> dollars per hour while it is up, by the file's prices; None for a machine without a price."""
        master, workers = Master(self.site), self._workers()
        return {
            master.label: self._price(MASTER),
            workers.label: None if (price := self._price(WORKER)) is None else price * workers.count,
        }

    def plan(self) -> list[str]:
        """Returns the actions of `up`, a line each."""
        return [f"{_verb(part)} {part.label}" for part in self._parts()]

    def up(self) -> int:
        """Makes missing parts, completes half-made or outdated ones; returns their number."""
        return complete(self._parts(), self.tell)

    def status(self) -> dict[str, str | None]:
        """Returns the ids of each part, None for missing ones; workers of the pool are among the workers."""
        return {part.label: part.left() for part in self._parts()}

    def scale(self, workers: int) -> int:
        """Starts or ends workers until there are `workers`, besides those of the pool; returns how many it changed."""
        most = self.site.settings.machines.most
        if not 0 <= workers <= most:
            raise UserError(f"{workers} workers are not between 0 and machines.most, which is {most}")
        if find_master(Master(self.site)) is None:
            raise UserError(f"cluster {self.name} has no master; bring it up first: seep deploy ec2 up")
        there = {name: each for name, each in self._workers().by_name().items() if is_numbered(name)}
        wanted = set(worker_names(workers))
        surplus = [each for name, each in there.items() if name not in wanted]
        self.tell(f"{len(there)} workers are there, {workers} are wanted")
        terminate(self.site.aws, surplus, wait=True)
        Workers(self.site, workers).create()
        return len(surplus) + len(wanted - there.keys())

    def down(self) -> int:
        """Removes all parts, including workers of the pool; returns their number."""
        return remove(self._parts(), self.tell)

    def master_url(self) -> str | None:
        """Returns Spark's master, at its address in the cluster; None if there is none."""
        master = find_master(Master(self.site))
        return master_url(master.host) if master and master.host else None

    def _parts(self) -> list[CloudPart]:
        return [
            IamRole(self.site, WORKER),
            InstanceProfile(self.site, WORKER),
            IamRole(self.site, MASTER),
            InstanceProfile(self.site, MASTER),
            SecurityGroup(self.site),
            LaunchTemplate(self.site, MASTER),
            Master(self.site),
            LaunchTemplate(self.site, WORKER),
            self._workers(),
        ]

    def _workers(self) -> Workers:
        return Workers(self.site, self.site.settings.machines.workers)

    def _price(self, role: str) -> float | None:
        """Returns the price of a role's machine; spot capacity has its own price, `TYPE:spot`."""
        machine = self.site.settings.machine_type(role)
        spot = ":spot" if self.site.settings.machines.spot and role == WORKER else ""
        return self.site.settings.hourly.get(machine + spot)


def _verb(part: CloudPart) -> str:
    if part.find():
        return "keep"
    return "complete" if part.left() else "create"


def complete(parts: Sequence[CloudPart], tell: Tell) -> int:
    """Makes or completes parts that are missing or outdated; returns their number.

    One by one, because each needs those before it: so `up` can be repeated and undone.
    """
    missing = [each for each in parts if _is_missing(each, tell)]
    for at, each in enumerate(missing, 1):
        tell(f"[{at}/{len(missing)}] create {each.label}")
        tell(f"    is {each.create()}")
    return len(missing)


def remove(parts: Sequence[CloudPart], tell: Tell) -> int:
    """Removes parts of which anything exists, the last one first; returns their number."""
    there = [each for each in reversed(parts) if each.left()]
    for at, each in enumerate(there, 1):
        tell(f"[{at}/{len(there)}] delete {each.label}")
        each.delete()
    return len(there)


def _is_missing(part: CloudPart, tell: Tell) -> bool:
    found = part.find()
    if found:
        tell(f"keep {part.label} ({found})")
    return found is None
