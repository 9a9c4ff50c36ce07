"""A resource in Google Cloud that a cluster owns, by its labels; other resources are never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from primitives.errors import UserError
from vmpool.gcp.api import INSTANCE, Compute, ResourceKind, is_stopped
from vmpool.gcp.names import CLUSTER, SETTINGS, labels_of


@dataclass(frozen=True, slots=True)
class Owned:
    """A rule, a template or a VM, identified by name and label."""

    api: Compute
    cluster: str
    kind: ResourceKind
    name: str
    body: Callable[[], Mapping[str, Any]]  #: makes its JSON, which reads files
    options: Mapping[str, str] = field(default_factory=dict)  #: options of the call that makes it

    @property
    def label(self) -> str:
        """The resource's description for users."""
        return f"{self.kind.noun} {self.name}"

    def find(self) -> str | None:
        """Returns its id if it exists; raises UserError if a resource of another owner has its name."""
        found = self._find()
        return None if found is None else str(found.id)

    def create(self) -> str:
        """Makes it, waits until it exists, and returns its id."""
        return self.api.insert(self.kind, self.body(), **self.options)

    def delete(self) -> None:
        """Removes it, and waits until it does not exist any more."""
        self.api.delete(self.kind, self.name)

    def start(self) -> None:
        """Starts a stopped VM again."""
        self.api.start(self.name)

    def need(self) -> str:
        """Returns the action of `up`: create, keep, start (a stopped VM) or replace (made from other settings)."""
        found = self._find()
        if found is None:
            return "create"
        if self.kind is INSTANCE:
            return "start" if is_stopped(found) else "keep"
        wanted = labels_of(self.api.message(self.kind, self.body()))
        return "keep" if labels_of(found).get(SETTINGS) == wanted[SETTINGS] else "replace"

    def _find(self) -> Any | None:
        found = self.api.find(self.kind, self.name)
        if found is None or labels_of(found).get(CLUSTER) == self.cluster:
            return found
        raise UserError(
            f"there is a {self.label} that is not of cluster {self.cluster}, and is left alone; "
            "remove it yourself, or choose another cluster name"
        )
