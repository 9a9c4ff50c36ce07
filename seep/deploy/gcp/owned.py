"""One thing in Google Cloud that a cluster owns, which its labels say; things of others are never touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from primitives.errors import UserError
from vmpool.gcp.api import INSTANCE, Compute, ResourceKind, is_stopped
from vmpool.gcp.names import CLUSTER, SETTINGS, labels_of


@dataclass(frozen=True, slots=True)
class Owned:
    """A rule, a template or a VM, known by name and label."""

    api: Compute
    cluster: str
    kind: ResourceKind
    name: str
    body: Callable[[], Mapping[str, Any]]  #: its JSON; made only when it is needed, as that reads files
    options: Mapping[str, str] = field(default_factory=dict)  #: of the call that makes it

    @property
    def label(self) -> str:
        """What it is, for people."""
        return f"{self.kind.noun} {self.name}"

    def find(self) -> str | None:
        """Its id if it is there; UserError if something that is not the cluster's has its name."""
        found = self._find()
        return None if found is None else str(found.id)

    def create(self) -> str:
        """Makes it, waits until it is there, and returns its id."""
        return self.api.insert(self.kind, self.body(), **self.options)

    def delete(self) -> None:
        """Removes it, and waits until it is gone."""
        self.api.delete(self.kind, self.name)

    def start(self) -> None:
        """Starts a VM again that has stopped."""
        self.api.start(self.name)

    def need(self) -> str:
        """What `up` has to do: create, keep, start (a VM that has stopped) or replace (made from other settings)."""
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
