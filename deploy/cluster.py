"""A cluster as a list of resources, each found or made or removed: so `up` can be run again, resumed, and undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Tell = Callable[[str], None]


class Resource(Protocol):
    """One thing in the cloud: a network rule, a role, a template, an instance."""

    @property
    def label(self) -> str:
        """What it is, for people, such as `security group seep-demo`."""
        ...

    def find(self) -> str | None:
        """Its id if it is there, and ours by its tags."""
        ...

    def create(self) -> str:
        """Makes it, and returns its id; called in the order of the list, and only if it is not there."""
        ...

    def delete(self) -> None:
        """Removes it and waits until it is gone; called in reverse order, and only if it is there."""
        ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a config file describes, at one provider."""

    name: str
    resources: Sequence[Resource]  #: in the order in which they are made
    hourly: Mapping[str, float | None]  #: label -> dollars per hour while it is up; None if no price is known
    tell: Tell = lambda _: None

    def plan(self) -> list[str]:
        """What `up` would do, a line each: `create …` or `keep …`."""
        return [f"{'keep' if each.find() else 'create'} {each.label}" for each in self.resources]

    def up(self) -> int:
        """Makes what is missing; returns how many resources that were. A run that was broken off is continued."""
        missing = [each for each in self.resources if self._is_missing(each)]
        for at, each in enumerate(missing, 1):
            self.tell(f"[{at}/{len(missing)}] create {each.label}")
            self.tell(f"    is {each.create()}")
        return len(missing)

    def status(self) -> dict[str, str | None]:
        """The id of each resource, None for those that are not there."""
        return {each.label: each.find() for each in self.resources}

    def down(self) -> int:
        """Removes all that is there, in reverse; returns how many resources that were."""
        there = [each for each in reversed(self.resources) if each.find()]
        for at, each in enumerate(there, 1):
            self.tell(f"[{at}/{len(there)}] delete {each.label}")
            each.delete()
        return len(there)

    def _is_missing(self, resource: Resource) -> bool:
        found = resource.find()
        if found:
            self.tell(f"keep {resource.label} ({found})")
        return found is None
