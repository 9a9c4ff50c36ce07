"""A cluster in Google Cloud: network rules, a template for each role, a master, and workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

from primitives.errors import UserError
from seep.deploy.cluster import Tell
from seep.deploy.gcp import bodies
from seep.deploy.gcp.owned import Owned
from seep.deploy.gcp.settings import GcpSettings
from seep.deploy.startup import master_url
from vmpool.gcp.api import FIREWALL, INSTANCE, TEMPLATE, Compute, ResourceKind
from vmpool.gcp.names import CLUSTER, ROLE, named

#: How many resources are made or removed at a time, as each call takes a minute.
_AT_A_TIME = 8


def open_cluster(settings: GcpSettings, tell: Tell = lambda _: None) -> GcpCluster:
    """Returns the cluster that a file describes; it sends no request before it is used."""
    return GcpCluster(settings, tell)


class GcpCluster:
    """A cluster in Google Cloud. Each of its operations can be interrupted at any point, and repeated."""

    def __init__(self, settings: GcpSettings, tell: Tell) -> None:
        self._settings = settings
        self._tell = tell

    @property
    def name(self) -> str:
        """The name in the file."""
        return self._settings.name

    @property
    def hourly(self) -> Mapping[str, float | None]:
        """Dollars per hour of each VM that `up` starts; None where the file has no price of its type."""
        workers = {f"{INSTANCE.noun} {self._worker_name(number)}": self._price("worker") for number in self._numbers()}
        return {f"{INSTANCE.noun} {named(self.name, 'master')}": self._price("master")} | workers

    def plan(self) -> list[str]:
        """Returns the actions of `up`, a line each: create, keep, start, replace or delete."""
        wanted = [f"{each.need()} {each.label}" for each in (*self._ground(), *self._vms())]
        return wanted + [f"delete {each.label}" for each in self._unwanted() if each.find()]

    def up(self) -> int:
        """Makes missing resources, starts stopped ones, replaces those of other settings; returns their number."""
        removed = remove(self._unwanted(), self._tell)
        return removed + put_right(self._ground(), self._tell) + put_right(self._vms(), self._tell)

    def status(self) -> dict[str, str | None]:
        """Returns the id of all resources of `up`, None for missing ones, and of others, such as VMs of a pool."""
        wanted = {each.label: each.find() for each in (*self._ground(), *self._vms())}
        others = {each.label: found for each in (*self._unwanted(), *self._there()) if (found := each.find())}
        return wanted | others

    def scale(self, workers: int) -> int:
        """Starts or ends workers until there are `workers`, besides those of the pool; returns how many it changed."""
        most = self._settings.machines.most
        if not 0 <= workers <= most:
            raise UserError(f"{workers} workers are not between 0 and machines.most, which is {most}")
        if self._template("worker").find() is None:
            raise UserError(f"cluster {self.name} has no template of workers; bring it up first: seep deploy gcp up")
        there = self._numbers_there()
        self._tell(f"{len(there)} workers are there, {workers} are wanted")
        kept = [*there, *(number for number in range(1, workers + 1) if number not in there)][:workers]
        ended = remove(map(self._worker, there[workers:]), self._tell)
        return ended + put_right(map(self._worker, kept), self._tell)

    def down(self) -> int:
        """Removes all resources, including VMs of a pool; returns their number."""
        ended = remove(self._there(), self._tell)
        removed = remove([*self._unwanted(), *self._ground()], self._tell)
        return ended + removed + remove(self._there(), self._tell)  # VMs that a pool has started meanwhile

    def master_url(self) -> str | None:
        """Returns Spark's master, by its name in the network; None if there is none."""
        return master_url(self._master().name) if self._master().find() else None

    @cached_property
    def _api(self) -> Compute:
        api = Compute(self._settings)
        api.check()
        return api

    def _ground(self) -> list[Owned]:
        """Returns the resources that VMs need, which are made first."""
        rules = [self._rule("members"), *([self._rule("admin")] if self._settings.admin else [])]
        return [*rules, self._template("master"), self._template("worker")]

    def _unwanted(self) -> list[Owned]:
        """Returns resources of earlier settings that must be removed: a rule for `admin`, if there is none now."""
        return [] if self._settings.admin else [self._rule("admin")]

    def _vms(self) -> list[Owned]:
        """Returns the VMs that `up` starts."""
        return [self._master(), *map(self._worker, self._numbers())]

    def _there(self) -> list[Owned]:
        """Returns all existing VMs, including those of the pool."""
        found = self._api.instances({CLUSTER: self.name})
        return [self._vm(each.name, each.labels[ROLE]) for each in sorted(found, key=lambda each: str(each.name))]

    def _numbers(self) -> range:
        return range(1, self._settings.machines.workers + 1)

    def _numbers_there(self) -> list[int]:
        """Returns the numbers of existing workers, without those of the pool."""
        numbered = re.compile(re.escape(named(self.name, "worker")) + r"-(\d+)")
        return sorted(int(found[1]) for each in self._there() if (found := numbered.fullmatch(each.name)))

    def _rule(self, part: str) -> Owned:
        make = {"members": bodies.members_rule, "admin": bodies.admin_rule}[part]
        return self._owned(FIREWALL, named(self.name, part), partial(make, self._settings))

    def _template(self, role: str) -> Owned:
        make = {"master": bodies.master_template, "worker": bodies.worker_template}[role]
        return self._owned(TEMPLATE, named(self.name, role), partial(make, self._settings))

    def _master(self) -> Owned:
        return self._vm(named(self.name, "master"), "master")

    def _worker(self, number: int) -> Owned:
        return self._vm(self._worker_name(number), "worker")

    def _worker_name(self, number: int) -> str:
        return named(self.name, f"worker-{number}")

    def _vm(self, name: str, role: str) -> Owned:
        template = f"projects/{self._settings.project}/global/instanceTemplates/{named(self.name, role)}"
        body = partial(bodies.instance, self._settings, name, role)
        return self._owned(INSTANCE, name, body, source_instance_template=template)

    def _owned(self, kind: ResourceKind, name: str, body: Callable[[], bodies.Json], **options: str) -> Owned:
        return Owned(self._api, self.name, kind, name, body, options)

    def _price(self, role: str) -> float | None:
        """Returns the price of a role's machine; spot capacity has its own price, `TYPE:spot`."""
        spot = ":spot" if self._settings.machines.spot and role == "worker" else ""
        return self._settings.hourly.get(self._settings.machine_type(role) + spot)


def put_right(wanted: Iterable[Owned], tell: Tell) -> int:
    """Makes, starts or replaces resources as needed; returns their number. They must not depend on each other."""
    needs = [(each, each.need()) for each in wanted]
    for each in _with("keep", needs):
        tell(f"keep {each.label}")
    _together("delete", Owned.delete, _with("replace", needs), tell)
    _together("start", Owned.start, _with("start", needs), tell)
    _together("create", Owned.create, [*_with("replace", needs), *_with("create", needs)], tell)
    return len(needs) - len(_with("keep", needs))


def remove(resources: Iterable[Owned], tell: Tell) -> int:
    """Removes existing resources; returns their number."""
    there = [each for each in resources if each.find()]
    _together("delete", Owned.delete, there, tell)
    return len(there)


def _with(need: str, needs: list[tuple[Owned, str]]) -> list[Owned]:
    return [each for each, found in needs if found == need]


def _together(verb: str, act: Callable[[Owned], object], resources: list[Owned], tell: Tell) -> None:
    """Begins one after another; those that have begun are finished, even if one of them fails."""
    with ThreadPoolExecutor(_AT_A_TIME, "seep gcloud") as threads:
        begun = []
        for each in resources:
            tell(f"{verb} {each.label}")
            begun.append(threads.submit(act, each))
        for at, (each, done) in enumerate(zip(resources, begun, strict=True), 1):
            done.result()
            tell(f"[{at}/{len(begun)}] {verb} {each.label}: done")
