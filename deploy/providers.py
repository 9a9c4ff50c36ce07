"""Providers: the clouds that a cluster can be in, and how the cluster of a file is come by."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from deploy.cluster import Tell
from deploy.settings import ClusterSettings
from primitives.errors import UserError
from primitives.settings import checked
from primitives.yaml_text import parsed

#: Provider -> the module and name of its settings, and the module with its `open_cluster(settings, tell)`.
_PROVIDERS = {
    "ec2": ("deploy.ec2.settings", "Ec2Settings", "deploy.ec2.cluster"),
    "gcp": ("deploy.gcp.settings", "GcpSettings", "deploy.gcp.cluster"),
}


class CloudCluster(Protocol):
    """A cluster at whichever provider, as the command line sees it."""

    @property
    def name(self) -> str:
        """As in the file."""
        ...

    @property
    def hourly(self) -> Mapping[str, float | None]:
        """Label -> dollars per hour while it is up; None if no price is known."""
        ...

    def plan(self) -> list[str]:
        """What `up` would do, a line each."""
        ...

    def up(self) -> int:
        """Makes what is missing; returns how many resources that were."""
        ...

    def status(self) -> dict[str, str | None]:
        """The id of each resource, None for those that are not there."""
        ...

    def scale(self, workers: int) -> int:
        """Starts or ends workers until there are so many; returns by how many that changed them."""
        ...

    def down(self) -> int:
        """Removes all that is there; returns how many resources that were."""
        ...

    def master_url(self) -> str | None:
        """Spark's master, such as spark://10.0.0.5:7077; None if it is not there."""
        ...


def open_cluster(provider: str, path: Path, tell: Tell = lambda _: None) -> CloudCluster:
    """The cluster that a file describes; nothing is made, and nobody is asked, before it is used."""
    settings = read_settings(provider, path)
    _, _, module = _PROVIDERS[provider]
    cluster: CloudCluster = import_module(module).open_cluster(settings, tell)
    return cluster


def read_settings(provider: str, path: Path) -> ClusterSettings:
    """The section `ec2:` or `gcp:` of a file; UserError with the path of what is wrong."""
    content = _read(path)
    if not isinstance(content, dict) or set(content) != {provider}:
        found = ", ".join(map(str, content)) if isinstance(content, dict) else "no section"
        raise UserError(f"cluster file {path}: it must have the section {provider}: and nothing else; found {found}")
    module, name, _ = _PROVIDERS[provider]
    model: type[ClusterSettings] = getattr(import_module(module), name)
    return checked(model, content[provider], f"cluster file {path}: {provider}")


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UserError(f"cluster file {path} cannot be read ({reason}); give one such as config/ec2.yaml") from reason
    return parsed(text, f"cluster file {path}")
